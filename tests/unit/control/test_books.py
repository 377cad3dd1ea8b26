"""Whatever comes between: days, month and pools add up to what the workers' rows account for.

Ticks and events, which may fail at any call, lose an answer, or have others act in the middle of
them: another event, a worker, a tick that finds the lock taken, or one that takes it over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spindown.contract.event import StateChange
from spindown.contract.row import LOCK_LEASE, worker_sort_key
from spindown.control.instance_event import react
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.notice_time import FREE_FOR
from spindown.error import SpindownError, Unreachable, WriteConflict
from spindown.ledger import Ledger
from spindown.memory import PortCall
from tests.builders import SPOT, minutes
from tests.control import REGION, WORKLOAD, ControlWorld, with_policy
from tests.failure import refuse

HOUR = timedelta(hours=1)
#: What happens in a step; of what happens in the middle of it, the first five are faults.
ACTS = ("tick", "end", "late", "reclaim", "vanish", "work", "damage")
MEANWHILE = (
    *("nothing", "before", "after", "clash", "stall"),
    *("end", "late", "reclaim", "work", "overtake"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act some minutes after the last, and what comes between at which of its calls."""

    after: int
    act: str
    meanwhile: str
    call: int
    #: Which worker it is about.
    which: int


STEP = st.builds(
    Step,
    after=st.sampled_from([0, 1, 1, 1, 2, 7, 30, 12 * 60]),
    act=st.sampled_from([*("tick",) * 4, *ACTS]),
    meanwhile=st.sampled_from(MEANWHILE),
    call=st.integers(1, 14),
    which=st.integers(0, 2),
)


@settings(max_examples=60)
@example(
    [
        Step(after=0, act="tick", meanwhile="nothing", call=1, which=0),
        Step(after=0, act="end", meanwhile="nothing", call=1, which=0),
        Step(after=0, act="tick", meanwhile="nothing", call=1, which=0),
        Step(after=0, act="damage", meanwhile="nothing", call=1, which=2),
        Step(after=30, act="tick", meanwhile="nothing", call=1, which=0),
    ]
)
@given(st.lists(STEP, min_size=2, max_size=14))
def test_the_books_hold_after_every_step(steps: Sequence[Step]) -> None:
    story = _Story(with_policy(max_workers=3))
    for step in steps:
        story.go(step)
    story.repair()
    story.world.tick(minutes(4))
    story.check()


class _Story:
    """A world of three workers at the most, and the one whose row is damaged."""

    def __init__(self, world: ControlWorld) -> None:
        self.world = world
        self.damaged: Worker | None = None
        world.send(1000)
        world.tick()
        world.clock.advance(minutes(2))
        self.work()

    def go(self, step: Step) -> None:
        self.world.clock.advance(minutes(step.after))
        self.world.interfere = self._meddling(step)
        self.do(step.act, step.which)
        self.world.interfere = None
        if self.damaged is None:
            self.check()

    def do(self, act: str, which: int) -> None:
        if act == "tick":
            self.tick()
        elif act == "overtake":
            self.world.clock.advance(LOCK_LEASE + timedelta(seconds=1))
            self.tick()
        elif act == "work":
            self.work()
        elif act == "damage" and self.damaged is not None:
            self.repair()
        elif worker := self._pick(which):
            if act == "damage":
                self.damaged = worker
                self.world.put(worker_sort_key(worker.instance_id), launched_at="some day")
            else:
                self.end(worker, act)

    def tick(self) -> None:
        try:
            self.world.tick()
        except SpindownError:
            return

    def work(self) -> None:
        for worker in self.world.workers(WorkerState.BOOTING):
            self.world.check_in(worker.instance_id)
        self.world.beat()
        for worker in self.world.workers(WorkerState.IDLE):
            self.world.change(worker.instance_id, state=WorkerState.BUSY, idle_since=None)

    def end(self, worker: Worker, how: str) -> None:
        if how == "reclaim" and worker.capacity_type is SPOT:
            self.world.compute.reclaim(worker.instance_id, notice=timedelta(0))
        else:
            self.world.compute.power_off(worker.instance_id)
        if how == "vanish":
            return
        at = self.world.now - (timedelta(seconds=45) if how == "late" else timedelta(0))
        event = StateChange(
            instance_id=worker.instance_id,
            region=REGION,
            at=max(at, worker.launched_at),
            state="terminated",
        )
        try:
            react(event, self.world.ports, holder=f"event at {self.world.now}")
        except SpindownError:
            return

    def repair(self) -> None:
        if self.damaged is not None and self.world.row(worker_sort_key(self.damaged.instance_id)):
            sort = worker_sort_key(self.damaged.instance_id)
            self.world.put(sort, launched_at=self.damaged.launched_at)
        self.damaged = None

    def check(self) -> None:
        ledger, world = Ledger(self.world.table, WORKLOAD), self.world.view()
        workers = [*ledger.read_ended().values(), *world.workers.values()]
        days, months = world.spend.values(), ledger.read_account().budgets.values()
        pools = [rate for sort, rate in world.rates.items() if sort.startswith("rate#pool#")]
        hours = sum(_charged_hours(w) for w in workers)
        prices = ((w, w.extra_price if _is_free(w) else w.price_per_hour) for w in workers)
        dollars = sum(_charged_hours(worker) * price for worker, price in prices)
        reserved = sum(launch.reserved_usd for launch in world.launches.values())
        found = {
            "paid hours": sum(d.boot_seconds + d.busy_seconds + d.idle_seconds for d in days)
            / 3600,
            "hours of pools": sum(rate.hours for rate in pools),
            "days": sum(day.dollars for day in days),
            "months": sum(month.dollars for month in months),
            "set aside": sum(month.committed for month in months),
        }
        assert found == {
            "paid hours": pytest.approx(hours, abs=1e-6),
            "hours of pools": pytest.approx(hours, abs=1e-6),
            "days": pytest.approx(dollars, abs=1e-6),
            "months": pytest.approx(dollars, abs=1e-6),
            "set aside": pytest.approx(dollars + reserved, abs=1e-6),
        }

    def _pick(self, which: int) -> Worker | None:
        """Return one of those that EC2 still knows."""
        known = {view.instance_id for view in self.world.compute.instances(region=REGION, tags={})}
        live = [w for w in self.world.workers() if w.ended_at is None and w.instance_id in known]
        return live[which % len(live)] if live else None

    def _meddling(self, step: Step) -> Callable[[PortCall, Callable[[], Any]], Any]:
        seen = 0

        def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
            nonlocal seen
            seen += 1
            if seen != step.call or step.meanwhile == "nothing":
                return proceed()
            self.world.interfere = None
            if step.meanwhile == "before":
                refuse(Unreachable("no answer"))()
            if step.meanwhile == "clash" and call.method in {"write", "transact"}:
                refuse(WriteConflict("another transaction is under way"))()
            if step.meanwhile == "stall":
                self.world.clock.advance(minutes(12))
                return proceed()
            if step.meanwhile == "after":
                proceed()
                refuse(Unreachable("the answer is lost"))()
            self.do(step.meanwhile, step.which)
            return proceed()

        return interfere


def _charged_hours(worker: Worker) -> float:
    return ((worker.accrued_until or worker.launched_at) - worker.launched_at) / HOUR


def _is_free(worker: Worker) -> bool:
    is_reclaimed = worker.ended_at is not None and worker.interruption_counted
    return is_reclaimed and (worker.ended_at or worker.launched_at) - worker.launched_at < FREE_FOR
