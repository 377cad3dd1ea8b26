"""A lower bound for whole traces in which machines and boots are whole numbers.

What is bounded is what the simulator charges, by the conventions of bound L2: a schedule knows
every arrival and price beforehand, starts each job within the promise, never pauses it, and boots
take their mean. It does not know when EC2 will take a machine: a spot instance costs what one of
its age is charged in the mean at least (``age``), or its whole price (``is_refunded=False``: then
it bounds the charge before refunds). Every job also occupies its machine for its last commit, which
no worker of ours avoids. Capacity has no end.

**Parts.** At a gap in which every job must be over, and none has come, for longer than a launch
costs at the dearest of the gap's prices against its cheapest, ending a machine and booting another
is never dearer than keeping it. So the optimum is the sum of the optima of its parts.

**The program of a part.** Time in steps; for each speed on sale, and for short lives and long ones,
at the cheapest price of each step:

- *here*: machines up at the beginning of a step, a whole number; *ready*: machines that become
  ready within it, a whole number, each one boot at the cheapest price of the gap or of the steps in
  which it may have been paid; *up*: their mean over the step, which is paid. Of those that are here
  at the next step, who has not become ready since was up throughout:
  ``here[s+1] - ready[s] <= up[s] <= here[s] + ready[s]``.
- *Jobs* as in ``relaxation.schedule``: a start within a step lies between one at its beginning and
  one at its end, so the means over steps are exact for whole steps of work; what rounding has cut
  off is work that may be done whenever some job of that window may run. A job that runs on both
  sides of an instant needs a machine that is here then.
- *At least one*: a machine is here when a job comes, or becomes ready before it is late.

Each real schedule gives values that keep all rows and cost no more than it does; so whatever HiGHS
proves to be below all values is below all schedules. Long parts are bounded block by block
(``program``).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from research.compare.integral.market import Kind, Market, parts
from research.compare.integral.program import Blocks
from spindown.simulator import Arrival, SimScenario

_HOUR = 3600.0
#: Jobs of one window whose work differs by less than this are counted together.
_ALIKE = 1.1
#: Seconds before a machine is ready in which its boot may have been paid.
_BOOT_AT_MOST = 600.0
#: More columns take minutes.
_COLUMNS_AT_MOST = 250_000
#: So few take seconds with steps of half the length.
_FEW_COLUMNS = 2_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Integral:
    """USD that no schedule can do without if no start is later than promised."""

    dollars: float
    #: The same with fractions of machines.
    relaxed: float
    parts: int


def integral(
    scenario: SimScenario,
    *,
    start_within: float,
    is_refunded: bool = True,
    steps: float = 10.0,
    block: int = 180,
    seconds: float = 1.5,
) -> Integral | None:
    """Return the bound; None if work is too dense for it to be found within minutes.

    Args:
        scenario: arrivals, prices and boots; capacity and the controller play no part.
        start_within: seconds from a job's arrival to its start, at most; a job that has begun is
            worked on without a pause.
        is_refunded: whether hours that EC2 will not charge may be sought out.
        steps: of time in a promise, twice as many where a part is small: more are tighter, and
            slower to solve.
        block: steps in a block.
        seconds: for the whole numbers of each block.
    """
    market = Market(scenario, is_refunded=is_refunded)
    dollars, relaxed, count = 0.0, 0.0, 0
    for jobs in parts(scenario, market, start_within):
        part = _Part(jobs, scenario, market, start_within, start_within / steps, block)
        if part.program.columns > _COLUMNS_AT_MOST:
            return None
        found, loose = part.program.solve(seconds)
        if part.program.columns <= _FEW_COLUMNS:
            fine = _Part(
                jobs, scenario, market, start_within, start_within / steps / 2.0, 2 * block
            )
            found = max(found, fine.program.solve(seconds)[0])
        dollars, relaxed, count = dollars + found, relaxed + loose, count + 1
    return Integral(dollars=dollars, relaxed=relaxed, parts=count)


class _Part:
    """The program of one part of a trace."""

    def __init__(
        self,
        jobs: Sequence[Arrival],
        scenario: SimScenario,
        market: Market,
        within: float,
        step: float,
        block: int,
    ) -> None:
        self._market = market
        self._commit = scenario.delays.commit
        self._step = step
        self._first = jobs[0].at
        self._most = float(len(jobs))
        self._within = within
        longest = max(
            each.at + within + self._takes(each.work_seconds, market.slowest) for each in jobs
        )
        self._length = int((longest - self._first) / step) + 5
        self.program = Blocks(block)
        #: Speed -> kind -> columns of each step: here, ready, up.
        self._machines: dict[float, list[tuple[list[int], list[int], list[int]]]] = {}
        #: Speed -> column of each step.
        self._at_work: dict[float, list[int]] = {}
        #: Speed -> step -> terms of jobs that begin there, that end, and of what rounding cut off.
        self._begin: dict[float, dict[int, list[tuple[int, float]]]] = {}
        self._end: dict[float, dict[int, list[tuple[int, float]]]] = {}
        self._rest: dict[float, dict[int, list[tuple[int, float]]]] = {}
        for speed in market.hours:
            self._open(speed)
        self._add_jobs(jobs)
        for speed in market.hours:
            self._add_machines(speed)

    def _takes(self, work: float, speed: float) -> float:
        return work / speed + self._commit

    def _open(self, speed: float) -> None:
        self._machines[speed] = [self._open_kind(kind) for kind in self._market.kinds[speed]]
        steps, add = range(self._length), self.program.add_column
        self._at_work[speed] = [add(s, most=self._most) for s in steps]
        self._begin[speed] = defaultdict(list)
        self._end[speed] = defaultdict(list)
        self._rest[speed] = defaultdict(list)

    def _open_kind(self, kind: Kind) -> tuple[list[int], list[int], list[int]]:
        steps, add, most = range(self._length), self.program.add_column, self._most
        hours = self._market.by_step(kind, self._first, self._step, self._length)
        boot = self._market.boot / _HOUR
        here = [add(s, most=most if s else 0.0, whole=True) for s in steps]
        ready = []
        for s in steps:
            ends = self._first + (s + 1) * self._step
            hour = self._market.least(kind, ends - self._step - _BOOT_AT_MOST, ends)
            ready.append(add(s, most=most, cost=boot * hour + kind.surcharge, whole=True))
        up = [add(s, most=most, cost=hours[s] * self._step / _HOUR) for s in steps]
        return here, ready, up

    def _add_jobs(self, jobs: Sequence[Arrival]) -> None:
        alike: dict[tuple[int, int], dict[int, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for each in jobs:
            comes = each.at - self._first
            size = math.floor(math.log(max(each.work_seconds, 1e-3), _ALIKE))
            window = int(comes // self._step), int((comes + self._within) // self._step)
            alike[window][size].append(each.work_seconds)
        for (comes_in, late_in), groups in alike.items():
            self._add_window(comes_in, late_in, list(groups.values()))

    def _add_window(self, comes_in: int, late_in: int, groups: Sequence[Sequence[float]]) -> None:
        """Add all jobs that come in one step: each starts, and all their work is done."""
        program, step = self.program, self._step
        count = float(sum(map(len, groups)))
        started: dict[float, list[tuple[int, float]]] = {speed: [] for speed in self._machines}
        #: In seconds on the reference GPU.
        work: list[tuple[int, float]] = []
        for seconds in groups:
            starts: list[tuple[int, float]] = []
            for speed in self._machines:
                takes = self._takes(min(seconds), speed)
                whole = int(takes / step)
                for column in self._add_starts(speed, comes_in, late_in, whole, len(seconds)):
                    starts.append((column, 1.0))
                    started[speed].append((column, whole * step - takes))
                    work.append((column, speed * (whole * step - self._commit)))
            program.add_row(starts, least=len(seconds), most=len(seconds))
        longest = self._takes(max(map(max, groups)), self._market.slowest)
        last = min(late_in + 3 + int(longest / step), self._length)
        for speed, least in started.items():
            rest: list[tuple[int, float]] = []
            for at in range(comes_in, last):
                column = program.add_column(at, most=count)
                rest.append((column, step))
                work.append((column, speed * step))
                self._rest[speed][at].append((column, -1.0))
            program.add_row([*rest, *least], least=0.0)
        program.add_row(work, least=math.fsum(map(math.fsum, groups)))
        self._need_one(comes_in, late_in)

    def _add_starts(
        self, speed: float, comes_in: int, late_in: int, whole: int, count: int
    ) -> Sequence[int]:
        """Add how many jobs of so many whole steps begin at the beginning of each step."""
        if not whole:
            return [self.program.add_column(comes_in, most=count)]
        columns = []
        for step in range(comes_in, late_in + 2):
            columns.append(column := self.program.add_column(step, most=count))
            self._begin[speed][step].append((column, -1.0))
            self._end[speed][step + whole].append((column, 1.0))
        return columns

    def _need_one(self, comes_in: int, late_in: int) -> None:
        terms: list[tuple[int, float]] = []
        for here, ready, _ in (each for kinds in self._machines.values() for each in kinds):
            terms.append((here[comes_in], 1.0))
            terms += [(column, 1.0) for column in ready[comes_in : late_in + 1]]
        self.program.add_row(terms, least=1.0)

    def _add_machines(self, speed: float) -> None:
        kinds, at_work, add = self._machines[speed], self._at_work[speed], self.program.add_row
        for step in range(self._length):
            begin, end = self._begin[speed].get(step, []), self._end[speed].get(step, [])
            rest = self._rest[speed].get(step, [])
            change = [(at_work[step], 1.0), *begin, *end]
            if step:
                change.append((at_work[step - 1], -1.0))
            add(change, least=0.0, most=0.0)
            every_up = [(up[step], 1.0) for _, _, up in kinds]
            add([*every_up, (at_work[step], -1.0), *rest], least=0.0)
            # Who works in this step and did not begin with it works on both sides of its beginning.
            every_here = [(here[step], 1.0) for here, _, _ in kinds]
            begun = [(column, 1.0) for column, _ in begin]
            add([*every_here, (at_work[step], -1.0), *begun], least=0.0)
            for here, ready, up in kinds:
                add([(here[step], 1.0), (ready[step], 1.0), (up[step], -1.0)], least=0.0)
                if step + 1 < self._length:
                    later = here[step + 1]
                    add([(here[step], 1.0), (ready[step], 1.0), (later, -1.0)], least=0.0)
                    add([(up[step], 1.0), (ready[step], 1.0), (later, -1.0)], least=0.0)
