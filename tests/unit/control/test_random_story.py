"""Random stories of edits, prices and lost answers: no ceiling breaks, no cent is lost.

And each tick does what a plan that is printed just before it says, until EC2 refuses something.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from spindown.contract.decision import Decision, Outcome, RequestOutcome
from spindown.contract.event import InstanceEvent, InterruptionWarning, StateChange
from spindown.control.instance_event import react
from spindown.control.plan.action import ActionKind
from spindown.control.policy_edit import edit_policy, effective_policy
from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.domain.notice_time import FREE_FOR
from spindown.domain.past_cost import dollars_per_hour
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.schedule import unanswered_dollars
from spindown.error import PreconditionFailed, SpindownError, Throttled, Unreachable, WriteConflict
from spindown.ledger import Ledger
from spindown.memory import PortCall
from spindown.operate.plan import PlannedTick, plan_next_tick
from spindown.port import DEPLOYMENT
from tests.builders import minutes
from tests.control import (
    AWAY,
    AWAY_ZONE,
    PRICES,
    REGION,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
)

_NUMBERS = st.integers(0, 30)
#: What people set while the system runs; None gives a key back.
_EDITS: Mapping[str, list[Any]] = {
    "max_workers": [0, 1, 3, 12],
    "max_dollars_per_hour": [0.3, 0.86, 2.0],
    "max_price_per_hour": [0.25, 0.5, 3.0],
    "warm_workers": [0, 2],
    "scale_up_threshold": [1, 50],
    "start_within": ["5m", "30m"],
    "finish_within": ["1h", "8h"],
    "drain_within": ["10m", "3h"],
    "band": [0.0, 0.6],
    "rank_by": ["price", "cost_per_item"],
    "when_spent": [each.value for each in WhenSpent],
    "regions": [[REGION], [AWAY]],
}
_FAULTS = (Unreachable, Throttled, WriteConflict)


class Story(RuleBasedStateMachine):
    """One workload in two regions; the tick and the events, and all that may come between."""

    @initialize(budget=st.sampled_from([None, 0.2, 3.0, 50.0]), hours=st.integers(0, 24 * 11))
    def begin(self, budget: float | None, hours: int) -> None:
        self.world = ControlWorld(
            policy=Policy(max_workers=6, mib_per_item_estimate=0.01),
            budget=budget,
            away=(("g4dn.xlarge", 0.15), ("g6.xlarge", 0.30)),
        )
        # Some begin shortly before the month ends.
        self.world.clock.advance(timedelta(hours=hours))
        self.jobs = 0
        #: USD that had been charged when that was last looked at.
        self.spent = 0.0

    # Work.

    @rule(jobs=st.sampled_from([1, 2, 40]))
    def send(self, jobs: int) -> None:
        self.world.send(jobs)

    @rule(number=_NUMBERS)
    def come_up(self, number: int) -> None:
        for worker in self._some(number, WorkerState.BOOTING):
            if self._runs(worker):
                self.world.check_in(worker.instance_id)

    @rule(number=_NUMBERS)
    def claim(self, number: int) -> None:
        idle = self._some(number, WorkerState.IDLE)
        if idle and self._runs(idle[0]) and self.world.queue.backlog().visible:
            self.jobs += 1
            self.world.claim(idle[0].instance_id, f"job-{self.jobs}")

    @rule(number=_NUMBERS)
    def finish(self, number: int) -> None:
        leases = self.world.view().leases
        if leases:
            lease = leases[number % len(leases)]
            worker = self.world.view().workers.get(lease.instance_id)
            if worker is not None and worker.state is WorkerState.BUSY:
                with suppress(SpindownError):
                    self.world.finish(lease)

    # EC2.

    @rule(number=_NUMBERS, how=st.sampled_from(["notice", "at once", "off"]))
    def take(self, number: int, how: str) -> None:
        for worker in self._some(number, *WorkerState)[:1]:
            if how == "off":
                with suppress(KeyError):
                    self.world.compute.power_off(worker.instance_id)
                continue
            with suppress(ValueError, KeyError):
                notice = minutes(2) if how == "notice" else timedelta(0)
                self.world.compute.reclaim(worker.instance_id, notice=notice)

    @rule(number=_NUMBERS, what=st.sampled_from(["notice", "shutting-down", "terminated"]))
    def hear(self, number: int, what: str) -> None:
        """Let an event come: late, twice, or of an instance that runs."""
        for worker in self._some(number, *WorkerState)[:1]:
            event: InstanceEvent
            if what == "notice":
                event = InterruptionWarning(
                    instance_id=worker.instance_id, region=worker.region, at=self.world.now
                )
            else:
                event = StateChange(
                    instance_id=worker.instance_id,
                    region=worker.region,
                    at=self.world.now,
                    state=what,
                )
            with suppress(SpindownError):
                reaction = react(event, self.world.ports, holder="event")
                if reaction.decision is not None:
                    self._judge(reaction.decision)

    @rule(number=_NUMBERS, left=st.sampled_from([0, 1, None]))
    def change_capacity(self, number: int, left: int | None) -> None:
        places = [(name, zone) for name in PRICES for zone in (*ZONES, AWAY_ZONE)]
        name, zone = places[number % len(places)]
        self.world.compute.set_capacity(a_pool_of(name, zone), left)

    @rule(number=_NUMBERS, price=st.sampled_from([0.1, 0.24, 0.6, 5.0]))
    def move_price(self, number: int, price: float) -> None:
        places = [(name, zone) for name in PRICES for zone in ZONES]
        self.world.market.move_spot_price(*places[number % len(places)], price)

    @rule(carried_out=st.booleans())
    def lose_an_answer(self, carried_out: bool) -> None:
        self.world.compute.lose_next_answer(is_carried_out=carried_out)

    # People.

    @rule(key=st.sampled_from(sorted(_EDITS)), number=_NUMBERS, back=st.booleans())
    def edit(self, key: str, number: int, back: bool) -> None:
        values = _EDITS[key]
        changes = {} if back else {key: values[number % len(values)]}
        with suppress(SpindownError):
            edit_policy(
                WORKLOAD,
                changes,
                clear=[key] if back else [],
                settings=self.world.settings,
                table=self.world.table,
            )

    @rule(budget=st.sampled_from([None, 0.05, 1.0, 100.0]))
    def move_budget(self, budget: float | None) -> None:
        deployed = replace(self.world.settings.deployment(), budget_per_month=budget)
        self.world.settings._deployment = deployed
        self.world.ports.cache.forget(DEPLOYMENT, "")

    # The control plane.

    @rule(after=st.sampled_from([0, 20, 60, 61, 300, 1500]))
    def tick(self, after: int) -> None:
        """Let a tick do what a plan made just before it says, until EC2 refuses something."""
        self.world.clock.advance(timedelta(seconds=after))
        planned = None
        with suppress(SpindownError):
            planned = plan_next_tick(WORKLOAD, self.world.ports)
        decision = self.world.tick()
        if planned is not None and decision.outcome is not Outcome.LOCKED:
            self._compare(planned, decision)
        self._judge(decision)

    def _compare(self, planned: PlannedTick, decision: Decision) -> None:
        is_refused = any(one.outcome != RequestOutcome.LAUNCHED for one in decision.requests)
        launches = self.world.view().launches.values()
        is_unanswered = any(one.state is LaunchState.INTENDED for one in launches)
        asked = {ActionKind.LAUNCH.value, ActionKind.REPLAY.value}
        left_out = asked if is_refused or is_unanswered else set()
        first, second = (
            [(one.kind, one.subject, one.reason.code) for one in each if one.kind not in left_out]
            for each in (planned.actions, decision.actions)
        )
        assert first == second

    @rule(count=st.integers(2, 8))
    def pass_minutes(self, count: int) -> None:
        for _ in range(count):
            self._beat()
            self._judge(self.world.tick(minutes(1)))

    @rule(at=st.integers(1, 25), fault=st.sampled_from(_FAULTS), after=st.booleans())
    def tick_with_a_fault(self, at: int, fault: type[SpindownError], after: bool) -> None:
        calls = [0]

        def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
            calls[0] += 1
            if calls[0] != at:
                return proceed()
            if after and fault is Unreachable:
                with suppress(PreconditionFailed):
                    proceed()
            raise fault("on purpose")

        self.world.interfere = interfere
        with suppress(SpindownError):
            self._judge(self.world.tick(minutes(1)))
        self.world.interfere = None

    @rule(at=st.integers(1, 30))
    def crash(self, at: int) -> None:
        """Let a tick die at a call; its lock is held until its lease is over."""
        calls = [0]

        def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
            calls[0] += 1
            if calls[0] == at:
                raise KeyboardInterrupt
            return proceed()

        self.world.interfere = interfere
        with suppress(KeyboardInterrupt, SpindownError):
            self.world.tick(minutes(1))
        self.world.interfere = None

    @rule(at=st.integers(1, 30), wait=st.sampled_from([0, 60, 200]), number=_NUMBERS)
    def meanwhile(self, at: int, wait: int, number: int) -> None:
        """Let another tick, or an event, come in the middle of one, perhaps past its lease."""
        calls = [0]

        def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
            calls[0] += 1
            if calls[0] == at:
                self.world.clock.advance(timedelta(seconds=wait))
                if number % 3:
                    self.world.tick()
                else:
                    self.hear(number, ("notice", "shutting-down", "terminated")[number // 3 % 3])
            return proceed()

        self.world.interfere = interfere
        with suppress(SpindownError):
            self._judge(self.world.tick(minutes(1)))
        self.world.interfere = None

    @rule(lag=st.sampled_from([0, 100, 250]))
    def lag(self, lag: int) -> None:
        """Let EC2 be slow in showing what it has launched."""
        self.world.compute.ec2.lag = timedelta(seconds=lag)

    # What always holds.

    def _judge(self, decision: Decision) -> None:
        view, policy = self.world.view(), _policy(self.world)
        workers = list(view.workers.values())
        launches = list(view.launches.values())
        bought = [a for a in decision.requests if a.outcome == "launched"]
        if not bought:
            return
        assert decision.outcome is Outcome.LAUNCHED
        account = Ledger(self.world.table, WORKLOAD).read_account()
        budget = self.world.settings.deployment().budget_per_month
        if budget is not None:
            spent = sum(month.dollars for month in account.budgets.values())
            charged = max(spent - self.spent, 0.0)
            assert account.budget_at(self.world.now).committed <= budget + charged + 1e-9
        most = policy.max_dollars_per_hour
        if most is not None:
            hourly = dollars_per_hour(workers) + unanswered_dollars(launches, self.world.now)
            assert hourly <= most * (1 + 1e-6)
        living = [w for w in workers if w.holds_place]
        intended = [x for x in launches if x.state is LaunchState.INTENDED]
        assert len(living) + sum(x.count for x in intended) <= policy.max_workers
        assert decision.visible or policy.warm_workers or view.leases

    @invariant()
    def every_cent_is_told_once(self) -> None:
        ledger = Ledger(self.world.table, WORKLOAD)
        view, account = ledger.read(), ledger.read_account()
        days = {**ledger.read_past_days(), **view.spend}
        spent = sum(day.dollars for day in days.values())
        assert sum(month.dollars for month in account.budgets.values()) == pytest.approx(spent)
        self.spent = spent
        set_aside = sum(x.reserved_usd for x in view.launches.values())
        committed = sum(month.committed for month in account.budgets.values())
        assert committed == pytest.approx(spent + set_aside, abs=1e-9)
        known = {**ledger.read_ended(), **view.workers}
        assert spent == pytest.approx(sum(w.charged_usd for w in known.values()), abs=1e-9)
        for worker in known.values():
            refunded = worker.refunded_usd > 0.0
            assert not refunded or _may_be_free(worker)
            least, most = _cost_between(worker)
            assert least <= worker.charged_usd + worker.refunded_usd <= most
        for month in account.budgets.values():
            assert month.committed >= -1e-9 or month.dollars < 0.0

    @invariant()
    def nobody_has_ended_and_lives(self) -> None:
        for worker in self.world.workers():
            assert (worker.ended_at is not None) == (worker.state is WorkerState.ENDED)

    def teardown(self) -> None:
        """Nothing more comes: all ends, and nothing is left set aside."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.compute._lost.clear()
        world.compute.ec2.lag = timedelta(0)
        edit_policy(
            WORKLOAD,
            {"max_workers": 0, "warm_workers": 0},
            clear=["regions"],
            settings=world.settings,
            table=world.table,
        )
        world.empty_the_queue()
        for lease in world.view().leases:
            world.remove(f"lease#{lease.instance_id}#{lease.slot}")
        # A launch without an answer is in sight for an hour; so long may a boot take, too, where
        # boots were slow, and a quarter of an hour more.
        for _ in range(90):
            world.empty_the_queue()
            for worker in world.workers(WorkerState.IDLE, WorkerState.BUSY, WorkerState.DRAINED):
                with suppress(KeyError):
                    world.compute.power_off(worker.instance_id)
            world.tick(minutes(1))
        assert world.workers() == []
        assert dict(world.view().launches) == {}
        running = [
            one
            for region in (REGION, AWAY)
            for one in world.compute.instances(region=region, tags={})
            if one.state != "terminated"
        ]
        assert running == []
        self.every_cent_is_told_once()
        paid = {bill.instance_id for bill in world.compute.bills()}
        assert paid == set(Ledger(world.table, WORKLOAD).read_ended())

    def _beat(self) -> None:
        """Let those that run show that they live, and keep the messages that are still theirs."""
        for worker in self.world.workers(WorkerState.IDLE, WorkerState.BUSY):
            if self._runs(worker):
                self.world.put(f"worker#{worker.instance_id}", heartbeat_at=self.world.now)
                for lease in self.world.view().leases_of(worker.instance_id):
                    with suppress(SpindownError):
                        self.world.queue.extend(lease.receipt_handle, minutes(5))
                        deadline = self.world.now + minutes(5)
                        self.world.put(f"lease#{worker.instance_id}#0", deadline=deadline)

    def _some(self, number: int, *states: WorkerState) -> list[Worker]:
        found = sorted(self.world.workers(*states), key=lambda worker: worker.instance_id)
        place = number % max(len(found), 1)
        return found[place:] + found[:place]

    def _runs(self, worker: Worker) -> bool:
        with suppress(SpindownError):
            view = self.world.compute.instance(region=worker.region, instance_id=worker.instance_id)
            return view.state == "running"
        return False


def _cost_between(worker: Worker) -> tuple[float, float]:
    """Return what a worker has cost by now at the prices that there are, at least and at most."""
    hours = ((worker.accrued_until or worker.launched_at) - worker.launched_at) / timedelta(hours=1)
    return 0.1 * hours - 1e-9, 5.1 * hours + 1e-9


def _may_be_free(worker: Worker) -> bool:
    """Tell whether EC2 may have taken it back within its first hour."""
    lived = (worker.ended_at or worker.launched_at) - worker.launched_at
    return worker.interruption_counted and worker.ended_at is not None and lived < FREE_FOR


def _policy(world: ControlWorld) -> Policy:
    deployed, edit = world.settings.workload(WORKLOAD)
    return effective_policy(deployed, edit, world.view().policy).policy


def test_no_ceiling_breaks_and_no_cent_is_lost_in_a_few_stories() -> None:
    run_state_machine_as_test(Story, settings=settings(max_examples=8, stateful_step_count=30))


@pytest.mark.proof
def test_no_ceiling_breaks_and_no_cent_is_lost_in_many_stories() -> None:
    run_state_machine_as_test(Story, settings=settings(max_examples=300, stateful_step_count=60))
