"""How much of a machine jobs of a type get, learned from what those before them have used.

For a workload without types nothing is learned: ``workload_size`` advises on what it requires.

Memory and VRAM are the smallest size that nearly all jobs fit into, with room that shrinks as
evidence grows; an hour of the week that needs more, week by week, has a size of its own. Cores are
those at which an item has cost least. A size changes to the next larger or smaller one, is on trial
there, and a size that was lowered goes back if failures or costs rise. Where too many jobs run out
of memory it grows, whatever was seen of their peaks, also where people have stated none. A job that
has run out of memory asks for more by ``out_of_memory``. The sizes are those of
``shape.SCALES``.

What is learned comes from workers, which may lie: it moves sizes between the least and the most
that people have set, and no further.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any

from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.shape import (
    SCALES,
    Shape,
    Sized,
    dispatch_of_type,
    pool_slots,
    size_up,
)
from spindown.domain.value_range import AMOUNT_MOST, Amount, Tally

MEMORY, VRAM, VCPUS = "memory_gib", "gpu_memory_gib", "vcpus"
#: The needs whose size is learned, by the names of ``JobNeeds``, in the order in which they are
#: tried.
LEARNED = (MEMORY, VRAM, VCPUS)
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
#: Standard deviations by which fewer jobs must need more, before a size gets smaller: nine times in
#: ten it is then no chance. As many as may, by chance once more and once fewer, would move it to
#: and fro, and run out each time.
_LOWER_IF_SURE = 1.28
#: Standard deviations by which too many jobs must have run out of memory, before a size grows by
#: that alone: it is asked each hour, and five of five do.
_OUT_IF_SURE = 2.0
#: After a size went back, smaller ones are not tried for so long.
KEPT_FOR = timedelta(days=14)
#: Failures of a trial from which they count, and by how much their share has to rise, for a size to
#: go back or to get no smaller.
_FAILURES_LEAST, _FAILURES_RISE = 1.5, 0.05
#: An item costs more at a size on trial, or with a number of cores, from this factor on: prices
#: vary by themselves. Besides, it has to be more than so many standard deviations.
_DEARER, _DEARER_BY_CORES, _SURE = 1.15, 1.05, 3.0
#: From this share of the cores in use on, the mean over time, more cores may be faster.
_BUSY = 0.85
#: Up to this share of fewer cores, those are enough.
_FITS = 0.9
#: An hour of the week needs more if it did in this many weeks, by this factor of the usual one.
_WEEKS_LEAST, _MUCH_MORE = 2, 1.5
#: Steps of a peak between two powers of two: each is at most 4.5 % above the one before. Machines
#: have powers of two as well, so a whole step just below one counts as too large for it.
_STEPS_PER_DOUBLING = 16
_GIB_LEAST = 1.0 / 64.0
#: Of an hour of the week the highest steps are kept apart, three doublings; lower peaks count as
#: the lowest of these. All that there are would be 1 MB a type, which a lying worker can fill.
_STEPS_KEPT = 3 * _STEPS_PER_DOUBLING
#: Evidence that has faded to less than this many jobs is forgotten.
_FORGOTTEN = 0.01
_HOURS_PER_DAY = 24
_SECONDS_PER_HOUR = 3600.0
#: The Monday of the first whole week of 1970.
_MONDAY = date(1970, 1, 5).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAttempt:
    """What one attempt at a job of a type has used, as its worker says."""

    #: When its job was first routed.
    at: datetime
    #: The shape of its machine's queue.
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
    #: Whether its job has completed or failed with it. An attempt that another goes on from is not
    #: counted as a job, and its peak does not count.
    ends_job: bool = True
    #: It failed; or it ran out of memory, or of that of a GPU.
    has_failed: bool = False
    ran_out: bool = False
    ran_out_of_vram: bool = False
    #: The needs that its message has stated itself. If there are any, it teaches nothing.
    stated: frozenset[str] = frozenset()

    def tells_of(self, need: str) -> bool:
        """Tell whether it counts where a need is sized: what ran out of another says nothing."""
        if self.ran_out:
            return need == MEMORY
        return need == VRAM or not self.ran_out_of_vram


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """What attempts at one size came to; older ones count less."""

    jobs: Amount = 0.0
    #: The same, of which older ones count as much: a weekly job's would never become five.
    count: Amount = 0.0
    failed: Amount = 0.0
    #: Of these: ran out of memory.
    ran_out: Amount = 0.0
    items: Amount = 0.0
    dollars: Amount = 0.0
    #: The sum of the squares of each attempt's dollars.
    dollars_squared: Amount = 0.0
    seconds: Amount = 0.0
    #: Cores in use times seconds.
    core_seconds: Amount = 0.0

    @property
    def cost_spread(self) -> float:
        """Return the relative variance of what one attempt costs."""
        # The square of what is very little is 0.
        squared = self.dollars * self.dollars
        if squared <= 0.0 or self.jobs <= 0.0:
            return math.inf
        return max(self.dollars_squared * self.jobs / squared - 1.0, 0.0)

    def exceeds(self, other: "SizeTrial", times: float, here: float, there: float) -> bool:
        """Tell whether an item costs more than ``times`` as much here, and not by chance.

        Chance is three standard deviations of the ratio of both means, since it is asked each
        hour. The jobs are of one kind, so they vary alike at both sizes, and few tell little of how
        much: of jobs whose cost varies by half of the mean, the means of five and five differ by
        32 % at one standard deviation.
        """
        if min(self.jobs, other.jobs) < TRIAL_JOBS or min(self.items, other.items) <= 0.0:
            return False
        ratio = here / there if there > 0.0 else math.inf
        jobs = self.jobs + other.jobs
        spread = (self.cost_spread * self.jobs + other.cost_spread * other.jobs) / jobs
        variance = spread * (1.0 / self.jobs + 1.0 / other.jobs)
        return ratio > times and math.log(ratio) > _SURE * math.sqrt(variance)

    @property
    def failing(self) -> float:
        """Return the share of the jobs that failed or ran out of memory."""
        return self.failed / self.jobs if self.jobs > 0.0 else 0.0

    @property
    def broken(self) -> float:
        """Return how many failed for another reason than want of memory."""
        return self.failed - self.ran_out

    @property
    def breaking(self) -> float:
        """Return the share of the jobs that did."""
        return self.broken / self.jobs if self.jobs > 0.0 else 0.0

    @property
    def has_shown_to_be_enough(self) -> bool:
        """Tell whether so many jobs had this size, and so few failed, that it is large enough.

        Of fewer jobs than this one failure alone would be too great a share.
        """
        return self.jobs * RUN_OUT_AT_MOST >= 1.0 and self.failing <= RUN_OUT_AT_MOST

    @property
    def runs_out(self) -> bool:
        """Tell whether more attempts ran out of memory than may, and not by chance."""
        surely = self.ran_out - _OUT_IF_SURE * math.sqrt(self.ran_out)
        return surely > RUN_OUT_AT_MOST * self.jobs

    @property
    def cost(self) -> float:
        """Return USD an item; infinity: none was done."""
        return self.dollars / self.items if self.items > 0.0 else math.inf

    @property
    def cores(self) -> float:
        """Return the cores in use, the mean over time."""
        return self.core_seconds / self.seconds if self.seconds > 0.0 else 0.0

    def with_one(self, one: SeenAttempt) -> "SizeTrial":
        """Return it with one more attempt; one that others go on from is not counted as a job."""
        ran_out = one.ran_out or one.ran_out_of_vram
        has_failed = one.has_failed or ran_out
        return SizeTrial(
            jobs=_sum(self.jobs, one.ends_job or has_failed),
            count=_sum(self.count, one.ends_job or has_failed),
            failed=_sum(self.failed, has_failed),
            ran_out=_sum(self.ran_out, ran_out),
            items=_sum(self.items, one.items),
            dollars=_sum(self.dollars, one.dollars),
            dollars_squared=_sum(self.dollars_squared, one.dollars * one.dollars),
            seconds=_sum(self.seconds, one.seconds),
            core_seconds=_sum(self.core_seconds, (one.cores or 0.0) * one.seconds),
        )

    def faded(self, share: float) -> "SizeTrial":
        """Return it as it counts later: all sums multiplied by a share, but for the count."""
        faded = {each.name: getattr(self, each.name) * share for each in fields(self)}
        return SizeTrial(**{**faded, "count": self.count})


def _sum(known: float, more: float) -> float:
    """Return a sum that can be stored, whatever was added to it."""
    return min(known + more, AMOUNT_MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeInForce:
    """The size of one need that is in force for a type, and how it came to that."""

    #: On the need's scale; 0: the type states no such need. Of memory, and of that of a GPU, it is
    #: learned once jobs run out of it.
    size: Tally = 0
    #: What attempts came to since the last change.
    tried: SizeTrial = SizeTrial()
    #: The size before the last change; 0: it was never changed, or another need was since.
    before: Tally = 0
    #: What attempts came to at that size.
    earlier: SizeTrial = SizeTrial()
    #: When it was last changed, and how many jobs were routed since and have ended at another size,
    #: as those do that nobody sells it to.
    since: datetime | None = None
    elsewhere: Tally = 0
    #: The size from which it was first lowered, to which it goes back, size by size, while more
    #: jobs fail than there; 0: it is not below it.
    top: Tally = 0
    #: What attempts came to at that size.
    usual: SizeTrial = SizeTrial()
    #: Sizes below this one are not tried until `not_below_until`; 0: all may be.
    not_below: Tally = 0
    not_below_until: datetime | None = None
    reason: Reason = NO_REASON

    @property
    def is_on_trial(self) -> bool:
        """Tell whether what comes of its last change has still to show."""
        return self.before > 0 and self.tried.count + self.elsewhere < TRIAL_JOBS

    @property
    def failures(self) -> tuple[float, float, float]:
        """Return how many jobs fail, the share of them, and the share before it was lowered.

        That is before the last change, if that lowered it and no other need has changed since. Else
        it is before the first, and what ran out of memory is left out: its peaks and the hours of
        the week answer that, and one hour a week would keep the size of all others large.
        """
        if self.before > self.size:
            return self.tried.failed, self.tried.failing, self.earlier.failing
        return self.tried.broken, self.tried.breaking, self.usual.breaking

    @property
    def is_failing(self) -> bool:
        """Tell whether more jobs fail than did before it was lowered."""
        _, share, before = self.failures
        return share > before + _FAILURES_RISE

    @property
    def may_be_less(self) -> bool:
        """Tell whether enough jobs were tried at this size, and so few failed that peaks tell.

        What fails tells nothing of its peak.
        """
        tried = self.tried
        runs_out = tried.ran_out > RUN_OUT_AT_MOST * tried.jobs
        return tried.count >= TRIAL_JOBS and not self.is_failing and not runs_out

    def at(self, size: int, now: datetime) -> "SizeInForce":
        """Return another size, without a word of why; from a smaller one it knows the way back."""
        top, usual = (self.top, self.usual) if self.top else (self.size, self.tried)
        if size >= top:
            top, usual = 0, SizeTrial()
        return SizeInForce(size=size, since=now, top=top, usual=usual)

    def moved(self, size: int, code: ReasonCode, about: About, now: datetime) -> "SizeInForce":
        """Return another size, which has still to show what it is worth."""
        reason = Reason(code, {**about, "size": size, "before": self.size})
        return replace(
            self.at(size, now),
            before=self.size,
            earlier=self.tried,
            not_below=self.not_below,
            not_below_until=self.not_below_until,
            reason=reason,
        )

    def settled(self) -> "SizeInForce":
        """Return it once another need has changed: what jobs cost from now on may be by that."""
        return replace(self, before=0, earlier=SizeTrial())

    def with_one(self, one: SeenAttempt, need: str) -> "SizeInForce":
        """Return it with what one more attempt tells of it."""
        may_grow = self.size > 0 or need in _PEAKS
        if one.tells_of(need) and may_grow and self.size == getattr(one.shape, need):
            return replace(self, tried=self.tried.with_one(one))
        is_later = self.since is not None and one.at >= self.since
        if is_later and one.ends_job and self.elsewhere < TRIAL_JOBS:
            return replace(self, elsewhere=self.elsewhere + 1)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakHistory:
    """The most GiB that jobs have used, by the hour of the week at which they were routed.

    Hours and the rest are numbers as text, as JSON has keys.
    """

    #: Hour -> step of the peak -> jobs; older ones count less.
    hours: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    #: Hour -> week -> the most of that week.
    weeks: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    #: Hour -> jobs that ended with more than the size in force, as they had run out of that, or
    #: their hour has a size of its own; older ones count less.
    outgrown: Mapping[str, Amount] = field(default_factory=dict)

    def has_outgrown(self, hour: str) -> bool:
        """Tell whether more jobs of an hour had to have more than may run out of memory."""
        jobs = math.fsum(self.hours[hour].values())
        return self.outgrown.get(hour, 0.0) > RUN_OUT_AT_MOST * jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeHistory:
    """All that is remembered of a type."""

    #: Its needs as they stood, how its jobs came to machines, and how many slots one of a pool had
    #: (``pool_slots``). Once people change any of them, its sizes begin anew.
    of: JobNeeds
    dispatch: Dispatch = Dispatch.POOL
    slots: str = ""
    at: datetime
    #: Of memory and VRAM.
    peaks: Mapping[str, PeakHistory]
    #: vCPUs of a machine -> what attempts on it came to.
    scaling: Mapping[str, SizeTrial] = field(default_factory=dict)
    #: Of each need in ``LEARNED``.
    sizes: Mapping[str, SizeInForce]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """Between which sizes one need of a type may move, and what they cost."""

    #: As ``JobNeeds`` calls it.
    need: str
    least: int
    most: int
    #: What the type states; 0: nothing. Above it memory grows only by jobs that run out, and vCPUs
    #: do not.
    stated: int = 0
    #: Size -> USD per hour of the cheapest machine that has it; empty: not known.
    prices: Mapping[int, float] = field(default_factory=dict)

    @property
    def choices(self) -> Sequence[int]:
        """Return the sizes to choose from: of those that cost the same the largest."""
        within = [size for size in SCALES[self.need] if self.least <= size <= self.most]
        if not self.prices:
            return within
        sold = [size for size in within if size in self.prices]
        return [
            size
            for size, larger in zip(sold, [*sold[1:], None], strict=True)
            if larger is None or self.prices[larger] > self.prices[size]
        ]

    def above(self, size: int) -> int | None:
        """Return the next larger one to choose; None: there is none."""
        return min((larger for larger in self.choices if larger > size), default=None)

    def below(self, current: SizeInForce, now: datetime) -> int | None:
        """Return the next smaller one that may be tried; None: there is none."""
        kept = current.not_below if current.not_below_until and now < current.not_below_until else 0
        return max((size for size in self.choices if kept <= size < current.size), default=None)

    def least_of(self, current: SizeInForce, now: datetime) -> int:
        """Return the least that may be advised, as jobs run out of less; 0: any size."""
        if current.tried.runs_out:
            return self.above(current.size) or current.size
        return current.not_below if current.not_below_until and now < current.not_below_until else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """The size that what was used speaks for."""

    size: int
    #: The smallest size, ignoring price, that at most 2 % of the jobs exceed.
    fits: int
    #: The least size down to which jobs go: by more than chance no more than 2 % exceed it.
    surely: int
    jobs: float
    #: GiB that 99 of 100 jobs have kept to, without room.
    used: float
    #: Safety factor on what was used.
    room: float
    #: Probability that a job runs out of memory.
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSize:
    """What was decided for the jobs of a type."""

    #: As in its history.
    of: JobNeeds
    dispatch: Dispatch = Dispatch.POOL
    slots: str = ""
    #: Learned sizes that replace those of `of`; a field that is None: unchanged.
    needs: JobNeeds = field(default_factory=JobNeeds)
    #: What evidence speaks for, whatever is in force yet; None: too little is known.
    advised: JobNeeds = field(default_factory=JobNeeds)
    #: Hour of the week, from Monday 00:00 UTC, as text -> GiB of memory, where it needs more.
    hours: Mapping[str, Tally] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()


def sized_at(size: TypeSize, at: datetime) -> Sized:
    """Return what a job of a type gets that is routed at an instant."""
    hour = hour_of_week(at)
    special = size.hours.get(str(hour), 0)
    usual = size.of.memory_gib if size.needs.memory_gib is None else size.needs.memory_gib
    if special <= (usual or 0.0):
        return Sized(of=size.of, dispatch=size.dispatch, needs=size.needs, reasons=size.reasons)
    about: About = {"need": "memory_gib", "size": special, "before": usual or 0, "hour": hour}
    reason = Reason(ReasonCode.SIZE_OF_HOUR, about)
    needs = replace(size.needs, memory_gib=float(special))
    return Sized(of=size.of, dispatch=size.dispatch, needs=needs, reasons=(reason, *size.reasons))


def all_sized(size: TypeSize) -> Iterator[Sized]:
    """Yield what jobs of a type get, whatever the hour."""
    yield Sized(of=size.of, dispatch=size.dispatch, needs=size.needs)
    for special in sorted(set(size.hours.values())):
        yield Sized(
            of=size.of, dispatch=size.dispatch, needs=replace(size.needs, memory_gib=float(special))
        )


def hour_of_week(at: datetime) -> int:
    """Return the hours since Monday 00:00 UTC, 0 to 167."""
    return at.weekday() * _HOURS_PER_DAY + at.hour


def are_few(jobs: int) -> bool:
    """Tell whether so many jobs are too few to go by."""
    return jobs < TRIAL_JOBS


def room(jobs: float) -> float:
    """Return by what a peak is multiplied: 1.5 after one job, 1.1 after 25, 1.05 after 100."""
    return 1.0 + ROOM / math.sqrt(max(jobs, 1.0))


def enough(
    peaks: Iterable[tuple[float, float]], sizes: SizeRange, *, taken: float = 0.0
) -> Enough | None:
    """Return the smallest size from which no larger one pays; None: nothing was seen or is sold.

    A job that runs out at one size pays that and goes on at the next. So the next is worth its
    dollars from the start if what running out costs on average exceeds what it would save:
    ``chance x next > next - this``. The chance of n jobs of which k exceed a size is
    ``(k + 1/2) / (n + 1)`` (Jeffreys' prior). Besides, no more than 2 % may exceed it.

    Worked: 100 jobs of at most 6 GiB need 6 x 1.05 + 0.5 = 6.8: at 8 GiB for $0.10, before 16 GiB
    for $0.20, running out costs 0.005 x $0.20 = $0.001 on average, less than the $0.10 saved.

    Args:
        peaks: GiB and the number of jobs that have used so much, at the most.
        sizes: between which to choose.
        taken: GiB of a machine that no job gets.
    """
    seen = [(gib, jobs) for gib, jobs in peaks if jobs > 0.0]
    jobs, choices = math.fsum(n for _, n in seen), sizes.choices
    if jobs < 1.0 - _FORGOTTEN or not choices:
        return None
    spare = room(jobs)

    def count_over(size: int) -> float:
        return math.fsum(n for gib, n in seen if gib * spare + taken > size)

    def chance_over(size: int) -> float:
        return (count_over(size) + 0.5) / (jobs + 1.0)

    def is_too_small(size: int) -> bool:
        return count_over(size) > RUN_OUT_AT_MOST * jobs

    def may_be_too_small(size: int) -> bool:
        over = count_over(size)
        return over + _LOWER_IF_SURE * math.sqrt(over) > RUN_OUT_AT_MOST * jobs

    def is_worth(size: int, larger: int) -> bool:
        if is_too_small(size):
            return True
        price, next_price = sizes.prices.get(size, 0.0), sizes.prices.get(larger, 1.0)
        return chance_over(size) * next_price > next_price - price

    found = next((s for s, larger in pairwise(choices) if not is_worth(s, larger)), choices[-1])
    used = quantile_of(seen, 0.99)
    scale = SCALES[sizes.need]
    fits = next((size for size in scale if not is_too_small(size)), scale[-1])
    surely = next((size for size in scale if not may_be_too_small(size)), scale[-1])
    return Enough(
        size=found,
        fits=fits,
        surely=max(found, surely),
        jobs=jobs,
        used=used,
        room=spare,
        chance=chance_over(found),
    )


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
    special, found = larger_hours(history), dict[str, float]()
    for hour, peaks in history.hours.items():
        if hour not in special:
            for peak, jobs in peaks.items():
                found[peak] = found.get(peak, 0.0) + jobs
    return [(_gib_of(peak), jobs) for peak, jobs in found.items()]


def larger_hours(history: PeakHistory) -> Mapping[str, float]:
    """Return the hours that need more than others, week by week -> the GiB that nearly all kept to.

    Such an hour needs 1.5 times as much as that of the median job, by what all but 2 % of its jobs
    have used, and has had a job of so much in each of its last two weeks, at least.
    """
    jobs = {hour: math.fsum(peaks.values()) for hour, peaks in history.hours.items()}
    needs = {
        hour: quantile_of([(_gib_of(p), n) for p, n in peaks.items()], 1.0 - RUN_OUT_AT_MOST)
        for hour, peaks in history.hours.items()
    }
    usual = quantile_of([(needs[hour], jobs[hour]) for hour in needs], 0.5)
    found = {}
    for hour, need in needs.items():
        last = _newest(history.weeks.get(hour, {}), _WEEKS_LEAST).values()
        if len(last) == _WEEKS_LEAST and min(need, *last) > _MUCH_MORE * usual:
            found[hour] = need
    return found


def _newest(weeks: Mapping[str, float], count: int) -> Mapping[str, float]:
    return {week: weeks[week] for week in sorted(weeks, key=int)[-count:]}


def holds(known: TypeSize | TypeHistory, declared: JobType, policy: Policy, run_slots: str) -> bool:
    """Tell whether what is known of a type is still of it.

    A pool's size is of all slots of a machine, that of a shared machine of one job: what was
    learned one way is too little, or too much, the other.
    """
    dispatch = dispatch_of_type(declared, policy)
    slots = pool_slots(dispatch, run_slots)
    return (known.of, known.dispatch, known.slots) == (declared.needs, dispatch, slots)


def begin(
    of: JobNeeds, at: datetime, dispatch: Dispatch = Dispatch.POOL, slots: str = ""
) -> TypeHistory:
    """Return what is known of a type before its first job: what people ask for."""
    return TypeHistory(
        of=of,
        dispatch=dispatch,
        slots=slots,
        at=at,
        peaks={MEMORY: PeakHistory(), VRAM: PeakHistory()},
        sizes={need: SizeInForce(size=size_up(need, getattr(of, need))) for need in LEARNED},
    )


def learn(history: TypeHistory, seen: Iterable[SeenAttempt], now: datetime) -> TypeHistory:
    """Return a history with further attempts; what was known counts less by now.

    An attempt whose job was routed later than now is left out: its week would be the newest for
    ever, and no honest one would take its place. So is one whose message has stated needs of its
    own: one sender's jobs would choose the machines on which all others are measured.
    """
    share = 0.5 ** (max(now - history.at, timedelta(0)) / HALF_LIFE)
    seen = [one for one in seen if one.at <= now and not one.stated]
    scaling = {vcpus: trial.faded(share) for vcpus, trial in history.scaling.items()}
    sizes = {
        need: replace(
            size,
            tried=size.tried.faded(share),
            earlier=size.earlier.faded(share),
            usual=size.usual.faded(share),
        )
        for need, size in history.sizes.items()
    }
    for one in seen:
        sizes = {need: size.with_one(one, need) for need, size in sizes.items()}
        if one.tells_of(VCPUS):
            vcpus = str(max(n for n in SCALES[VCPUS] if n <= max(one.vcpus, 0.0)))
            scaling[vcpus] = scaling.get(vcpus, SizeTrial()).with_one(one)
    peaks = {
        need: _with_peaks(
            known,
            share,
            [
                (one.at, gib, getattr(one.shape, need) > history.sizes[need].size)
                for one in seen
                if one.ends_job and (gib := getattr(one, _PEAKS[need])) is not None
            ],
        )
        for need, known in history.peaks.items()
    }
    return replace(
        history,
        at=now,
        peaks=peaks,
        scaling={n: trial for n, trial in scaling.items() if trial.jobs >= _FORGOTTEN},
        sizes=sizes,
    )


#: Need -> field of an attempt that tells its peak.
_PEAKS = {MEMORY: "memory_gib", VRAM: "vram_gib"}


def _with_peaks(
    known: PeakHistory, share: float, seen: Iterable[tuple[datetime, float, bool]]
) -> PeakHistory:
    """Return peaks with further ones; jobs of those that were known count by a share.

    Args:
        known: the peaks so far.
        share: by which these count.
        seen: when a job was routed, the GiB that it used, and whether it had outgrown the size.
    """
    hours = {
        hour: {peak: jobs * share for peak, jobs in peaks.items()}
        for hour, peaks in known.hours.items()
    }
    weeks = {hour: dict(mosts) for hour, mosts in known.weeks.items()}
    outgrown = {hour: jobs * share for hour, jobs in known.outgrown.items()}
    for at, gib, has_outgrown in seen:
        hour, week = str(hour_of_week(at)), str((at.toordinal() - _MONDAY) // 7)
        peak, peaks, mosts = _peak_of(gib), hours.setdefault(hour, {}), weeks.setdefault(hour, {})
        peaks[peak] = peaks.get(peak, 0.0) + 1.0
        mosts[week] = max(mosts.get(week, 0.0), _gib_of(peak))
        if has_outgrown:
            outgrown[hour] = outgrown.get(hour, 0.0) + 1.0
    left = {
        hour: {peak: jobs for peak, jobs in peaks.items() if jobs >= _FORGOTTEN}
        for hour, peaks in hours.items()
    }
    return PeakHistory(
        hours={hour: _highest(peaks) for hour, peaks in left.items() if peaks},
        weeks={hour: _newest(mosts, _WEEKS_LEAST) for hour, mosts in weeks.items()},
        outgrown={hour: jobs for hour, jobs in outgrown.items() if jobs >= _FORGOTTEN},
    )


def _highest(peaks: Mapping[str, float]) -> Mapping[str, float]:
    """Return peaks of no more steps than are kept."""
    steps = sorted(peaks, key=int, reverse=True)
    kept = {step: peaks[step] for step in steps[:_STEPS_KEPT]}
    lower = math.fsum(peaks[step] for step in steps[_STEPS_KEPT:])
    last = next(reversed(kept))
    return {**kept, last: _sum(kept[last], lower)}


def decide_size(
    current: SizeInForce,
    want: Enough | None,
    sizes: SizeRange,
    now: datetime,
    *,
    may_try: bool = True,
) -> SizeInForce:
    """Return the size of memory or VRAM that is next: the same, the next larger or smaller one.

    Args:
        current: the size in force.
        want: what evidence speaks for; None: nothing.
        sizes: between which to choose.
        now: the present.
        may_try: nothing else is on trial, so that what comes of it is told apart.
    """
    after = (
        _back_within(current, sizes, now)
        or _back_by_failures(current, sizes, now)
        or _back_by_cost(current, sizes, now, current.tried.cost, current.earlier.cost)
        or _raise(current, want, sizes, now)
        or _grow(current, want, sizes, now)
    )
    if after is not None:
        return after
    smaller = sizes.below(current, now)
    if want is None or smaller is None or smaller < want.surely:
        return current
    if not may_try or not current.may_be_less:
        return current
    return current.moved(smaller, ReasonCode.SIZE_LOWERED, _about(want, sizes), now)


def _raise(
    current: SizeInForce, want: Enough | None, sizes: SizeRange, now: datetime
) -> SizeInForce | None:
    """Return the next larger size where peaks speak for it; None: they do not.

    It is no larger than what the type states. Beyond that jobs have to run out (``_grow``): the
    peak of one large job in fifty would have all others pay for it.
    """
    larger = min(sizes.above(current.size) or 0, sizes.stated)
    if want is None or not 0 < current.size < min(want.size, larger):
        return None
    if current.tried.count < TRIAL_JOBS:
        return None
    is_other_price = sizes.prices.get(want.size) != sizes.prices.get(current.size)
    is_dearer_or_short = is_other_price or not sizes.prices or want.fits > current.size
    # What jobs did at this size counts more than what their peaks, with room, let expect.
    if not is_dearer_or_short or current.tried.has_shown_to_be_enough:
        return None
    return current.moved(larger, ReasonCode.SIZE_RAISED, _about(want, sizes), now)


def _grow(
    current: SizeInForce, want: Enough | None, sizes: SizeRange, now: datetime
) -> SizeInForce | None:
    """Return a larger size where too many jobs run out of memory; None: they do not.

    Their peaks need not tell: they were not seen, or others went by. Where no size was in force the
    first one is what was seen to be enough.
    """
    larger, tried = sizes.above(current.size), current.tried
    if larger is None or not tried.runs_out:
        return None
    if not current.size and want is not None:
        larger = max(larger, want.size)
    until = now + KEPT_FOR
    about: About = {"need": sizes.need, "jobs": tried.jobs, "until": until.isoformat()}
    about = {**about, "share": tried.ran_out / tried.jobs}
    grown = current.moved(larger, ReasonCode.SIZE_RAN_OUT, about, now)
    return replace(grown, not_below=larger, not_below_until=until)


def _about(want: Enough, sizes: SizeRange) -> About:
    return {
        "need": sizes.need,
        "jobs": want.jobs,
        "used": want.used,
        "room": want.room,
        "chance": want.chance,
    }


def decide_cores(
    current: SizeInForce,
    scaling: Mapping[int, SizeTrial],
    sizes: SizeRange,
    now: datetime,
    *,
    may_try: bool = True,
    is_short: bool = False,
) -> SizeInForce:
    """Return the number of vCPUs that is next: more are bought only while an item gets cheaper.

    A number that was never tried is tried once: the next smaller if by Amdahl's law an item would
    cost 5 % less there, the next larger if all are in use. What it cost there then decides. No more
    are bought than the type states: items are as small as who sends them likes. The
    arguments are those of ``decide_size``; ``scaling`` has what attempts came to by the vCPUs of
    their machines. ``is_short``: there is less memory or VRAM than before it was first lowered, by
    which failures are explained.
    """
    here = _cost_of_cores(current.size, current.tried, sizes)
    earlier = _cost_of_cores(current.before, current.earlier, sizes)
    back = (
        _back_within(current, sizes, now)
        or (None if is_short else _back_by_failures(current, sizes, now))
        or _back_by_cost(current, sizes, now, here, earlier)
    )
    if back is not None or not current.size or not may_try:
        return back or current
    known = {vcpus: trial for vcpus, trial in scaling.items() if trial.jobs >= TRIAL_JOBS}
    smaller, larger = sizes.below(current, now), sizes.above(current.size)
    if current.size >= sizes.stated:
        larger = None
    if sizes.prices and sizes.prices.get(larger or 0) == sizes.prices.get(current.size):
        # Memory makes it the same machine. Once less is enough, the fewer vCPUs cost less.
        larger = None
    trial, tried, need = known.get(current.size), current.tried, sizes.need
    for code, other in ((ReasonCode.CORES_FEWER, smaller), (ReasonCode.CORES_MORE, larger)):
        if trial is None or other is None or other not in known:
            continue
        cost = _cost_of_cores(current.size, trial, sizes)
        less = _cost_of_cores(other, known[other], sizes)
        if trial.exceeds(known[other], _DEARER_BY_CORES, cost, less):
            about: About = {"need": need, "cost": less, "cost_before": cost}
            return current.moved(other, code, about, now)
    if tried.jobs < TRIAL_JOBS or tried.cores <= 0.0:
        return current
    about = {"need": need, "used": tried.cores, "jobs": tried.jobs}
    if (
        smaller is not None
        and smaller not in known
        and _saves(tried.cores, current, smaller, sizes)
    ):
        return current.moved(smaller, ReasonCode.CORES_FEWER_TRIED, about, now)
    if larger is not None and larger not in known and tried.cores >= _BUSY * current.size:
        return current.moved(larger, ReasonCode.CORES_MORE_TRIED, about, now)
    return current


def _saves(used: float, current: SizeInForce, fewer: int, sizes: SizeRange) -> bool:
    """Tell whether an item is expected to cost 5 % less with fewer vCPUs, by Amdahl's law.

    With p the share of the work that all of n vCPUs do together, 1 / used = 1 - p + p / n. Worked:
    9.14 of 16 vCPUs are in use in the mean, so p is 0.95, and 8 take 1.54 times as long. At half
    the price an item costs 0.77 times as much.

    Args:
        used: vCPUs in use, the mean over time.
        current: their number now.
        fewer: the number to be tried.
        sizes: what they cost; without prices a vCPU costs always the same.
    """
    now = current.size
    together = (1.0 - 1.0 / max(used, 1.0)) / (1.0 - 1.0 / now)
    share = min(together, 1.0)
    longer = (1.0 - share + share / fewer) / (1.0 - share + share / now)
    price = sizes.prices.get(fewer, float(fewer)) / sizes.prices.get(now, float(now))
    return longer * price * _DEARER_BY_CORES <= 1.0


def decide(
    history: TypeHistory, ranges: Mapping[str, SizeRange], now: datetime, *, applies: bool
) -> tuple[TypeHistory, TypeSize]:
    """Return what jobs of a type get from now on, and the history that remembers it.

    Args:
        history: with all that was seen.
        ranges: need -> between which sizes to choose.
        now: the present.
        applies: the sizes are in force; else they are only advised, and none changes.
    """
    wants = {
        need: enough(usual_peaks(peaks), ranges[need], taken=SYSTEM_GIB if need == MEMORY else 0.0)
        for need, peaks in history.peaks.items()
    }
    scaling = {int(vcpus): trial for vcpus, trial in history.scaling.items()}
    asked = begin(history.of, now).sizes
    if applies:
        sizes = _next_sizes(history.sizes, wants, scaling, ranges, now)
    else:
        # What was in force before is so no more.
        sizes = {
            need: size if size.size == asked[need].size else asked[need]
            for need, size in history.sizes.items()
        }
    changed = {n: size.size for n, size in sizes.items() if size.size != asked[n].size}
    advised = {
        need: max(
            _advised(want, asked[need].size, ranges[need]),
            ranges[need].least_of(sizes[need], now),
        )
        for need, want in wants.items()
        if want and (sizes[need].size or sizes[need].tried.runs_out)
    }
    cores = _best_cores(sizes[VCPUS], scaling, ranges[VCPUS])
    memory = sizes[MEMORY].size
    return replace(history, sizes=sizes), TypeSize(
        of=history.of,
        dispatch=history.dispatch,
        slots=history.slots,
        needs=_needs(changed),
        advised=replace(_needs(advised), vcpus=cores),
        hours=_sizes_of_hours(history.peaks[MEMORY], memory, ranges[MEMORY]),
        reasons=tuple(
            _beside_asked(sizes[need].reason, getattr(history.of, need))
            for need in LEARNED
            if sizes[need].reason
        ),
    )


def _beside_asked(reason: Reason, asked: float | None) -> Reason:
    """Return a reason with what people ask for, from which its own step may not begin."""
    return reason if asked is None else replace(reason, about={**reason.about, "asked": asked})


def _advised(want: Enough, asked: int, sizes: SizeRange) -> int:
    """Return the size that is advised: no more than is asked for, where that is enough.

    Of sizes that cost the same the largest is chosen from. Nobody need ask for it.
    """
    prices = sizes.prices
    is_free = prices.get(want.size) == prices.get(asked)
    return asked if want.fits <= asked < want.size and is_free else want.size


def _needs(sizes: Mapping[str, Any]) -> JobNeeds:
    return JobNeeds(**sizes)


def _next_sizes(
    sizes: Mapping[str, SizeInForce],
    wants: Mapping[str, Enough | None],
    scaling: Mapping[int, SizeTrial],
    ranges: Mapping[str, SizeRange],
    now: datetime,
) -> Mapping[str, SizeInForce]:
    """Return the sizes that are next: one need at a time is on trial."""
    on_trial = any(size.is_on_trial for size in sizes.values())
    is_failing = any(sizes[need].top and sizes[need].is_failing for need in _PEAKS)
    found = dict(sizes)
    for need in LEARNED:
        before, within, may_try = sizes[need], ranges[need], not on_trial
        if need == VCPUS:
            is_short = any(found[other].top for other in _PEAKS)
            after = decide_cores(
                before,
                scaling,
                within,
                now,
                may_try=may_try and not is_failing,
                is_short=is_short,
            )
        else:
            after = decide_size(before, wants[need], within, now, may_try=may_try)
        if after != before:
            on_trial = True
            found = {**{n: size.settled() for n, size in found.items()}, need: after}
    return found


def _best_cores(
    current: SizeInForce, scaling: Mapping[int, SizeTrial], sizes: SizeRange
) -> int | None:
    """Return the number at which an item has cost least; of one number, what the cores fit in."""
    choices = sizes.choices
    costs = {
        n: t.seconds / t.items * sizes.prices.get(n, 1.0)
        for n, t in scaling.items()
        if t.jobs >= TRIAL_JOBS and t.items > 0.0 and n in choices
    }
    if not current.size or not costs:
        return None
    best = min(costs, key=lambda n: (costs[n], n))
    if len(costs) > 1:
        return best
    used = scaling[best].cores
    return min((n for n in choices if used <= _FITS * n), default=best) if used else best


def _sizes_of_hours(history: PeakHistory, usual: int, sizes: SizeRange) -> Mapping[str, int]:
    """Return the memory of the hours of the week that need more than the usual size.

    It is no more than what the type states: beyond that jobs have to run out (``_grow``). So they
    have where it states none.
    """
    choices = sizes.choices
    if not choices:
        return {}
    found = {}
    for hour, most in larger_hours(history).items():
        if not sizes.stated and not history.has_outgrown(hour):
            continue
        need = most * room(math.fsum(history.hours[hour].values())) + SYSTEM_GIB
        size = next((choice for choice in choices if choice >= need), choices[-1])
        size = min(size, sizes.stated or sizes.most)
        if size > usual:
            found[hour] = size
    return found


def _cost_of_cores(vcpus: int, trial: SizeTrial, sizes: SizeRange) -> float:
    """Return USD an item by the price of cores alone: machines may have had more memory."""
    price = sizes.prices.get(vcpus)
    if price is None or trial.items <= 0.0:
        return trial.cost
    return trial.seconds / trial.items * price / _SECONDS_PER_HOUR


def _back_within(current: SizeInForce, sizes: SizeRange, now: datetime) -> SizeInForce | None:
    """Return what replaces a size that may not be; None: it may.

    People have moved the bounds, or no machine has it any more beside the other sizes.
    """
    if not current.size or sizes.least <= current.size <= sizes.most:
        return None
    return current.at(min(max(current.size, sizes.least), sizes.most), now)


def _back_by_failures(current: SizeInForce, sizes: SizeRange, now: datetime) -> SizeInForce | None:
    """Return the next larger size, as more jobs fail than before it was lowered; None: it stays.

    What fails there is counted anew: of many jobs before, the next step would come too late.
    """
    failed, share, before = current.failures
    larger = max(current.before, sizes.above(current.size) or 0)
    size = min(larger, current.top, sizes.most)
    if size <= current.size or failed < _FAILURES_LEAST or not current.is_failing:
        return None
    about: About = {"share": share, "share_before": before}
    return _kept(current, size, ReasonCode.SIZE_BACK_FAILURES, about, sizes.need, now)


def _back_by_cost(
    current: SizeInForce, sizes: SizeRange, now: datetime, cost: float, cost_before: float
) -> SizeInForce | None:
    """Return the size before it was lowered, as an item costs more; None: it stays.

    Args:
        current: the size in force.
        sizes: between which to choose.
        now: the present.
        cost: USD an item at this size.
        cost_before: at the one before.
    """
    size = min(current.before, sizes.most)
    if size <= current.size or not current.tried.exceeds(
        current.earlier, _DEARER, cost, cost_before
    ):
        return None
    about: About = {"cost": cost, "cost_before": cost_before}
    back = _kept(current, size, ReasonCode.SIZE_BACK_COST, about, sizes.need, now)
    return replace(back, tried=current.earlier)


def _kept(
    current: SizeInForce, size: int, code: ReasonCode, about: About, need: str, now: datetime
) -> SizeInForce:
    """Return a size that is kept for a while, since a smaller one was a mistake."""
    until = now + KEPT_FOR
    about = {"need": need, "jobs": current.tried.jobs, "until": until.isoformat(), **about}
    back = current.moved(size, code, about, now)
    return replace(back, before=0, earlier=SizeTrial(), not_below=size, not_below_until=until)


def _peak_of(gib: float) -> str:
    """Return the number of the least step on a scale of powers that is no less."""
    kept = min(max(gib, _GIB_LEAST), float(SCALES[MEMORY][-1]))
    return str(math.ceil(_STEPS_PER_DOUBLING * math.log2(kept) - 1e-9))


def _gib_of(peak: str) -> float:
    return math.exp2(int(peak) / _STEPS_PER_DOUBLING)
