"""How much of a machine jobs of a type get, learned from what those before them have used.

Memory and VRAM are the smallest size that nearly all jobs fit into, with room that shrinks as
evidence grows; an hour of the week that needs more, week by week, has a size of its own. Cores are
those at which an item has cost least. A size in force changes by one rung at a time, is tried
there, and goes back if failures or costs have risen.

What is learned comes from workers, which may lie: it moves sizes between the least and the most
that people have set, and no further.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import pairwise

from spindown.domain.bound import Amount, Tally
from spindown.domain.job_type import MEMORY_STEPS, VCPU_STEPS, VRAM_STEPS, Shape, Sized
from spindown.domain.policy import Needs
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode

#: An attempt counts half as much after this.
HALF_LIFE = timedelta(days=14)
#: Share of the jobs that may run out of memory.
RUN_OUT_AT_MOST = 0.02
#: Room above what one job has used, as a share; of n jobs it is ROOM / sqrt(n).
ROOM = 0.5
#: GiB of a machine's memory that the kernel and the worker take.
SYSTEM_GIB = 0.5
#: Jobs at a size, before the next change.
TRIAL_JOBS = 5.0
#: A size from which it went back is left alone for so long.
KEPT_FOR = timedelta(days=14)
#: Failures of a trial from which they count, and by how much their share has to rise.
_FAILURES_LEAST, _FAILURES_RISE = 1.5, 0.05
#: An item costs more at a size on trial, or with a number of cores, from this factor on: prices
#: vary by themselves. Besides, it has to be more than so many standard deviations.
_DEARER, _DEARER_BY_CORES, _SURE = 1.15, 1.05, 2.0
#: Mean cores as a share of those that there are: the job is held up by them, or would fit in them.
_BUSY, _FITS = 0.85, 0.9
#: An hour of the week needs more if it did in this many weeks, by this factor of the usual hour.
_WEEKS_LEAST, _MUCH_MORE = 2, 1.5
#: Weeks of an hour that are remembered.
_WEEKS_KEPT = 4
#: Steps of a peak between two powers of two: each is at most 9 % above the one before.
_STEPS_PER_DOUBLING = 8
_GIB_LEAST = 1.0 / 64.0
#: What has faded to less than this many jobs is forgotten.
_FORGOTTEN = 0.01
_HOURS_PER_DAY = 24
_SECONDS_PER_HOUR = 3600.0
#: Of the first whole week of 1970.
_MONDAY = date(1970, 1, 5).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAttempt:
    """What one attempt at a job of a type has used, as its worker says."""

    #: When its job was first routed.
    at: datetime
    #: Of its machine's queue.
    shape: Shape
    #: Of the whole machine.
    vcpus: float
    #: Mean cores in use, and the most GiB, by all slots of the machine; None: not seen.
    cores: float | None = None
    memory_gib: float | None = None
    #: Of one GPU.
    vram_gib: float | None = None
    seconds: float = 0.0
    dollars: float = 0.0
    items: float = 0.0
    #: The job is completed or has failed, so that its peak is the whole job's.
    is_whole: bool = True
    #: It failed, or ran out of memory.
    has_failed: bool = False
    ran_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """What attempts at one size came to; older ones count less."""

    jobs: Amount = 0.0
    failed: Amount = 0.0
    items: Amount = 0.0
    dollars: Amount = 0.0
    #: Of each attempt.
    dollars_squared: Amount = 0.0
    seconds: Amount = 0.0
    #: Cores in use times seconds.
    core_seconds: Amount = 0.0

    @property
    def doubt(self) -> float:
        """Return the relative variance of the mean cost: of n attempts their own by n."""
        if self.dollars <= 0.0 or self.jobs <= 0.0:
            return math.inf
        spread = self.dollars_squared * self.jobs / self.dollars**2 - 1.0
        return max(spread, 0.0) / self.jobs

    def exceeds(self, other: "SizeTrial", times: float, here: float, there: float) -> bool:
        """Tell whether what an item costs here is so many times as much, beyond chance.

        That is by two standard deviations of the ratio of both means: of jobs whose cost varies by
        half of the mean, five and five differ by 32 % in one.
        """
        if min(self.jobs, other.jobs) < TRIAL_JOBS or min(self.items, other.items) <= 0.0:
            return False
        ratio = here / there if there > 0.0 else math.inf
        return ratio > times and math.log(ratio) > _SURE * math.sqrt(self.doubt + other.doubt)

    @property
    def failing(self) -> float:
        """Return the share of the jobs that failed or ran out of memory."""
        return self.failed / self.jobs if self.jobs > 0.0 else 0.0

    @property
    def cost(self) -> float:
        """Return USD an item; infinity: none was done."""
        return self.dollars / self.items if self.items > 0.0 else math.inf

    @property
    def cores(self) -> float:
        """Return the cores in use, the mean over time."""
        return self.core_seconds / self.seconds if self.seconds > 0.0 else 0.0

    def with_one(self, one: SeenAttempt) -> "SizeTrial":
        """Return it with an attempt more; one that others go on from is no job of its own."""
        has_failed = one.has_failed or one.ran_out
        return SizeTrial(
            jobs=self.jobs + (one.is_whole or has_failed),
            failed=self.failed + has_failed,
            items=self.items + one.items,
            dollars=self.dollars + one.dollars,
            dollars_squared=self.dollars_squared + one.dollars**2,
            seconds=self.seconds + one.seconds,
            core_seconds=self.core_seconds + (one.cores or 0.0) * one.seconds,
        )

    def faded(self, share: float) -> "SizeTrial":
        """Return it as it counts later."""
        return SizeTrial(
            jobs=self.jobs * share,
            failed=self.failed * share,
            items=self.items * share,
            dollars=self.dollars * share,
            dollars_squared=self.dollars_squared * share,
            seconds=self.seconds * share,
            core_seconds=self.core_seconds * share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStep:
    """The size of one need that is in force for a type, and how it came to that."""

    #: On the need's scale; 0: the type states no such need, and none is learned.
    size: Tally = 0
    #: Since the last change.
    tried: SizeTrial = SizeTrial()
    #: At the size before; 0: it was never changed.
    before: Tally = 0
    earlier: SizeTrial = SizeTrial()
    #: Sizes below this one are not tried until then; None: all may be.
    kept_from: Tally = 0
    kept_until: datetime | None = None
    reason: Reason = NO_REASON

    def moved(self, size: int, reason: Reason) -> "SizeStep":
        """Return another size, which has still to show what it is worth."""
        return replace(
            self, size=size, before=self.size, earlier=self.tried, tried=SizeTrial(), reason=reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakHistory:
    """The most GiB that jobs have used, by the hour of the week at which they were routed.

    Hours and the rest are numbers as text, as JSON has keys.
    """

    #: Hour -> step of the peak -> jobs; older ones count less.
    hours: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    #: Hour -> week -> the most of that week.
    weeks: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeHistory:
    """All that is remembered of a type."""

    #: Its needs as they stood: once people change them, its sizes begin anew.
    of: Needs
    at: datetime
    memory: PeakHistory = PeakHistory()
    vram: PeakHistory = PeakHistory()
    #: vCPUs of a machine -> what attempts on it came to.
    scaling: Mapping[str, SizeTrial] = field(default_factory=dict)
    memory_step: SizeStep = SizeStep()
    vram_step: SizeStep = SizeStep()
    cores_step: SizeStep = SizeStep()


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """Between which sizes one need of a type may move, and what they cost."""

    #: As ``Needs`` calls it.
    need: str
    steps: Sequence[int]
    least: int
    most: int
    #: Size -> USD per hour of the cheapest machine that has it; empty: not known.
    prices: Mapping[int, float] = field(default_factory=dict)

    @property
    def rungs(self) -> Sequence[int]:
        """Return the sizes to choose from: of those that cost the same the largest."""
        within = [s for s in self.steps if self.least <= s <= self.most]
        if not self.prices:
            return within
        sold = [s for s in within if s in self.prices]
        return [
            size
            for size, larger in zip(sold, [*sold[1:], None], strict=True)
            if larger is None or self.prices[larger] > self.prices[size]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """The size that what was used speaks for."""

    size: int
    #: The least step, whatever it costs, that no more than 2 % exceed.
    fits: int
    jobs: float
    #: GiB that 99 of 100 jobs have kept to, without room.
    used: float
    #: Times that which was used.
    room: float
    #: That a job runs out of it.
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSize:
    """What was decided for the jobs of a type."""

    #: Its needs as they stood.
    of: Needs
    #: In place of these; None: as they stand.
    needs: Needs = field(default_factory=Needs)
    #: What evidence speaks for, whatever is in force yet; None: too little is known.
    advised: Needs = field(default_factory=Needs)
    #: Hour of the week, from Monday 00:00 UTC, as text -> GiB of memory, where it needs more.
    hours: Mapping[str, Tally] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()


def sized_at(size: TypeSize, at: datetime) -> Sized:
    """Return what a job of a type gets that is routed at an instant."""
    hour = hour_of_week(at)
    special = size.hours.get(str(hour), 0)
    usual = size.of.memory_gib if size.needs.memory_gib is None else size.needs.memory_gib
    if special <= (usual or 0.0):
        return Sized(of=size.of, needs=size.needs, reasons=size.reasons)
    about: About = {"need": "memory_gib", "size": special, "before": usual or 0, "hour": hour}
    reason = Reason(ReasonCode.SIZE_OF_HOUR, about)
    needs = replace(size.needs, memory_gib=float(special))
    return Sized(of=size.of, needs=needs, reasons=(reason, *size.reasons))


def all_sized(size: TypeSize) -> Iterator[Sized]:
    """Yield what jobs of a type get, whatever the hour."""
    yield Sized(of=size.of, needs=size.needs)
    for special in sorted(set(size.hours.values())):
        yield Sized(of=size.of, needs=replace(size.needs, memory_gib=float(special)))


def hour_of_week(at: datetime) -> int:
    """Return the hours since Monday 00:00 UTC, 0 to 167."""
    return at.weekday() * _HOURS_PER_DAY + at.hour


def room(jobs: float) -> float:
    """Return by what a peak is multiplied: 1.5 after one job, 1.1 after 25, 1.05 after 100."""
    return 1.0 + ROOM / math.sqrt(max(jobs, 1.0))


def enough(
    peaks: Iterable[tuple[float, float]], sizes: SizeRange, *, taken: float = 0.0
) -> Enough | None:
    """Return the smallest size that is worth no step more; None: nothing was seen or is sold.

    A job that runs out at one size pays that and goes on at the next. So the next is worth its
    dollars from the start if the chance of running out exceeds what it would save:
    ``chance x next > next - this``. The chance of n jobs of which k exceed a size is
    ``(k + 1/2) / (n + 1)`` (Jeffreys' prior). Besides, no more than 2 % may exceed it.

    Worked: 100 jobs of at most 6 GiB need 6 x 1.05 + 0.5 = 6.8: at 8 GiB for $0.10, before 16 GiB
    for $0.20, the chance is 0.005 x 0.20 = 0.001, less than the 0.10 that are saved.

    Args:
        peaks: GiB and the number of jobs that have used so much, at the most.
        sizes: between which to choose.
        taken: GiB of a machine that no job gets.
    """
    seen = [(gib, jobs) for gib, jobs in peaks if jobs > 0.0]
    jobs, rungs = math.fsum(n for _, n in seen), sizes.rungs
    if jobs < 1.0 - _FORGOTTEN or not rungs:
        return None
    spare = room(jobs)

    def chance(size: int) -> tuple[float, float]:
        over = math.fsum(n for gib, n in seen if gib * spare + taken > size)
        return over / jobs, (over + 0.5) / (jobs + 1.0)

    def is_worth(size: int, larger: int) -> bool:
        share, likely = chance(size)
        if share > RUN_OUT_AT_MOST:
            return True
        price, next_price = sizes.prices.get(size, 0.0), sizes.prices.get(larger, 1.0)
        return likely * next_price > next_price - price

    found = next((s for s, larger in pairwise(rungs) if not is_worth(s, larger)), rungs[-1])
    used = quantile_of(seen, 0.99)
    fits = next((s for s in sizes.steps if chance(s)[0] <= RUN_OUT_AT_MOST), sizes.steps[-1])
    return Enough(size=found, fits=fits, jobs=jobs, used=used, room=spare, chance=chance(found)[1])


def quantile_of(peaks: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least peak that so great a share of the jobs keeps to; 0: there are none."""
    total, so_far = math.fsum(n for _, n in peaks), 0.0
    for gib, jobs in sorted(peaks):
        so_far += jobs
        if so_far >= share * total:
            return gib
    return 0.0


def usual_peaks(history: PeakHistory) -> Sequence[tuple[float, float]]:
    """Return the peaks of all hours that need no more than others."""
    special, found = busy_hours(history), dict[str, float]()
    for hour, peaks in history.hours.items():
        if hour not in special:
            for bucket, jobs in peaks.items():
                found[bucket] = found.get(bucket, 0.0) + jobs
    return [(_gib_of(bucket), jobs) for bucket, jobs in found.items()]


def busy_hours(history: PeakHistory) -> Mapping[str, float]:
    """Return the hours that need more than others, week by week -> the most GiB of one job.

    Such an hour has in each of its last two weeks, at least, had a job of 1.5 times the most of the
    median hour.
    """
    mosts = sorted(max(weeks.values()) for weeks in history.weeks.values() if weeks)
    if not mosts:
        return {}
    usual = mosts[(len(mosts) - 1) // 2]
    found = {}
    for hour, weeks in history.weeks.items():
        last = [weeks[week] for week in sorted(weeks, key=int)[-_WEEKS_LEAST:]]
        if len(last) == _WEEKS_LEAST and min(last) > _MUCH_MORE * usual:
            found[hour] = max(weeks.values())
    return found


def begin(of: Needs, at: datetime) -> TypeHistory:
    """Return what is known of a type before its first job: what people ask for."""
    return TypeHistory(
        of=of,
        at=at,
        memory_step=SizeStep(size=_step_of(of.memory_gib, MEMORY_STEPS)),
        vram_step=SizeStep(size=_step_of(of.gpu_memory_gib, VRAM_STEPS)),
        cores_step=SizeStep(size=_step_of(of.vcpus, VCPU_STEPS)),
    )


def learn(history: TypeHistory, seen: Iterable[SeenAttempt], now: datetime) -> TypeHistory:
    """Return a history with further attempts; what was known counts less by now.

    An attempt whose job was routed later than now is left out: its week would be the newest for
    ever, and no honest one would take its place.
    """
    share = 0.5 ** (max(now - history.at, timedelta(0)) / HALF_LIFE)
    memory, vram = _Peaks(history.memory, share), _Peaks(history.vram, share)
    scaling = {int(n): trial.faded(share) for n, trial in history.scaling.items()}
    steps = [history.memory_step, history.vram_step, history.cores_step]
    steps = [replace(s, tried=s.tried.faded(share), earlier=s.earlier.faded(share)) for s in steps]
    for one in seen:
        if one.at > now:
            continue
        if one.is_whole:
            memory.add(one.at, one.memory_gib)
            vram.add(one.at, one.vram_gib)
        sizes = (one.shape.memory_gib, one.shape.gpu_memory_gib, one.shape.vcpus)
        steps = [
            replace(s, tried=s.tried.with_one(one))
            # What runs out of memory says nothing of cores.
            if s.size and s.size == size and not (one.ran_out and s is steps[2])
            else s
            for s, size in zip(steps, sizes, strict=True)
        ]
        if not one.ran_out:
            vcpus = max(step for step in VCPU_STEPS if step <= max(one.vcpus, 0.0))
            scaling[vcpus] = scaling.get(vcpus, SizeTrial()).with_one(one)
    return TypeHistory(
        of=history.of,
        at=now,
        memory=memory.history(),
        vram=vram.history(),
        scaling={str(n): t for n, t in sorted(scaling.items()) if t.jobs >= _FORGOTTEN},
        memory_step=steps[0],
        vram_step=steps[1],
        cores_step=steps[2],
    )


def decide_size(
    step: SizeStep, want: Enough | None, sizes: SizeRange, now: datetime, *, may_try: bool = True
) -> SizeStep:
    """Return the size of memory or VRAM that is next: the same, or one rung up or down.

    Args:
        step: the size in force.
        want: what evidence speaks for; None: nothing.
        sizes: between which to choose.
        now: the present.
        may_try: nothing else is on trial, so that what comes of it is told apart.
    """
    back = _back(step, sizes, now, step.tried.cost, step.earlier.cost)
    if back is not None:
        return back
    if want is None or not step.size:
        return step
    about: About = {
        "need": sizes.need,
        "jobs": want.jobs,
        "used": want.used,
        "room": want.room,
        "chance": want.chance,
    }
    is_dearer = sizes.prices.get(want.size) != sizes.prices.get(step.size) or not sizes.prices
    if want.size > step.size and (is_dearer or want.fits > step.size):
        larger = min(rung for rung in sizes.rungs if rung > step.size)
        told = {**about, "size": larger, "before": step.size}
        return step.moved(larger, Reason(ReasonCode.SIZE_RAISED, told))
    smaller = _next_below(step, sizes, now)
    if smaller is None or smaller < want.size or step.tried.jobs < TRIAL_JOBS or not may_try:
        return step
    told = {**about, "size": smaller, "before": step.size}
    return step.moved(smaller, Reason(ReasonCode.SIZE_LOWERED, told))


def decide_cores(
    step: SizeStep,
    scaling: Mapping[int, SizeTrial],
    sizes: SizeRange,
    now: datetime,
    *,
    may_try: bool = True,
) -> SizeStep:
    """Return the number of vCPUs that is next: more are bought only while an item gets cheaper.

    A number that was never tried is tried once: one fewer if the cores in use fit into it, one more
    if all are in use. What it cost there then decides. The arguments are those of ``decide_size``;
    ``scaling`` has what attempts came to by the vCPUs of their machines.
    """
    here = _cost_of_cores(step.size, step.tried, sizes)
    back = _back(step, sizes, now, here, _cost_of_cores(step.before, step.earlier, sizes))
    if back is not None or not step.size or not may_try:
        return back or step
    costs = {n: trial for n, trial in scaling.items() if trial.jobs >= TRIAL_JOBS}
    smaller = _next_below(step, sizes, now)
    larger = min((rung for rung in sizes.rungs if rung > step.size), default=None)
    trial = costs.get(step.size)

    if trial is not None:
        for code, other in ((ReasonCode.CORES_FEWER, smaller), (ReasonCode.CORES_MORE, larger)):
            there = None if other is None else costs.get(other)
            if other is None or there is None:
                continue
            cost = _cost_of_cores(step.size, trial, sizes)
            less = _cost_of_cores(other, there, sizes)
            paid = {"cost": less, "cost_before": cost}
            if trial.exceeds(there, _DEARER_BY_CORES, cost, less):
                told: About = {"need": sizes.need, "size": other, "before": step.size, **paid}
                return step.moved(other, Reason(code, told))
    used = step.tried.cores
    if step.tried.jobs < TRIAL_JOBS or used <= 0.0:
        return step
    about: About = {"need": sizes.need, "before": step.size, "used": used, "jobs": step.tried.jobs}
    if smaller is not None and smaller not in costs and used <= _FITS * smaller:
        return step.moved(smaller, Reason(ReasonCode.CORES_FEWER_TRIED, {**about, "size": smaller}))
    if larger is not None and larger not in costs and used >= _BUSY * step.size:
        return step.moved(larger, Reason(ReasonCode.CORES_MORE_TRIED, {**about, "size": larger}))
    return step


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRanges:
    """Between which sizes the needs of a type may move."""

    memory: SizeRange
    vram: SizeRange
    vcpus: SizeRange


def decide(
    history: TypeHistory, ranges: SizeRanges, now: datetime, *, applies: bool
) -> tuple[TypeHistory, TypeSize]:
    """Return what jobs of a type get from now on, and the history that remembers it.

    Args:
        history: with all that was seen.
        ranges: between which sizes to choose.
        now: the present.
        applies: the sizes are in force; else they are only advised, and none changes.
    """
    memory = enough(usual_peaks(history.memory), ranges.memory, taken=SYSTEM_GIB)
    vram = enough(usual_peaks(history.vram), ranges.vram)
    scaling = {int(vcpus): trial for vcpus, trial in history.scaling.items()}
    steps = (history.memory_step, history.vram_step, history.cores_step)
    if applies:
        steps = _next_steps(steps, (memory, vram), scaling, ranges, now)
    else:
        asked = begin(history.of, now)
        fresh = (asked.memory_step, asked.vram_step, asked.cores_step)
        # What was in force before is so no more.
        pairs = zip(steps, fresh, strict=True)
        steps = tuple(s if s.size == f.size else f for s, f in pairs)  # type: ignore[assignment]
    history = replace(history, memory_step=steps[0], vram_step=steps[1], cores_step=steps[2])
    return history, TypeSize(
        of=history.of,
        needs=_changed(history),
        advised=Needs(
            memory_gib=None if memory is None or not steps[0].size else float(memory.size),
            gpu_memory_gib=None if vram is None or not steps[1].size else float(vram.size),
            vcpus=_best_cores(steps[2], scaling, ranges.vcpus),
        ),
        hours=_sizes_of_hours(history.memory, steps[0].size, ranges.memory),
        reasons=tuple(step.reason for step in steps if step.reason),
    )


def _next_steps(
    steps: tuple[SizeStep, SizeStep, SizeStep],
    wants: tuple[Enough | None, Enough | None],
    scaling: Mapping[int, SizeTrial],
    ranges: SizeRanges,
    now: datetime,
) -> tuple[SizeStep, SizeStep, SizeStep]:
    """Return the sizes that are next: one need at a time is on trial."""
    on_trial = any(step.before and step.tried.jobs < TRIAL_JOBS for step in steps)
    found = list(steps)
    for number, before in enumerate(steps):
        may_try = not on_trial
        if number < len(wants):
            sizes = (ranges.memory, ranges.vram)[number]
            after = decide_size(before, wants[number], sizes, now, may_try=may_try)
        else:
            after = decide_cores(before, scaling, ranges.vcpus, now, may_try=may_try)
        if after != before:
            on_trial = True
            # What comes of it from now on says nothing of the others' last changes.
            found = [replace(step, before=0, earlier=SizeTrial()) for step in found]
            found[number] = after
    return found[0], found[1], found[2]


def _changed(history: TypeHistory) -> Needs:
    """Return the sizes that are other than those of the type."""
    asked = begin(history.of, history.at)

    def size(now: SizeStep, then: SizeStep) -> int | None:
        return None if now.size == then.size else now.size

    memory = size(history.memory_step, asked.memory_step)
    vram = size(history.vram_step, asked.vram_step)
    return Needs(
        vcpus=size(history.cores_step, asked.cores_step),
        memory_gib=None if memory is None else float(memory),
        gpu_memory_gib=None if vram is None else float(vram),
    )


def _best_cores(step: SizeStep, scaling: Mapping[int, SizeTrial], sizes: SizeRange) -> int | None:
    """Return the number at which an item has cost least; of one number, what the cores fit in."""
    costs = {
        n: t.seconds / t.items * sizes.prices.get(n, 1.0)
        for n, t in scaling.items()
        if t.jobs >= TRIAL_JOBS and t.items > 0.0 and n in sizes.rungs
    }
    if not step.size or not costs:
        return None
    best = min(costs, key=lambda n: (costs[n], n))
    if len(costs) > 1:
        return best
    used = scaling[best].cores
    return min((n for n in sizes.rungs if used <= _FITS * n), default=best) if used else best


def _sizes_of_hours(history: PeakHistory, usual: int, sizes: SizeRange) -> Mapping[str, int]:
    """Return the memory of the hours of the week that need more than the usual size."""
    if not usual or not sizes.rungs:
        return {}
    found = {}
    for hour, most in busy_hours(history).items():
        need = most * room(math.fsum(history.hours.get(hour, {}).values())) + SYSTEM_GIB
        size = next((rung for rung in sizes.rungs if rung >= need), sizes.rungs[-1])
        if size > usual:
            found[hour] = size
    return found


def _cost_of_cores(vcpus: int, trial: SizeTrial, sizes: SizeRange) -> float:
    """Return USD an item by the price of cores alone: machines may have had more memory."""
    price = sizes.prices.get(vcpus)
    if price is None or trial.items <= 0.0:
        return trial.cost
    return trial.seconds / trial.items * price / _SECONDS_PER_HOUR


def _back(
    step: SizeStep, sizes: SizeRange, now: datetime, cost: float, cost_before: float
) -> SizeStep | None:
    """Return what a size is changed to that may not be, or that was a mistake; None: it stays.

    Args:
        step: the size in force.
        sizes: between which to choose.
        now: the present.
        cost: USD an item at this size.
        cost_before: at the one before.
    """
    if step.size and not sizes.least <= step.size <= sizes.most:
        # People have moved the bounds.
        return SizeStep(size=min(max(step.size, sizes.least), sizes.most))
    tried, earlier = step.tried, step.earlier
    if step.before <= step.size or tried.jobs < 1.0 - _FORGOTTEN:
        return None
    until, size = now + KEPT_FOR, min(step.before, sizes.most)
    about: About = {
        "need": sizes.need,
        "size": size,
        "before": step.size,
        "jobs": tried.jobs,
        "until": until.isoformat(),
    }
    if tried.failed >= _FAILURES_LEAST and tried.failing > earlier.failing + _FAILURES_RISE:
        told = {**about, "share": tried.failing, "share_before": earlier.failing}
        reason = Reason(ReasonCode.SIZE_BACK_FAILURES, told)
    elif tried.exceeds(earlier, _DEARER, cost, cost_before):
        told = {**about, "cost": cost, "cost_before": cost_before}
        reason = Reason(ReasonCode.SIZE_BACK_COST, told)
    else:
        return None
    return SizeStep(size=size, kept_from=size, kept_until=until, tried=earlier, reason=reason)


def _next_below(step: SizeStep, sizes: SizeRange, now: datetime) -> int | None:
    """Return the next rung down that may be tried."""
    kept = step.kept_from if step.kept_until is not None and now < step.kept_until else 0
    return max((rung for rung in sizes.rungs if kept <= rung < step.size), default=None)


class _Peaks:
    """Peaks while attempts are added."""

    def __init__(self, before: PeakHistory, share: float) -> None:
        self._hours = {
            hour: {b: jobs * share for b, jobs in peaks.items()}
            for hour, peaks in before.hours.items()
        }
        self._weeks = {hour: dict(weeks) for hour, weeks in before.weeks.items()}

    def add(self, at: datetime, gib: float | None) -> None:
        if gib is None:
            return
        hour, week = str(hour_of_week(at)), str((at.toordinal() - _MONDAY) // 7)
        peaks = self._hours.setdefault(hour, {})
        bucket = _bucket_of(gib)
        peaks[bucket] = peaks.get(bucket, 0.0) + 1.0
        weeks = self._weeks.setdefault(hour, {})
        weeks[week] = max(weeks.get(week, 0.0), _gib_of(bucket))

    def history(self) -> PeakHistory:
        hours = {
            hour: {b: jobs for b, jobs in peaks.items() if jobs >= _FORGOTTEN}
            for hour, peaks in self._hours.items()
        }
        return PeakHistory(
            hours={hour: peaks for hour, peaks in hours.items() if peaks},
            weeks={
                hour: {week: weeks[week] for week in sorted(weeks, key=int)[-_WEEKS_KEPT:]}
                for hour, weeks in self._weeks.items()
            },
        )


def _bucket_of(gib: float) -> str:
    """Return the number of the least step on a scale of powers that is no less."""
    kept = min(max(gib, _GIB_LEAST), float(MEMORY_STEPS[-1]))
    return str(math.ceil(_STEPS_PER_DOUBLING * math.log2(kept) - 1e-9))


def _gib_of(bucket: str) -> float:
    exponent = int(bucket) / _STEPS_PER_DOUBLING
    return math.exp2(exponent)


def _step_of(value: float | None, steps: Sequence[int]) -> int:
    """Return the least step that is no less; 0: nothing is asked for."""
    return next((s for s in steps if s >= value), steps[-1]) if value else 0
