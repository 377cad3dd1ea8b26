"""One simulated month: the shipped control plane and workers, in virtual time.

``simulate(scenario, policy, seed)`` runs it to its end; a ``Run`` goes step by step.
"""

import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from spindown.contract.decision import Decision, Outcome
from spindown.contract.event import ALARM, NUDGE, TICK, InstanceEvent
from spindown.contract.job.manifest import STATES
from spindown.contract.usage import measured_prefix
from spindown.control.instance_event import react
from spindown.control.market import refresh, types_on_sale, types_within_reach
from spindown.control.policy_edit import current_policy
from spindown.control.rightsizing import learn_sizes
from spindown.control.spend import sum_spend
from spindown.control.tick import run_tick
from spindown.domain.policy import JobNeeds, Policy
from spindown.ec2sim import Agenda, Planned, Turn
from spindown.job.route import route
from spindown.ledger import Ledger
from spindown.memory.interception import Interceptor
from spindown.port import Cache, Outgoing
from spindown.simulator.fault import SimAlarm, Spans
from spindown.simulator.record import SimRecorder, sum_up
from spindown.simulator.result import Sample, SimResult
from spindown.simulator.scenario import Arrival, SimScenario
from spindown.simulator.worker import ITEM_SECONDS, KEEPS_STATE, NEED, USES_STATE
from spindown.simulator.world import WORKLOAD, World

#: The functions' schedules (``infra.control.trigger``).
_TICK = timedelta(minutes=1)
_REFRESH = timedelta(hours=1)
#: A tick while nothing waits and nothing runs decides nothing: it comes this seldom then.
QUIET = timedelta(minutes=15)
#: How often the bucket is swept; results live for one to two such spans after their job's end.
_SWEEP = timedelta(days=1)


