"""What a workload has shown so far: throughput, interruptions, boot time, items per job.

Every estimate has one shape: reports, weighed by the hours that they took, and pulled toward a
prior. The prior counts as a few seconds or hours of reports. With no report it *is* the prior.

Reports come from workers, which add up speeds (``job.work_done``), and from ticks, which note boots
(``control.plan.learn_boot``); ``ledger.knowledge`` reads both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from spindown.domain.boot import BootPhase
from spindown.domain.commit_interval import COST_ESTIMATE
from spindown.domain.fleet import Worker
from spindown.domain.offer import (
    HOURS_PER_MONTH,
    VCPU,
    InstanceType,
    Pool,
    Processor,
    slot_count,
)
from spindown.domain.policy import Policy
from spindown.domain.relative_throughput import USUAL_VCPUS, relative_throughput, vcpu_score
from spindown.domain.value_range import ITEMS_MOST, RATE_MOST

#: By what power of their number vCPUs are faster, where another number of them was measured: 1 of
#: code that keeps all of them busy, 0 of code that uses one. Only below 1 is a smaller machine ever
#: tried: by 1 it costs as much an item as the larger one that was measured, at any size.
SCALING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRecord:
    """What one kind of instance has done for this workload."""

    items: float = 0.0
    #: Busy slot time, hours.
    hours: float = 0.0
    reports: int = 0
    #: Workers that the reports are from; 0: not counted.
    lives: int = 0
    #: Items per slot-hour of the last reports, newest last; may be empty.
    rates: tuple[float, ...] = ()
    #: Hours and items of the report that took longest, and of the one with most items; 0: not
    #: known.
    longest_hours: float = 0.0
    longest_items: float = 0.0
    largest_hours: float = 0.0
    largest_items: float = 0.0
    #: Items whose bytes were counted, and the GiB that they read and wrote.
    moved: float = 0.0
    gib_in: float = 0.0
    gib_out: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """What one capacity pool has done to this workload."""

    interruptions: float = 0.0
    #: Instance time lived in it, hours.
    hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSizes:
    """How large jobs have been; older ones count less and less."""

    items: float = 0.0
    jobs: float = 0.0
    #: Items of the largest job of each of the last reports, newest last.
    largest: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeKnowledge:
    """What jobs of one type have shown."""

    throughput: Mapping[Processor, ThroughputRecord] = field(default_factory=dict)
    jobs: JobSizes = field(default_factory=JobSizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Everything learned of one workload. Empty: nothing yet. Samples are newest last."""

    #: Processor (GPU and count, or family and vCPUs) -> record.
    throughput: Mapping[Processor, ThroughputRecord] = field(default_factory=dict)
    pools: Mapping[Pool, PoolRecord] = field(default_factory=dict)
    #: Processors of the present workers.
    alive: frozenset[Processor] = frozenset()
    #: Seconds from the launch to the first item that code has, and to the check-in.
    boots: tuple[float, ...] = ()
    check_ins: tuple[float, ...] = ()
    #: The first by phases.
    boot_phases: Mapping[BootPhase, tuple[float, ...]] = field(default_factory=dict)
    #: Seconds without work until the next work came. They are seen at the queue: a worker would see
    #: none that is longer than its own idle timeout, so the timeout could only become shorter.
    gaps: tuple[float, ...] = ()
    jobs: JobSizes = field(default_factory=JobSizes)
    #: Type of jobs -> its share of throughput and jobs; "": without one. Empty: there are no types.
    types: Mapping[str, TypeKnowledge] = field(default_factory=dict)
    #: Seconds that computing stood still for one checkpoint.
    checkpoints: tuple[float, ...] = ()
    #: "per-gpu", "per-instance" or a number: how reports a slot add up to an instance.
    slots: str = "per-gpu"
    #: Time that a program has to write its last checkpoint; 0 for a function.
    stop_grace: timedelta = timedelta(0)

    def of_types(self, names: Sequence[str]) -> "Knowledge":
        """Return what is known of work of some types, each by as much as there was of it.

        Before any of it was measured, that is what is known of all.
        """
        found = [self.types[name] for name in names if name in self.types]
        if not any(each.throughput for each in found):
            return self
        return replace(self, **add_types(found))


