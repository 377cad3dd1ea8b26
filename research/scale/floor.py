"""What a job costs at least: to who knows its need, and to who is told only its type.

No boots, no idle machines, no interruptions, each type of machine at the price of the day on which
its job is sent, always to be had. ``each`` knows what every single job needs. ``hour`` and ``type``
know exactly how the needs of a type's jobs are distributed, with and without the hour of the week,
and choose what costs least in expectation: a machine, and after each end for want of memory the
next one. Nobody who is told only the type, or type and hour, can do better, whatever was learned.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from research.scale.story import BestMachines, StoryJob, prices_of_day
from spindown.domain.offer import InstanceType
from spindown.domain.rightsizing.type_size import SYSTEM_GIB, hour_of_week
from spindown.simulator import Listing
from spindown.simulator.scenario import DAY, SimScenario

_GIB = 1024.0
#: Of jobs of a type, at most so many are looked at: the sums are over all pairs with machines.
_JOBS_AT_MOST = 1_000
#: In place of an hour: all of them.
_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """USD of all jobs that are sent on a day, by day."""

    each: tuple[float, ...]
    hour: tuple[float, ...]
    type: tuple[float, ...]
    #: Jobs that end for want of memory at least once, by ``hour``.
    killed: tuple[int, ...]
    #: Type -> the machines that ``hour`` tries on the first day, outside of its special hours.
    machines: Mapping[str, tuple[str, ...]]


def floor(jobs: Sequence[StoryJob], sold: Sequence[Listing], days: int) -> Floor:
    """Compute what jobs cost at least."""
    machines = {x.instance_type.name: x.instance_type for x in sold}
    groups: dict[tuple[str, int | None], list[StoryJob]] = defaultdict(list)
    for job in jobs:
        groups[job.kind.name, _special_hour(job)].append(job)
        groups[job.kind.name, _ALL].append(job)
    prices = [prices_of_day(sold, day) for day in range(days)]
    best = [BestMachines(sold, each) for each in prices]
    plans = [{of: best_plan(some, sold, each) for of, some in groups.items()} for each in prices]
    each, hour, type_ = ([0.0] * days for _ in range(3))
    killed = [0] * days
    for job in jobs:
        day, name = int(job.at // DAY), job.kind.name
        each[day] += best[day].of(job)[0]
        tried = _tried(job, plans[day][name, _special_hour(job)], machines)
        killed[day] += len(tried) > 1
        hour[day] += _cost(job, tried, prices[day])
        type_[day] += _cost(job, _tried(job, plans[day][name, _ALL], machines), prices[day])
    return Floor(
        each=tuple(each),
        hour=tuple(hour),
        type=tuple(type_),
        killed=tuple(killed),
        machines={name: plan.machines for (name, of), plan in plans[0].items() if of is None},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """The machines that are tried one after the other for all jobs of a kind."""

    machines: tuple[str, ...]
    #: Of all the jobs.
    dollars: float
    #: Jobs that end for want of memory at least once.
    killed: float


def best_plan(
    jobs: Sequence[StoryJob], sold: Sequence[Listing], prices: Mapping[str, float]
) -> MachinePlan:
    """Return the plan that costs least in expectation for jobs that nobody can tell apart.

    By dynamic programming over the memory that was tried last, from the most down: the jobs that
    are left need more than that, and the next machine has more.
    """
    step, some = max(len(jobs) // _JOBS_AT_MOST, 1), list(jobs)
    if step > 1:
        # The largest of all too: the last machine must have enough for each.
        some = [*jobs[::step], max(jobs, key=lambda job: job.need.memory_gib)]
    scale = len(jobs) / len(some)
    fitting = [x.instance_type for x in sold if _does(x.instance_type, some)]
    best: dict[float, MachinePlan] = {}
    levels = sorted({_room(machine) for machine in fitting})
    for level in reversed([0.0, *levels]):
        left = [job for job in some if job.need.memory_gib > level]
        if not left:
            best[level] = MachinePlan(machines=(), dollars=0.0, killed=0.0)
            continue
        options = []
        for machine in fitting:
            room = _room(machine)
            if room <= level or (not best[room].machines and _exceed(left, room)):
                continue
            price = prices[machine.name] / 3600.0
            spent = price * math.fsum(_seconds(job, machine, room) for job in left)
            options.append(
                MachinePlan(
                    machines=(machine.name, *best[room].machines),
                    dollars=spent + best[room].dollars,
                    killed=_exceed(left, room),
                )
            )
        none = MachinePlan(machines=(), dollars=math.inf, killed=0.0)
        best[level] = min(options, key=lambda plan: plan.dollars, default=none)
    found = best[0.0]
    return MachinePlan(
        machines=found.machines, dollars=found.dollars * scale, killed=found.killed * scale
    )


def _tried(
    job: StoryJob, plan: MachinePlan, machines: Mapping[str, InstanceType]
) -> Sequence[InstanceType]:
    """Return the machines on which a job is tried, the last of which has enough."""
    tried = []
    for name in plan.machines:
        tried.append(machines[name])
        if job.need.memory_gib <= _room(machines[name]):
            return tried
    raise ValueError(f"{plan.machines} do not do {job.need}")


def _cost(job: StoryJob, tried: Sequence[InstanceType], prices: Mapping[str, float]) -> float:
    seconds = ((machine, _seconds(job, machine, _room(machine))) for machine in tried)
    return math.fsum(prices[machine.name] * length / 3600.0 for machine, length in seconds)


def _seconds(job: StoryJob, machine: InstanceType, room: float) -> float:
    """Return how long an attempt takes, whether it ends well or not."""
    return job.takes(machine) * (1.0 if job.need.memory_gib <= room else job.need.peaks_at)


def _exceed(jobs: Iterable[StoryJob], room: float) -> float:
    return float(sum(job.need.memory_gib > room for job in jobs))


def _room(machine: InstanceType) -> float:
    return machine.memory_mib / _GIB - SYSTEM_GIB


def _does(machine: InstanceType, jobs: Sequence[StoryJob]) -> bool:
    """Tell whether a machine has all that jobs of a kind need but the memory."""
    return machine.is_without_gpu == (jobs[0].need.parallel is not None) and all(
        job.need.vram_gib <= machine.gpu_memory_mib / _GIB for job in jobs
    )


def _special_hour(job: StoryJob) -> int | None:
    """Return the hour of the week of a job whose type needs more then; None: a usual one."""
    start = SimScenario(name="", arrivals=(), listings=(), length=0.0).start
    hour = hour_of_week(start + timedelta(seconds=job.at))
    return hour if hour in job.kind.peak_hours else None
