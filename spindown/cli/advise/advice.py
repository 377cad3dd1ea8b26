"""An advice: the settings in force, the cheapest ones, and when not to use Spindown."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Any

from spindown.cli.advise.search import (
    LEAST_GAIN,
    AdvisedSettings,
    Known,
    Trial,
    keeps_promise,
    search,
)
from spindown.cli.history.gather import Gathered
from spindown.cli.render.screen import format_wait
from spindown.cli.simulate.alternative import Alternative, Role
from spindown.config import format_duration
from spindown.domain.advice import (
    GapShare,
    LongJobs,
    Verdict,
    find_gaps,
    find_long_jobs,
    gap_share,
    judge_constant_load,
    judge_interruptions,
    judge_latency,
    judge_long_items,
    judge_small_bill,
)
from spindown.domain.bake_or_bootstrap import compare_modes
from spindown.domain.boot import BootProfile, usual_boot
from spindown.domain.idle import LONGEST_TIMEOUT, SHORTEST_TIMEOUT, cheapest_timeout
from spindown.domain.offer import (
    HOURS_PER_MONTH,
    CapacityType,
    extra_price_per_hour,
    slot_count,
)
from spindown.domain.policy import Policy
from spindown.reason_text import say_boot, say_count
from spindown.simulator import Arrival, Listing, SimResult, on_demand_only


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """The long jobs, and the advised settings simulated with a deadline for all jobs."""

    long: LongJobs
    result: SimResult


def long_jobs(trial: Trial, gathered: Gathered, months: float) -> LongJobs | None:
    """Return the long jobs of a trial; None: none, or a deadline would change nothing."""
    policy = trial.settings.policy
    counts = trial.result.types
    if policy.finish_within is not None or not _opens_on_demand(policy) or not counts:
        return None
    name = max(counts, key=lambda each: counts[each])
    listing = next(x for x in gathered.prices.listings if x.instance_type.name == name)
    spot = [price for zone in listing.zones.values() for _, price in zone.spot]
    if listing.on_demand is None or not spot:
        return None
    found = find_long_jobs(
        [_seconds(each, policy, listing.speed) for each in gathered.traffic.arrivals],
        months=months,
        spot=median(spot),
        on_demand=listing.on_demand,
        done_after=trial.result.sojourn.most,
    )
    if found is None:
        return None
    # On a machine with several slots a job pays its share.
    slots = slot_count(listing.instance_type.gpu_count, gathered.subject.slots)
    return replace(found, more_an_hour=found.more_an_hour / slots)


def with_deadline(settings: AdvisedSettings, long: LongJobs) -> AdvisedSettings:
    """Return settings with a deadline that gives long jobs time to wait."""
    return replace(settings, policy=replace(settings.policy, finish_within=long.within))


def say_postponed(postponed: Postponed, policy: Policy, months: float) -> str:
    """Say what a deadline would change, with figures."""
    long, result = postponed.long, postponed.result
    within = format_duration(long.within)
    after = format_duration(_opens_after(policy))
    count = round(long.jobs)
    jobs = f"{say_count(count, 'job')} a month {'takes' if count == 1 else 'take'}"
    return (
        f"{jobs} an hour or more, {say_count(f'{long.hours:,.0f}', 'hour')} in all, the longest "
        f" {format_wait(long.longest.total_seconds())}. No history says by when they must "
        f"be done. If {within} after they were sent is soon enough, finish_within={within} lets "
        f"them wait for spot where otherwise on-demand is bought within {after}: that spares "
        f"${long.more_an_hour:,.2f} an hour of such work, ${long.more_a_month:,.2f} a month if "
        "there were no spot for any of it. Simulated here, where spot never runs out, the month "
        f"costs ${result.dollars / months:,.2f} with it, and the last job is done after "
        f"{format_wait(result.sojourn.most)}."
    )


def postponed_to_json(postponed: Postponed, months: float) -> dict[str, Any]:
    """Return the same for programs."""
    long, result = postponed.long, postponed.result
    return {
        "jobs_a_month": long.jobs,
        "hours_a_month": long.hours,
        "longest_seconds": long.longest.total_seconds(),
        "finish_within": format_duration(long.within),
        "spared_an_hour": long.more_an_hour,
        "spared_a_month_at_most": long.more_a_month,
        "dollars_a_month": result.dollars / months,
        "finished_within_seconds": result.sojourn.most,
    }


def _seconds(arrival: Arrival, policy: Policy, speed: float) -> float:
    """Return how long a job takes, split into its children."""
    return min(arrival.items, policy.max_items_per_job) * arrival.item_seconds / speed


def _opens_on_demand(policy: Policy) -> bool:
    """Tell whether on-demand is bought only after a wait."""
    kinds = [rung.capacity_types for rung in policy.ladder]
    return any(CapacityType.ON_DEMAND in each for each in kinds[1:]) and (
        CapacityType.ON_DEMAND not in kinds[0]
    )


def _opens_after(policy: Policy) -> timedelta:
    """Return the longest wait before on-demand is bought: `start_within` opens every rung."""
    afters = [x.after for x in policy.ladder if CapacityType.ON_DEMAND in x.capacity_types]
    return min(*afters, policy.start_within)


#: Of an on-demand price: a standard reserved instance for one year without upfront payment
#: (published comparisons of AWS's prices give 37 % off; the range of one-year terms is 27 to 40 %).
RESERVED_SHARE = 0.63
_HOUR = 3600.0

#: Simulates alternatives side by side on the gathered world.
Simulate = Callable[[Sequence[Alternative], Iterable[Alternative]], Sequence[SimResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The gaps that the work of a trial leaves, and how its idle timeout fits them."""

    #: In force; as learned from these gaps, if the policy says so.
    timeout: timedelta
    gaps: GapShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The advice."""

    gathered: Gathered
    #: 95 % of jobs start within so many seconds, and the source of that figure, for people.
    promise: float
    promise_source: str
    present: Trial
    best: Trial
    present_idle: Idle
    best_idle: Idle
    #: Empty: work is left undone, so costs cannot be compared.
    verdicts: tuple[Verdict, ...]
    #: None: no job is long, or a deadline would change nothing.
    postponed: Postponed | None = None
    simulations: int
    #: Dollars of the settings in force and of the advised ones, simulated with the next seed;
    #: None: nothing is saved, or this was not simulated.
    again: tuple[float, float] | None = None

    @property
    def boot(self) -> BootProfile | None:
        """Return the usual boot; None: none was measured."""
        return usual_boot(self.gathered.subject.knowledge.boot_phases)

    def installs_a_month(self, boot: BootProfile) -> float:
        """Return what installs at boots cost a month with the advised settings, USD."""
        return self.best.result.bill["boot"] / self.months * boot.install_share

    @property
    def months(self) -> float:
        """Return how many months of 730 hours the history is."""
        return max(self.gathered.traffic.length / _HOUR, 1.0) / HOURS_PER_MONTH

    def a_month(self, trial: Trial) -> float:
        """Return USD a month."""
        return trial.result.dollars / self.months

    @property
    def saving_a_month(self) -> float | None:
        """Return USD a month that the advised settings save; None: work is left undone now."""
        if undone(self.present.result):
            return None
        return self.a_month(self.present) - self.a_month(self.best)

    @property
    def saving_again(self) -> float | None:
        """Return USD a month that they save with the next seed; None: it was not simulated."""
        return None if self.again is None else (self.again[0] - self.again[1]) / self.months


def say_boots(boot: BootProfile, advice: Advice) -> str:
    """Say how long a boot takes; of a slow install also what each mode of the image costs."""
    said = f"A boot takes {say_boot(boot)}."
    if not boot.is_slow_to_install:
        return said
    return (
        f"{said} Installs and images cost a month, by `image.mode`: "
        + ", ".join(f"{mode} ${usd:,.2f}" for mode, usd in _modes(boot, advice).items())
        + " (images at most; making and storing one of your own is not counted)."
    )


def boots_to_json(boot: BootProfile, advice: Advice) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "phases": {str(phase): seconds for phase, seconds in boot.phases.items()},
        "slowest": str(boot.slowest),
        "modes_a_month": _modes(boot, advice) if boot.is_slow_to_install else None,
    }


def _modes(boot: BootProfile, advice: Advice) -> Mapping[str, float]:
    """Return ``image.mode`` -> USD a month with the advised settings."""
    subject = advice.gathered.subject
    return compare_modes(
        advice.installs_a_month(boot),
        0.0,
        root_gib=subject.root_volume_gib,
        architectures=len(subject.requirements.architectures),
        regions=max(len(subject.regions), 1),
    )


def advise(
    gathered: Gathered, promise: float | None, simulate: Simulate, again: Simulate | None = None
) -> Advice:
    """Return the advice for a history.

    Args:
        gathered: history, market and the settings in force.
        promise: seconds within which 95 % of jobs must start; None: no later than now, or as the
            policy says if work is left undone now.
        simulate: runs alternatives; it gets those that may be asked for later, too.
        again: runs them with the next seed, to see whether a saving was chance.
    """
    count = _Count(simulate)
    subject = gathered.subject
    now = AdvisedSettings(
        policy=subject.policy, families_denied=subject.requirements.families_denied
    )
    (first,) = count("now", [now], _break_even(now))
    present = Trial(settings=now, result=first)
    within, source = _find_promise(promise, present)
    listings = gathered.prices.listings
    known = Known(
        gaps=_gaps(first, gathered),
        families=frozenset(each.instance_type.family for each in listings),
        promise=within,
        spot_at_most={each.instance_type.name: _dearest(each) for each in listings},
        at_most={
            each.instance_type.name: max(_dearest(each), each.on_demand or 0.0) for each in listings
        },
    )
    best = search(present, known, count, _break_even)
    advice = Advice(
        gathered=gathered,
        promise=known.promise,
        promise_source=source,
        present=present,
        best=best,
        present_idle=_look_at_gaps(present, gathered),
        best_idle=_look_at_gaps(best, gathered),
        verdicts=(),
        simulations=0,
    )
    if undone(best.result):
        return replace(advice, simulations=count.done)
    postponed, verdicts = _postpone(advice, count), _judge(advice, count)
    advice = replace(advice, verdicts=verdicts, postponed=postponed, simulations=count.done)
    return advice if again is None else _look_again(advice, _Count(again))


def _look_again(advice: Advice, count: "_Count") -> Advice:
    if (advice.saving_a_month or 0.0) <= 0.0:
        return advice
    now, best = count("again", [advice.present.settings, advice.best.settings], ())
    done = advice.simulations + count.done
    return replace(advice, again=(now.dollars, best.dollars), simulations=done)


def undone(result: SimResult) -> int:
    """Return how many jobs were left undone."""
    return result.jobs - result.jobs_done


def _find_promise(asked: float | None, present: Trial) -> tuple[float, str]:
    """Return seconds, and their source."""
    if asked is not None:
        return asked, "as asked"
    if undone(present.result):
        # Jobs that never start have no wait that could be kept.
        return present.settings.policy.start_within.total_seconds(), "as start_within says"
    return present.result.wait.p95, "no later than now"


def _postpone(advice: Advice, count: "_Count") -> Postponed | None:
    long = long_jobs(advice.best, advice.gathered, advice.months)
    if long is None:
        return None
    settings = advice.best.settings
    (result,) = count("finish_within", [with_deadline(settings, long)], _break_even(settings))
    is_kept = not undone(result) and result.sojourn.most <= long.within.total_seconds()
    is_dearer = result.dollars > advice.best.result.dollars * (1.0 + LEAST_GAIN)
    # What is not kept, or costs more even where spot never runs out, is no advice.
    return Postponed(long=long, result=result) if is_kept and not is_dearer else None


class _Count:
    """Simulates settings, and counts."""

    def __init__(self, simulate: Simulate) -> None:
        self._simulate = simulate
        self.done = 0

    def __call__(
        self, name: str, variants: Sequence[AdvisedSettings], likely: Iterable[AdvisedSettings]
    ) -> Sequence[SimResult]:
        self.done += len(variants)
        later = (_alternative(name, settings) for settings in likely)
        return self._simulate([_alternative(name, one) for one in variants], later)


def _alternative(name: str, settings: AdvisedSettings) -> Alternative:
    return Alternative(
        name=name,
        title=name,
        role=Role.OURS,
        policy=settings.policy,
        families_denied=settings.families_denied,
    )


def _dearest(listing: Listing) -> float:
    """Return what a type costs as spot at most, USD per hour."""
    steps = (price for zone in listing.zones.values() for _, price in zone.spot)
    return max(steps, default=0.0)


def _gaps(result: SimResult, gathered: Gathered) -> list[float]:
    looks = ((x.seconds, x.visible + x.in_flight > 0) for x in result.samples)
    return find_gaps(looks, [arrival.at for arrival in gathered.traffic.arrivals])


def _look_at_gaps(trial: Trial, gathered: Gathered) -> Idle:
    """Return how an idle timeout fits the gaps; a slower policy has fewer gaps."""
    gaps = _gaps(trial.result, gathered)
    timeout = trial.settings.policy.idle_timeout
    if timeout is None:
        boot = gathered.subject.boot.at_least + gathered.subject.boot.median
        best = timedelta(seconds=math.ceil(cheapest_timeout(gaps, boot)))
        timeout = min(max(best, SHORTEST_TIMEOUT), LONGEST_TIMEOUT)
    return Idle(timeout=timeout, gaps=gap_share(gaps, timeout.total_seconds()))


def _break_even(settings: AdvisedSettings) -> Sequence[AdvisedSettings]:
    """Return settings with a warm worker, and others that buy on demand only."""
    # A warm worker alone does not help a job that waits behind another one.
    warm = replace(
        settings.policy,
        warm_workers=max(settings.policy.warm_workers, 1),
        max_workers=max(settings.policy.max_workers, 1),
        start_within=timedelta(minutes=1),
        drain_within=timedelta(minutes=2),
        scale_up_threshold=1,
    )
    return [replace(settings, policy=each) for each in (warm, on_demand_only(settings.policy))]


def _judge(advice: Advice, count: _Count) -> tuple[Verdict, ...]:
    settings, gathered = advice.best.settings, advice.gathered
    warm, on_demand = _break_even(settings)
    with_warm, without_spot = count("break-even", [warm, on_demand], ())
    months, month = advice.months, advice.a_month(advice.best)
    result, boot = advice.best.result, gathered.subject.boot
    jobs = result.jobs / months
    return (
        judge_latency(
            month=month,
            warm_month=with_warm.dollars / months,
            jobs=jobs,
            promise=advice.promise,
            boot=boot.at_least + boot.median,
            wait=result.wait.p95,
            warm_wait=with_warm.wait.p95,
            warm_workers=warm.policy.warm_workers,
            is_kept=_is_in_time(advice),
        ),
        _judge_load(advice, month),
        judge_small_bill(month=month, by_hand_month=_by_hand(advice), jobs=jobs),
        _judge_items(advice),
        judge_interruptions(
            month=month,
            on_demand_month=without_spot.dollars / months,
            interruptions=result.interruptions / months,
            redone_hours=result.redo_seconds / _HOUR / months,
        ),
    )


def _judge_items(advice: Advice) -> Verdict:
    """Judge the longest item without a checkpoint, on the type that is launched most.

    In the zone that bears the longest, by its usual price and own rate; of equals, the cheapest.
    """
    gathered, counts = advice.gathered, advice.best.result.types
    name = max(counts, key=lambda each: counts[each], default="")
    used = [x for x in gathered.prices.listings if x.instance_type.name == name]
    listing = used[0] if used else _cheapest(gathered)
    items = [x.item_seconds for x in gathered.traffic.arrivals if not x.keeps_state]
    boot, extra = gathered.subject.boot, _extra(advice)
    on_demand = listing.on_demand or math.inf
    sold = [
        (median(price for _, price in zone.spot), zone.reclaims_per_hour)
        for zone in listing.zones.values()
        if zone.spot
    ]
    verdicts = [
        judge_long_items(
            longest=max(items, default=0.0) / listing.speed / _HOUR,
            rate=rate,
            boot=(boot.at_least + boot.median) / _HOUR,
            spot=price + extra,
            on_demand=on_demand + extra,
        )
        for price, rate in sorted(sold) or [(on_demand, 0.0)]
    ]
    return max(verdicts, key=lambda each: each.break_even or 0.0)


def _is_in_time(advice: Advice) -> bool:
    """Tell whether the advised settings keep the promise without a warm worker."""
    policy = advice.best.settings.policy
    is_warm = policy.warm_workers > 0 or bool(policy.warm_schedule)
    return not is_warm and keeps_promise(advice.best.result, advice.promise)


def _judge_load(advice: Advice, month: float) -> Verdict:
    """Compare with reserved machines: the cheapest ones that could do all the work."""
    hours = max(advice.gathered.traffic.length / _HOUR, 1.0)
    always = advice.best.result.work_seconds / _HOUR / hours

    def reserve(listing: Listing) -> tuple[float, float, int]:
        needed = always / _whole_speed(listing, advice)
        machines = max(1, math.ceil(needed))
        an_hour = (listing.on_demand or math.inf) * RESERVED_SHARE + _extra(advice)
        return an_hour * HOURS_PER_MONTH * machines, needed / machines, machines

    best = min(advice.gathered.prices.listings, key=reserve)
    reserved_month, share, machines = reserve(best)
    return judge_constant_load(
        month=month,
        work_month=month * _work_share(advice.best.result),
        reserved_month=reserved_month,
        machine=best.instance_type.name,
        share=share,
        machines=machines,
    )


def _work_share(result: SimResult) -> float:
    """Return the share of a bill that paid for work, repeated work included."""
    worked = result.bill["work"] + result.bill["redo"]
    return worked / result.dollars if result.dollars > 0.0 else 0.0


def _by_hand(advice: Advice) -> float:
    """Return USD a month of the work alone, on demand on the best type for it."""
    listing = _cheapest(advice.gathered)
    work_hours = advice.best.result.work_seconds / _HOUR / advice.months
    an_hour = (listing.on_demand or 0.0) + _extra(advice)
    return work_hours / _whole_speed(listing, advice) * an_hour


def _cheapest(gathered: Gathered) -> Listing:
    """Return the type that does most work for its on-demand price."""
    slots = gathered.subject.slots
    sold = [each for each in gathered.prices.listings if each.on_demand]
    return min(
        sold or gathered.prices.listings,
        key=lambda each: (
            (each.on_demand or math.inf)
            / (each.speed * slot_count(each.instance_type.gpu_count, slots))
        ),
    )


def _whole_speed(listing: Listing, advice: Advice) -> float:
    slots = slot_count(listing.instance_type.gpu_count, advice.gathered.subject.slots)
    return listing.speed * slots


def _extra(advice: Advice) -> float:
    return extra_price_per_hour(advice.gathered.subject.root_volume_gib)