def add_types(types: Sequence[TypeKnowledge]) -> dict[str, Any]:
    """Return the throughput and the sizes of jobs of several types as fields of ``Knowledge``."""
    by_processor: dict[Processor, ThroughputRecord] = {}
    for each in types:
        for processor, record in each.throughput.items():
            known = by_processor.get(processor)
            by_processor[processor] = record if known is None else _add_records(known, record)
    jobs = JobSizes(
        items=sum(each.jobs.items for each in types),
        jobs=sum(each.jobs.jobs for each in types),
        largest=tuple(n for each in types for n in each.jobs.largest),
    )
    return {"throughput": by_processor, "jobs": jobs}


def _add_records(one: ThroughputRecord, other: ThroughputRecord) -> ThroughputRecord:
    longest = max(one, other, key=lambda each: each.longest_hours)
    largest = max(one, other, key=lambda each: each.largest_items)
    return ThroughputRecord(
        items=one.items + other.items,
        hours=one.hours + other.hours,
        reports=one.reports + other.reports,
        lives=one.lives + other.lives,
        rates=(*one.rates, *other.rates),
        longest_hours=longest.longest_hours,
        longest_items=longest.longest_items,
        largest_hours=largest.largest_hours,
        largest_items=largest.largest_items,
        moved=one.moved + other.moved,
        gib_in=one.gib_in + other.gib_in,
        gib_out=one.gib_out + other.gib_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Expected throughput of a whole instance with all slots busy."""

    items_per_hour: float
    #: False: the prior, scaled by what the workload showed elsewhere.
    measured: bool
    #: Reports behind it.
    samples: int


#: Busy hours that the prior counts as, at least: 5 s. A shorter report says more about the start
#: than about the GPU.
PRIOR_BUSY_HOURS = 5.0 / 3600.0
#: The mean of the reports is kept within this factor of what it is without the longest, or without
#: the largest. So one job that hung moves the estimate by this factor at most, however long.
ROBUST_FACTOR = 1.2
#: Items an hour of one slot that rows can make anybody believe, at least: one in a year.
_RATE_LEAST = 1e-4

#: Instance-hours that the published reclaim share counts as: one day. One interruption on the
#: first day raises a pool to about 0.04 per hour, two hundred times the usual published rate.
PRIOR_POOL_HOURS = 24.0
#: Share reclaimed in a month where none is published: the lower limit of the worst class.
UNKNOWN_RECLAIM_SHARE = 0.2
_RECLAIM_SHARE_AT_MOST = 0.99


def throughput(
    knowledge: Knowledge,
    instance_type: InstanceType,
    policy: Policy,
    *,
    scale: float | None = None,
) -> Throughput:
    """Return what an instance of this type is expected to do for this workload.

    Where this GPU and count has been measured, the measurement is pulled toward the prior, which is
    scaled by how fast the workload has run on all GPUs: (items + prior x w) / (hours + w). The
    data sheet counts as some workers (``data_sheet_worth``), and w is their hours, at least 5 s.
    Worked, a scale of 1: prior 1000 an hour, one job of 35 s at 500 an hour on one worker,
    w = 35 s: (500 x 35 + 1000 x 35) / 70 = 750 an hour. Where it has not been measured, the prior
    is scaled by the same GPU in other counts if there are any, else by all GPUs.

    Args:
        knowledge: what is known.
        instance_type: the type.
        policy: gives the throughput of a T4.
        scale: ``workload_scale(knowledge, policy)`` when the caller has it already.
    """
    return _throughput(
        knowledge, instance_type.processor, policy, vcpus=instance_type.vcpus, scale=scale
    )


def worker_throughput(knowledge: Knowledge, worker: Worker, policy: Policy) -> Throughput:
    """Return what a worker is expected to do with all its slots busy, as many as it has itself."""
    return _throughput(knowledge, worker.processor, policy, slots_busy=worker.slots)


def _throughput(
    knowledge: Knowledge,
    processor: Processor,
    policy: Policy,
    *,
    vcpus: int = USUAL_VCPUS,
    scale: float | None = None,
    slots_busy: int | None = None,
) -> Throughput:
    name, count = processor
    slots = processor_slots(processor, knowledge.slots)
    prior = policy.throughput_estimate * relative_throughput(name, count, vcpus=vcpus)
    record = knowledge.throughput.get(processor)
    is_measured = record is not None and record.hours > 0.0
    # One kind of GPU is pulled to what all have shown, vCPUs to what vCPUs have.
    own = None if is_measured and not name.endswith(VCPU) else _scale(knowledge, policy, processor)
    if own is not None:
        scale = own
    elif scale is None:
        scale = workload_scale(knowledge, policy)
    if record is None or not is_measured:
        rate = _plausible(prior * scale, slots)
        return Throughput(items_per_hour=rate, measured=False, samples=0)
    items = _robust_rate(record) * record.hours
    weight = _prior_hours(record, _worth(knowledge))
    rate = _plausible((items + prior * scale / slots * weight) / (record.hours + weight))
    whole = rate * (slots_busy or slots)
    return Throughput(items_per_hour=whole, measured=True, samples=record.reports)


def reference_throughput(knowledge: Knowledge, policy: Policy, *, without_gpu: bool) -> float:
    """Return items an hour of the machine on which work is told (``reference_machine``)."""
    if without_gpu:
        # No machine is like it, so that what all have shown counts.
        return policy.throughput_estimate * workload_scale(knowledge, policy)
    return _throughput(knowledge, ("T4", 1.0), policy).items_per_hour


def usual_throughput(knowledge: Knowledge, policy: Policy) -> float:
    """Return items an hour of one slot of the kind that the workload has run on most.

    Until it has run anywhere, the kind is a T4.
    """
    kind = _usual_kind(knowledge)
    if kind is None:
        return policy.throughput_estimate
    return _throughput(knowledge, kind, policy).items_per_hour / usual_slots(knowledge)


def usual_slots(knowledge: Knowledge) -> int:
    """Return the slots of one worker of that kind; until the workload has run: of one GPU."""
    kind = _usual_kind(knowledge)
    return processor_slots(("", 1.0) if kind is None else kind, knowledge.slots)


def processor_slots(processor: Processor, slots: str) -> int:
    """Return how many jobs an instance holds at once, by what computes in it."""
    name, count = processor
    return slot_count(0.0 if name.endswith(VCPU) else count, slots)


def _usual_kind(knowledge: Knowledge) -> Processor | None:
    measured = [each for each in knowledge.throughput.items() if each[1].hours > 0.0]
    return max(measured, key=lambda each: (each[1].hours, each[0]))[0] if measured else None


def workload_scale(knowledge: Knowledge, policy: Policy) -> float:
    """Return how much faster than its priors this workload has run on all GPUs; 1: unknown."""
    scale = _scale(knowledge, policy, None)
    return 1.0 if scale is None else scale


def _scale(knowledge: Knowledge, policy: Policy, of: Processor | None) -> float | None:
    """Return the geometric mean of measured over prior; each counts up to 1 by its hours.

    ``of``: by what is alike alone: GPUs of a name, or vCPUs that are as fast. From one number of
    vCPUs to another speed is taken to change by their ratio to the power of SCALING, since few jobs
    use each further vCPU as well as the first.
    """
    weights = logs = 0.0
    shown = [
        (kind, record)
        for kind, record in knowledge.throughput.items()
        if (of is None or _is_alike(kind[0], of[0])) and record.hours > 0.0 and record.items > 0.0
    ]
    worth = _worth(knowledge) if shown else 0.0
    for (name, count), record in shown:
        slots = processor_slots((name, count), knowledge.slots)
        prior = policy.throughput_estimate * relative_throughput(name, count) / slots
        weight = record.hours / (record.hours + _prior_hours(record, worth))
        logs += weight * math.log(_robust_rate(record) / prior)
        if of is not None and of[0].endswith(VCPU):
            logs += weight * (SCALING - 1.0) * math.log(max(of[1], 1.0) / max(count, 1.0))
        weights += weight
    return math.exp(logs / weights) if weights > 0.0 else None


def _is_alike(name: str, other: str) -> bool:
    """Tell whether what computes is the same, but for its number."""
    if name == other or not (name.endswith(VCPU) and other.endswith(VCPU)):
        return name == other
    return vcpu_score(name.removesuffix(VCPU))[0] == vcpu_score(other.removesuffix(VCPU))[0]


def _worth(knowledge: Knowledge) -> float:
    """Return how many workers the data sheet counts as."""
    return data_sheet_worth(tuple(each.rates for each in knowledge.throughput.values()))


def _prior_hours(record: ThroughputRecord, worth: float) -> float:
    """Return the busy hours that the data sheet counts as, compared with a record."""
    return max(PRIOR_BUSY_HOURS, worth * record.hours / max(record.lives, 1))


def _robust_rate(record: ThroughputRecord) -> float:
    """Return items per slot-hour: the mean, which no single report moves by more than a fifth.

    A job that hung is one report. Where items differ by nature, what is slow comes again, and
    without its longest report the mean is nearly the same. The median would not do: where 19 of 20
    items take 1 s and one 200 s, it is 11 times the mean. Worked: 19 reports of 100 items in 100 s
    and one of 100 in 100,000 s: 3600 an hour without that one, so 3600 / 1.2 = 3000.
    """
    mean = _plausible(record.items / record.hours)
    if record.reports < ROBUST_FROM:
        return mean
    least = _without(record, record.longest_items, record.longest_hours) / ROBUST_FACTOR
    most = _without(record, record.largest_items, record.largest_hours) * ROBUST_FACTOR
    # One report may be what raises ``least``, or lowers ``most``: then the mean lies beyond both.
    # Nothing but the largest says nothing about it.
    return _plausible(most if mean > most > 0.0 else max(mean, least))


def _plausible(items_per_hour: float, slots: int = 1) -> float:
    """Return the rate of so many slots, within what can be true."""
    return min(max(items_per_hour, _RATE_LEAST * slots), RATE_MOST * slots)


def _without(record: ThroughputRecord, items: float, hours: float) -> float:
    """Return items per slot-hour of all reports but one."""
    left = record.hours - hours
    if left <= 0.0 or items > record.items:
        return record.items / record.hours
    return (record.items - items) / left


def published_rate(reclaim_share: float | None) -> float:
    """Return reclaims per hour from a share per month: -ln(1 - f) / 730.

    Worked: 20 % a month are 0.2231 / 730 = 0.000306 per hour.
    """
    share = UNKNOWN_RECLAIM_SHARE if reclaim_share is None else reclaim_share
    share = min(max(share, 0.0), _RECLAIM_SHARE_AT_MOST)
    return -math.log1p(-share) / HOURS_PER_MONTH


def interruption_rate(record: PoolRecord | None, reclaim_share: float | None) -> float:
    """Return the expected interruptions per hour of a spot pool.

    The mean of a Gamma posterior: the published rate counts as 24 instance-hours, then our own
    interruptions and hours are added. Worked: 20 % a month and one interruption in 6 h:
    (24 x 0.000306 + 1) / (24 + 6) = 0.0336 per hour.
    """
    published = published_rate(reclaim_share)
    if record is None:
        return published
    seen = PRIOR_POOL_HOURS * published + max(record.interruptions, 0.0)
    return seen / (PRIOR_POOL_HOURS + max(record.hours, 0.0))


def boot_p50(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return the usual time from the launch to the first item that code has."""
    return _share_of(knowledge.boots, 0.5) if knowledge.boots else policy.boot_estimate


def boot_p95(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return the time from the launch to the first item that 19 of 20 launches keep.

    Of a few boots that is the slowest, which says little of the next: so what n of them have shown
    counts n times, and beside it 20 times what is usual, at most twice the median (2.1 times are
    measured from the launch to a first container, ``aws_boot_timing_2026``, Spare Cores).
    Worked: 9 boots of 90 s and one of 500 s: (10 x 500 + 20 x 180) / 30 = 287 s.
    """
    return _late(knowledge.boots) if knowledge.boots else policy.boot_estimate


#: Boots of which one is slower than the 95th percentile.
_PRIOR_BOOTS = 20


def surely_up(knowledge: Knowledge, policy: Policy, *, ticks: int) -> timedelta:
    """Return within what time a launch is up: the 95th percentile of boots, and so many ticks.

    One tick is for a second try after a refusal. Another one is for a need that is not seen before
    the next tick.
    """
    return boot_p95(knowledge, policy) + ticks * policy.tick


def _share_of(samples: Sequence[float], share: float) -> timedelta:
    return timedelta(seconds=max(0.0, quantile(samples, share)))


def _late(samples: Sequence[float]) -> timedelta:
    """Return what 19 of 20 keep, by some samples; see ``boot_p95``."""
    seen, count = _share_of(samples, 0.95), len(samples)
    usual = min(seen, 2 * _share_of(samples, 0.5))
    return (count * seen + _PRIOR_BOOTS * usual) / (count + _PRIOR_BOOTS)


def check_in_within(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return how long a launch may take to check in before it counts as failed.

    What comes after the check-in, a model that is loaded or an input of hours, is no part of it.
    """
    if not knowledge.check_ins:
        return policy.scale_up_timeout
    return max(policy.scale_up_timeout, 2 * _late(knowledge.check_ins))


def items_per_job(knowledge: Knowledge, policy: Policy) -> float:
    """Return the mean items of a job, at least one."""
    record = knowledge.jobs
    # Less than one job was written by nobody of ours.
    mean = record.items / record.jobs if record.jobs >= 1.0 else policy.items_per_job_estimate
    return min(max(1.0, mean), float(ITEMS_MOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """GiB that an item moves between bucket and worker."""

    gib_in: float
    gib_out: float


#: Items that the estimate of an item's bytes counts as.
PRIOR_MOVED_ITEMS = 1.0
_MIB_PER_GIB = 1024.0


def traffic(knowledge: Knowledge, policy: Policy) -> Traffic:
    """Return what an item moves: the mean over all GPUs, pulled toward the estimate.

    (GiB seen + estimate x 1) / (items seen + 1). Worked: 1 MiB estimated, 99 items of 8 MiB each:
    (99 x 8 + 1) / 100 = 7.93 MiB.
    """
    records = knowledge.throughput.values()
    items = sum(max(record.moved, 0.0) for record in records) + PRIOR_MOVED_ITEMS
    estimate = policy.mib_per_item_estimate / _MIB_PER_GIB * PRIOR_MOVED_ITEMS
    return Traffic(
        gib_in=(sum(max(record.gib_in, 0.0) for record in records) + estimate) / items,
        gib_out=sum(max(record.gib_out, 0.0) for record in records) / items,
    )


def checkpoint_cost(knowledge: Knowledge) -> timedelta:
    """Return how long computing stands still for a checkpoint: the median."""
    if not knowledge.checkpoints:
        return COST_ESTIMATE
    return timedelta(seconds=max(0.0, quantile(knowledge.checkpoints, 0.5)))


#: Reports from which their quantiles say something.
ROBUST_FROM = 3


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least ``share`` of the samples do not exceed."""
    return _quantile_of(tuple(samples), share)


@lru_cache(maxsize=256)
def _quantile_of(samples: tuple[float, ...], share: float) -> float:
    """Asked for the same samples several times in every tick."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


#: Standard deviation of ln(measured speed / speed by the data sheet), relative to a T4. It is 0.285
#: over three language models, prefill and decode each, on five GPUs (llama-bench on EC2, Spare
#: Cores).
DATA_SHEET_ERROR = 0.3
#: Share of a normal distribution within one standard deviation.
_TWO_OF_THREE = 0.683


@lru_cache(maxsize=256)
def data_sheet_worth(rates: tuple[tuple[float, ...], ...]) -> float:
    """Return how many workers a data sheet counts as: (s / 0.3)^2.

    s is the spread of the reports: the logarithms of two in three of them are within s of the
    median of their GPU. That is one standard deviation of a normal distribution, and one job that
    hung does not change it. Before there are reports, s is assumed to be 0.3, and this assumption
    counts as one report. The jobs of one worker resemble each other, since they came one after the
    other, so all of them together say no more than one job drawn at random. Worked: where jobs are
    alike, 20 reports leave 1 / 20 of a worker; where s = 0.6, 4.

    Args:
        rates: of each kind of GPU, items per slot-hour of the last reports.
    """
    apart: list[float] = []
    freedom = 0
    for reports in rates:
        logs = [math.log(rate) for rate in reports if rate > 0.0]
        if logs:
            middle = quantile(logs, 0.5)
            apart += (abs(each - middle) for each in logs)
            freedom += len(logs) - 1
    spread = quantile(apart, _TWO_OF_THREE) if apart else 0.0
    squared = (DATA_SHEET_ERROR**2 + freedom * spread**2) / (1 + freedom)
    return squared / DATA_SHEET_ERROR**2
