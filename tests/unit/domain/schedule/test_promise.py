"""Whatever the market does, a job that follows the rule is in time."""

from datetime import timedelta
from itertools import chain, repeat

from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.offer import CapacityType
from spindown.domain.schedule import Unfinished, judge
from spindown.domain.spot_or_on_demand import PurchaseMode
from tests.builders import NOW, ON_DEMAND, SPOT, minutes
from tests.unit.domain.schedule.unfinished import HOUR, RESERVE


class _World:
    """A job under the rule, on a market that gives and takes spot as it is told."""

    def __init__(self, work: timedelta, within: timedelta) -> None:
        self.now, self.work, self.due = NOW, work, NOW + within
        self.on: CapacityType | None = None
        #: Boots under way: what comes, when.
        self.coming: tuple[CapacityType, timedelta] | None = None
        self.moves = self.losses = 0

    def step(self, *, spot: bool, taken: bool, boot: timedelta, length: timedelta) -> None:
        """Let a tick pass; what is taken goes with ``taken``, at most one boot takes ``boot``."""
        if self.on is SPOT and (taken or not spot):
            self.on, self.losses = None, self.losses + 1
        if self.coming and self.coming[0] is SPOT and not spot:
            self.coming = None
        verdict = judge(self._job(), RESERVE, self.now)
        wanted = self._wanted(verdict.mode) if self.on is None else verdict.moves_to
        if wanted is self.on or (wanted is SPOT and not spot):
            wanted = None
        if self.coming and wanted is ON_DEMAND and self.coming[0] is SPOT:
            self.coming = None
        if wanted is not None and self.coming is None:
            self.coming = wanted, self.now + boot  # type: ignore[assignment]
        self._pass(length)

    def _job(self) -> Unfinished:
        return Unfinished(job_id="job", due=self.due, work=self.work, on=self.on)

    def _wanted(self, mode: PurchaseMode) -> CapacityType:
        return ON_DEMAND if mode is PurchaseMode.ON_DEMAND else SPOT

    def _pass(self, length: timedelta) -> None:
        if self.on is not None:
            self.work = max(self.work - length, timedelta(0))
        self.now += length
        if self.coming and self.coming[1] <= self.now:  # type: ignore[operator]
            self.moves += self.on is not None
            self.on, self.coming = self.coming[0], None


@given(
    work=st.floats(0.5, 6.0),
    slack=st.floats(0.5, 4.0),
    market=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=30, max_size=400),
    boot=st.integers(1, 8),
)
def test_no_market_makes_it_late_while_on_demand_is_to_be_had(
    work: float, slack: float, market: list[tuple[bool, bool]], boot: int
) -> None:
    took = timedelta(hours=work)
    world = _World(took, took + slack * HOUR)
    for spot, taken in chain(market, repeat((False, False))):
        if not world.work or world.now > world.due:
            break
        world.step(spot=spot, taken=taken, boot=minutes(boot), length=minutes(1))

    assert world.now <= world.due


@given(
    work=st.floats(0.5, 6.0),
    slack=st.floats(0.5, 4.0),
    boot=st.integers(1, 8),
    begins=st.integers(0, 300),
)
def test_spot_that_stays_is_moved_to_once_and_never_left(
    work: float, slack: float, boot: int, begins: int
) -> None:
    took = timedelta(hours=work)
    world = _World(took, took + slack * HOUR)
    for minute in range(900):
        if not world.work:
            break
        world.step(spot=minute >= begins, taken=False, boot=minutes(boot), length=minutes(1))

    assert world.moves <= 1
    assert world.losses == 0