class Run:
    """A simulation under way."""

    def __init__(
        self,
        scenario: SimScenario,
        policy: Policy,
        seed: int,
        *,
        quiet: timedelta = QUIET,
        interceptor: Interceptor | None = None,
    ) -> None:
        """Begin at the scenario's start."""
        self.scenario = scenario
        self._quiet = quiet
        self.seed = seed
        self._policy = policy
        self._may_end_at = scenario.start + timedelta(seconds=scenario.length)
        self._ends_at = self._may_end_at + timedelta(seconds=scenario.overtime)
        self.agenda = Agenda(scenario.start)
        self.record = SimRecorder(self.agenda)
        self.world = World(
            scenario,
            policy,
            seed=seed,
            record=self.record,
            tell=self._tell,
            route=self._route,
            interceptor=interceptor,
        )
        #: What the last tick decided.
        self.decision: Decision | None = None
        self._left = len(scenario.arrivals)
        self._calls = 0
        self._sweepable: list[str] = []
        self._faults = scenario.faults
        self._luck = Random(f"{seed}/faults")
        self._alarm = self._make_alarm()
        for number, arrival in enumerate(scenario.arrivals):
            self.agenda.plan_at(
                arrival.at,
                Turn.ARRIVAL,
                lambda number=number, arrival=arrival: self._arrive(number, arrival),  # type: ignore[misc]
            )
        self._tick_at: datetime
        self._tick_planned: Planned
        self._plan_tick(scenario.start)
        self._refresh()
        self._sweep()

    @property
    def is_over(self) -> bool:
        """Tell whether all work is done and nothing runs, or time is up."""
        now = self.agenda.now
        if now < self._may_end_at:
            return False
        if now >= self._ends_at:
            return True
        if self._left or not self.world.backlog.is_empty:
            return False
        # What is kept warm never ends by itself.
        return self.world.compute.running == 0 or self._policy.warm_workers > 0

    def step(self) -> None:
        """Let one event happen, and whoever waits for a message get what has become visible."""
        self.agenda.step()
        self.world.serve()

    def run(self) -> SimResult:
        """Go on to the end; return what came of it."""
        while not self.is_over:
            self.step()
        return self.result()

    def result(self) -> SimResult:
        """Return what has come of it so far."""
        ledger = Ledger(self.world.table, WORKLOAD)
        days = {**ledger.read_past_days(), **ledger.read().spend}
        return sum_up(
            scenario=self.scenario,
            seed=self.seed,
            record=self.record,
            bills=self.world.compute.bills(),
            tallies={i: worker.spent() for i, worker in self.world.workers.items()},
            accounted_dollars=sum_spend(days.values()).dollars,
            dead_letters=self.world.dead_letters.backlog().visible,
        )

    def _arrive(self, number: int, arrival: Arrival) -> None:
        job_id = f"job-{number:07d}"
        params: dict[str, Any] = {ITEM_SECONDS: arrival.item_seconds}
        if arrival.keeps_state:
            params[KEEPS_STATE] = True
            if not arrival.uses_state:
                params[USES_STATE] = False
        if arrival.need is not None:
            params[NEED] = asdict(arrival.need)
        body = {"job_id": job_id, "items": list(range(arrival.items)), "params": params}
        if arrival.job_type:
            body["type"] = arrival.job_type
        if arrival.requirements is not None:
            body["requirements"] = _asked(arrival.requirements)
        message = Outgoing(body=json.dumps(body))
        self.world.queue.send([message])
        if self._luck.random() < self._faults.doubled:
            late = self._luck.random() * self._faults.doubled_within
            self.agenda.plan_in(late, Turn.ARRIVAL, lambda: self.world.queue.send([message]))
        self._left -= 1
        self.record.arrived(job_id)
        if self.scenario.nudged:
            wait = self.scenario.delays.event
            self.agenda.plan_in(wait, Turn.EVENT, self._nudge)
        if self._alarm is not None:
            self._alarm.hear()
        self._wake()

    def _make_alarm(self) -> SimAlarm | None:
        if self._faults.alarm is None:
            return None
        return SimAlarm(
            self._faults.alarm,
            self.agenda,
            self._luck,
            visible=lambda: self.world.queue.backlog().visible,
            wake=lambda: self._nudge(ALARM),
        )

    def _tell(self, event: InstanceEvent) -> None:
        is_lost = self._luck.random() < self._faults.events_lost
        if is_lost:
            self.record.note("event-lost", event.instance_id)
        elif not self._is_down:
            self._calls += 1
            react(event, self.world.control, holder=f"call-{self._calls}")

    def _route(self) -> None:
        """Run the intake, which wakes the scaler if it has routed anything."""
        if self._is_down:
            return
        world = self.world
        settings, policy = current_policy(WORKLOAD, world.control)
        now = world.control.clock.now()
        sold = types_on_sale(settings, world.control, now)
        reach = types_within_reach(sold, settings, policy, world.control, now)
        # By one thread, so that the same seed gives the same result.
        done = route(
            settings,
            policy,
            world.work,
            world.control,
            sold=sold,
            within_reach=reach,
            threads=1,
        )
        self.record.note("routed", str(done.routed))
        if done.routed:
            self.agenda.plan_in(self.scenario.delays.event, Turn.EVENT, self._nudge)

    def _call_scaler(self, source: str) -> Decision | None:
        if self._is_down:
            return None
        self._calls += 1
        return run_tick(WORKLOAD, self.world.control, holder=f"call-{self._calls}", source=source)

    def _nudge(self, source: str = NUDGE) -> None:
        self._call_scaler(source)

    @property
    def _is_down(self) -> bool:
        return _is_within(self.agenda.seconds, self.scenario.control_down)

    @property
    def _is_tick_lost(self) -> bool:
        """Tell whether neither schedule ticks in this minute."""
        at, spare = self.agenda.seconds, self._faults.spare_tick
        is_spare = spare is not None and at % spare < _TICK.total_seconds()
        return _is_within(at, self._faults.ticks_lost) and not is_spare

    def _tick(self) -> None:
        decision = None if self._is_tick_lost else self._call_scaler(TICK)
        is_quiet = False
        if decision is not None:
            self.decision = decision
            self.record.note("tick", _summary(decision))
            self.record.samples.append(_sample(self.agenda.seconds, decision))
            is_quiet = decision.outcome is Outcome.IDLE
        self._plan_tick(self.agenda.now + (self._quiet if is_quiet else _TICK))

    def _plan_tick(self, at: datetime) -> None:
        self._tick_planned = self.agenda.plan(at, Turn.TICK, self._tick)
        self._tick_at = at

    def _wake(self) -> None:
        """Bring the next tick forward to its minute, if quiet had put it off."""
        minutes = -((self.scenario.start - self.agenda.now) // _TICK)
        due = self.scenario.start + minutes * _TICK
        if due < self._tick_at:
            self._tick_planned.call_off()
            self._plan_tick(due)

    def _refresh(self) -> None:
        refresh(self.world.control)
        if self.world.has_types:
            # Another function than the tick's: neither remembers what the other has read.
            learn_sizes(WORKLOAD, replace(self.world.control, cache=Cache()))
        self.agenda.plan(self.agenda.now + _REFRESH, Turn.EVENT, self._refresh)

    def _sweep(self) -> None:
        """Drop what was done a day ago from the bucket, so that months fit into memory."""
        for job_id in self._sweepable:
            self.world.objects.expire(f"jobs/{job_id}/")
            self.world.objects.expire(f"{STATES}{job_id}/")
        self.world.objects.expire("decisions/")
        self.world.objects.expire(measured_prefix(WORKLOAD, self.agenda.now.date() - 2 * _SWEEP))
        self._sweepable = self.record.take_closed()
        self.agenda.plan(self.agenda.now + _SWEEP, Turn.EVENT, self._sweep)


def simulate(scenario: SimScenario, policy: Policy, seed: int) -> SimResult:
    """Run a scenario under a policy to its end. The same seed gives the same result."""
    return Run(scenario, policy, seed).run()


def _asked(needs: JobNeeds) -> dict[str, object]:
    """Return needs as a message states them."""
    needs_row = {name: value for name, value in asdict(needs).items() if value is not None}
    if needs.architectures is not None:
        needs_row["architectures"] = sorted(needs.architectures)
    return needs_row


def _is_within(seconds: float, spans: Spans) -> bool:
    return any(since <= seconds < until for since, until in spans)


def _sample(seconds: float, decision: Decision) -> Sample:
    workers = decision.workers
    return Sample(
        seconds=seconds,
        visible=decision.visible,
        in_flight=decision.in_flight,
        booting=workers.get("booting", 0),
        idle=workers.get("idle", 0),
        busy=workers.get("busy", 0),
    )


def _summary(decision: Decision) -> str:
    """Return a decision as the digest has it: in codes, since words are nobody's business."""
    summary = decision.summary
    codes = (summary.sizing.code, summary.why.code, summary.ended_early.code)
    return " ".join([decision.outcome, *codes, *summary.launched, *summary.adopted])
