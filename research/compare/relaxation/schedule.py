"""A lower bound for whole traces: the linear relaxation of the schedule that ``exact`` solves.

Machines of every speed on sale, time in steps. Fractions of machines may be up and fractions of
jobs may start, so no schedule is dearer than its own fractions: whatever starts each job within
the promise costs at least the optimum of this program.

- *Up*: instances that are ready, mean over a step; each is paid at the cheapest price of its
  speed in that step. *Made ready*: by how much more are up than a step before; each costs one
  mean boot at the cheapest price of the ten steps before.
- *Jobs* of one step and nearly one size are counted together. One that starts within a step lies
  between one that starts at its beginning and one that starts at its end; whole steps of work are
  kept in that shape, rounded down, and what rounding has cut off may be done whenever some job of
  that step may run. So no work is lost, and no window is narrower than it is.
- *At least one*: a machine is up when a job comes, or made ready before it is late. Fractions
  alone would serve a lone job by a tenth of a machine.

Where everything must be over for longer than a boot before the next job comes, no machine is worth
keeping, so the trace is solved in parts. What EC2 reclaims within an hour is free, as in
``research.bound.price``; capacity is without end.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from research.bound import mean_boot
from research.compare.relaxation.program import Program, cheapest_hours
from spindown.simulator import Arrival, SimScenario

_HOUR = 3600.0
#: Jobs of one step whose work differs by less than this are counted together.
_ALIKE = 1.1
#: Steps before a machine is ready in which its boot may have been paid for.
_BOOTS_BACK = 10
#: Steps in a promise: half as long a step takes four times as long to solve.
_STEPS_IN_PROMISE = 10.0
#: More columns take minutes. So dense is only work at which L2 is within a hundredth of this.
_COLUMNS_AT_MOST = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """USD that no policy can do without if no start is later than promised."""

    dollars: float
    #: Of these, for boots; and how many boots, in fractions.
    boot_dollars: float
    boots: float


def relaxed(scenario: SimScenario, *, start_within: float) -> Relaxed | None:
    """Return the bound; None if work is too dense for it to be found within minutes.

    Args:
        scenario: arrivals, prices and boots; capacity and the controller play no part.
        start_within: seconds from a job's arrival to its start, at most; a job that has begun is
            worked on without a pause.
    """
    step = start_within / _STEPS_IN_PROMISE
    boot = mean_boot(scenario.boot)
    slowest = min(listing.speed for listing in scenario.listings)
    found = []
    for jobs in _parts(scenario.arrivals, start_within, slowest, boot + 2.0 * step):
        part = _Part(jobs, scenario, within=start_within, boot=boot, step=step)
        if part.columns > _COLUMNS_AT_MOST:
            return None
        found.append(part.solve())
    return Relaxed(
        dollars=math.fsum(part.dollars for part in found),
        boot_dollars=math.fsum(part.boot_dollars for part in found),
        boots=math.fsum(part.boots for part in found),
    )


def _parts(
    arrivals: Sequence[Arrival], within: float, slowest: float, gap: float
) -> Iterator[Sequence[Arrival]]:
    part: list[Arrival] = []
    over = -math.inf
    for each in sorted(arrivals, key=lambda each: each.at):
        if part and each.at - over > gap:
            yield part
            part = []
        part.append(each)
        over = max(over, each.at + within + each.work_seconds / slowest)
    if part:
        yield part


class _Part:
    """The program of one part of a trace."""

    def __init__(
        self,
        jobs: Sequence[Arrival],
        scenario: SimScenario,
        *,
        within: float,
        boot: float,
        step: float,
    ) -> None:
        listings = scenario.listings
        self._step = step
        self._first = jobs[0].at
        self._slowest = min(listing.speed for listing in listings)
        ends = (each.at + within + each.work_seconds / self._slowest for each in jobs)
        self._length = int((max(ends) - self._first) / step) + 5
        self._program = Program()
        #: Speed -> column of each step.
        self._up: dict[float, list[int]] = {}
        self._ready: dict[float, list[int]] = {}
        self._at_work: dict[float, list[int]] = {}
        #: Speed -> step -> terms of jobs that begin or end there, and of what rounding cut off.
        self._turns: dict[float, dict[int, list[tuple[int, float]]]] = {}
        self._rest: dict[float, dict[int, list[tuple[int, float]]]] = {}
        for speed in sorted({listing.speed for listing in listings}):
            self._open(speed, self._hours(scenario, speed), boot)
        self._add_jobs(jobs, within)
        for speed in self._up:
            self._add_machines(speed)

    @property
    def columns(self) -> int:
        """Return the size of the program."""
        return len(self._program.costs)

    def solve(self) -> Relaxed:
        """Return the optimum."""
        values = self._program.solve()
        costs = self._program.costs
        ready = [column for columns in self._ready.values() for column in columns]
        return Relaxed(
            dollars=float(np.dot(values, costs)),
            boot_dollars=math.fsum(values[column] * costs[column] for column in ready),
            boots=math.fsum(values[column] for column in ready),
        )

    def _hours(self, scenario: SimScenario, speed: float) -> Sequence[float]:
        instants = [self._first + number * self._step for number in range(self._length + 1)]
        return cheapest_hours(scenario.listings, speed, scenario.root_volume_gib, instants)

    def _open(self, speed: float, hours: Sequence[float], boot: float) -> None:
        steps = range(self._length)
        paid = [min(hours[step], hours[step + 1]) for step in steps]
        add = self._program.add_column
        self._up[speed] = [add(paid[step] * self._step / _HOUR) for step in steps]
        self._ready[speed] = [
            add(boot / _HOUR * min(paid[max(step - _BOOTS_BACK, 0) : step + 1])) for step in steps
        ]
        self._at_work[speed] = [add(0.0) for _ in steps]
        self._turns[speed] = defaultdict(list)
        self._rest[speed] = defaultdict(list)

    def _add_jobs(self, jobs: Sequence[Arrival], within: float) -> None:
        alike: dict[tuple[int, int, int], list[float]] = defaultdict(list)
        for each in jobs:
            comes = each.at - self._first
            size = math.floor(math.log(each.work_seconds / self._step, _ALIKE))
            window = int(comes // self._step), int((comes + within) // self._step)
            alike[(*window, size)].append(each.work_seconds)
        works: dict[tuple[int, int], list[Sequence[float]]] = defaultdict(list)
        for (comes_in, late_in, _), seconds in alike.items():
            works[comes_in, late_in].append(seconds)
        for (comes_in, late_in), groups in works.items():
            self._add_window(comes_in, late_in, groups)

    def _add_window(self, comes_in: int, late_in: int, groups: Sequence[Sequence[float]]) -> None:
        """Add all jobs that come in one step: each starts, and all their work is done."""
        work: list[tuple[int, float]] = []
        longest = 0.0
        for seconds in groups:
            longest = max(longest, *seconds)
            starts: list[tuple[int, float]] = []
            for speed in self._up:
                whole = int(min(seconds) / speed / self._step)
                columns = self._add_starts(speed, range(comes_in, late_in + 2), whole)
                starts += [(column, 1.0) for column in columns]
                work += [(column, speed * self._step * whole) for column in columns if whole]
            self._program.add_row(starts, least=len(seconds), most=len(seconds))
        last = min(late_in + 3 + int(longest / self._slowest / self._step), self._length)
        for speed in self._up:
            for step in range(comes_in, last):
                column = self._program.add_column(0.0)
                work.append((column, speed * self._step))
                self._rest[speed][step].append((column, -1.0))
        self._program.add_row(work, least=math.fsum(math.fsum(each) for each in groups))
        self._need_one(comes_in, late_in)

    def _add_starts(self, speed: float, steps: range, whole: int) -> Sequence[int]:
        """Add how many jobs of so many whole steps begin at the beginning of each step."""
        if not whole:
            return [self._program.add_column(0.0)]
        columns = []
        for step in steps:
            columns.append(column := self._program.add_column(0.0))
            self._turns[speed][step].append((column, -1.0))
            self._turns[speed][step + whole].append((column, 1.0))
        return columns

    def _need_one(self, comes_in: int, late_in: int) -> None:
        """Let a machine be up at the job's arrival or be made ready before it is late.

        Both are means over steps, so what is up at an instant within a step was up in the step
        before or made ready since; and a machine that is made ready within a step counts in
        this one and the next.
        """
        terms: list[tuple[int, float]] = []
        before = max(comes_in - 1, 0)
        for speed, ready in self._ready.items():
            if comes_in:
                terms.append((self._up[speed][before], 1.0))
            terms += [(column, 1.0) for column in ready[before : late_in + 2]]
        self._program.add_row(terms, least=1.0)

    def _add_machines(self, speed: float) -> None:
        up, ready, at_work = self._up[speed], self._ready[speed], self._at_work[speed]
        turns: Mapping[int, list[tuple[int, float]]] = self._turns[speed]
        for step in range(self._length):
            rest = self._rest[speed].get(step, [])
            self._program.add_row([(up[step], 1.0), (at_work[step], -1.0), *rest], least=0.0)
            change = [(at_work[step], 1.0), *turns.get(step, [])]
            more = [(ready[step], 1.0), (up[step], -1.0)]
            if step:
                change.append((at_work[step - 1], -1.0))
                more.append((up[step - 1], 1.0))
            self._program.add_row(change, least=0.0, most=0.0)
            self._program.add_row(more, least=0.0)
