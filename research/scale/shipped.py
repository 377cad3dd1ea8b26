"""The shipped code on the story: routed, run, measured and sized each hour, in virtual time."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from research.scale.story import policy, scenario
from spindown.contract.usage import UsageEnd
from spindown.domain.policy import Rightsize
from spindown.simulator import Run, Sample
from spindown.simulator.scenario import DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one way came to."""

    #: Of each day; what ends after the last one belongs to it.
    dollars_by_day: tuple[float, ...]
    #: Attempts that ran out of memory, by the day of their end.
    killed_by_day: tuple[int, ...]
    jobs_by_day: tuple[int, ...]
    jobs: int
    undone: int
    launches: int
    wait_p50_min: float
    wait_p95_min: float
    cpu_seconds: float
    #: Type -> USD of the time that its jobs held machines.
    held_dollars: Mapping[str, float]
    #: Cause -> share of the bill.
    bill: Mapping[str, float]

    @property
    def dollars(self) -> float:
        """Return USD in all."""
        return math.fsum(self.dollars_by_day)


#: Name -> how sizes are learned, and whether messages say what jobs need in truth.
WAYS = {
    "ours": (Rightsize.APPLY, False),
    "ours, told each need": (Rightsize.OFF, True),
}


def play(
    name: str, seed: int, days: int, data: Path, *, note: Callable[[Played], None] | None = None
) -> Played:
    """Play one of ``WAYS``; ``note`` hears after each day what has come of it so far."""
    rightsize, told = WAYS[name]
    began, day = time.process_time(), 1
    run = Run(scenario(seed, days, data, told=told), policy(rightsize), seed)
    while not run.is_over:
        run.step()
        if note is not None and run.agenda.seconds >= day * DAY:
            note(_sum_up(run, day, time.process_time() - began))
            day += 1
    return _sum_up(run, days, time.process_time() - began)


def _sum_up(run: Run, days: int, cpu_seconds: float) -> Played:
    result = run.result()
    held: dict[str, float] = defaultdict(float)
    killed = [0] * days
    for each in run.record.attempts:
        held[each.type] += each.dollars
        killed[_day(each.at, days)] += each.end is UsageEnd.OUTGROWN
    return Played(
        dollars_by_day=_by_day(result.samples, result.dollars, days),
        killed_by_day=tuple(killed),
        jobs_by_day=_counts([x.at for x in run.scenario.arrivals], days),
        jobs=result.jobs,
        undone=result.jobs - result.jobs_done,
        launches=result.launches,
        wait_p50_min=result.wait.p50 / 60.0,
        wait_p95_min=result.wait.p95 / 60.0,
        cpu_seconds=cpu_seconds,
        held_dollars=dict(sorted(held.items())),
        bill={cause: part / result.dollars for cause, part in result.bill.items()},
    )


def _by_day(samples: Sequence[Sample], dollars: float, days: int) -> tuple[float, ...]:
    marks = [0.0] * days
    for sample in samples:
        marks[_day(sample.seconds, days)] = sample.dollars
    marks[-1] = dollars
    return tuple(now - before for now, before in zip(marks, [0.0, *marks], strict=False))


def _counts(times: Sequence[float], days: int) -> tuple[int, ...]:
    counts = Counter(int(at // DAY) for at in times)
    return tuple(counts[day] for day in range(days))


def _day(at: float, days: int) -> int:
    return min(int(at // DAY), days - 1)
