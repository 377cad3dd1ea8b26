"""Find the cheapest settings within a promise: coordinate search, one setting after the other.

Not all combinations are tried: that would take hundreds of simulated months to save a cent. Each
stage varies one setting of the best so far. At the end each change but the last is undone once,
and stays undone if it saves nothing beside the others. It takes 29 simulations at most.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain

from spindown.domain.advice import gap_quantile
from spindown.domain.idle import LONGEST_TIMEOUT, SHORTEST_TIMEOUT
from spindown.domain.policy import Policy
from spindown.simulator import SimResult

_MINUTE = 60.0
#: Values of start_within that are tried besides the longest; drain_within is twice as long.
_START_MINUTES = (1, 4, 10, 30)
#: Waiting longer than half a day saves nothing: a boot costs a cent.
_LONGEST_MINUTES = 12 * 60
#: Share of a promise to aim at: 95 % start within ``start_within`` or a little later.
_ROOM = 0.95
#: Promises at which gathering is tried, the longest.
_GATHERED_AT_MOST = 2
#: Shares of the gaps that the fixed idle timeouts cover.
_COVERED = (0.5, 0.9)
_CLASSIC_IDLE = timedelta(minutes=10)
_PRICE_FACTORS = (0.5, 2.0)
_WORKER_FACTORS = (2, 4)
#: How many families are left out in a trial.
_FAMILIES_AT_MOST = 3
#: Smallest saving that is worth a change; less is chance.
LEAST_GAIN = 0.01
#: The same for families: they need a deploy, and leave fewer pools when one runs dry.
_LEAST_FAMILY_GAIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedSettings:
    """Settings that may be advised."""

    policy: Policy
    families_denied: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Settings and their result."""

    settings: AdvisedSettings
    result: SimResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the search knows about the traffic and the market."""

    #: Length of each gap without work, seconds.
    gaps: Sequence[float]
    #: Families that are sold, denied ones too.
    families: frozenset[str]
    #: 95 % of jobs start within so many seconds.
    promise: float
    #: Type -> USD per hour that it ever costs, at most: as spot, and in any way.
    spot_at_most: Mapping[str, float]
    at_most: Mapping[str, float]


#: Simulates settings side by side. It gets the name of what varies, the settings, and what may be
#: asked for after them if none of them is better.
Try = Callable[[str, Sequence[AdvisedSettings], Iterable[AdvisedSettings]], Sequence[SimResult]]


def search(
    present: Trial,
    known: Known,
    attempt: Try,
    after: Callable[[AdvisedSettings], Iterable[AdvisedSettings]] = lambda _: (),
) -> Trial:
    """Return the cheapest settings within the promise; if none is cheaper, the present ones.

    ``after`` tells what else is to be simulated for the best settings, once they are found.
    """
    best, last = present, ""
    stages = list(_STAGES.items())
    for number, (name, replace_fields) in enumerate(stages):
        variants = _variants(replace_fields, best, known)
        if not variants:
            continue
        later = (_variants(other, best, known) for _, other in stages[number + 1 :])
        results = attempt(name, variants, chain(after(best.settings), *later))
        trials = [Trial(settings=s, result=r) for s, r in zip(variants, results, strict=True)]
        gain = _LEAST_FAMILY_GAIN if replace_fields is _families else LEAST_GAIN
        better = _better(best, trials, known.promise, gain)
        if better is not best:
            best, last = better, name
    return _take_back(best, present, known, attempt, kept=last)


def _variants(vary: "_Vary", best: Trial, known: Known) -> list[AdvisedSettings]:
    """Return other settings that a stage tries, each once."""
    return [each for each in dict.fromkeys(vary(best, known)) if each != best.settings]


def _take_back(best: Trial, present: Trial, known: Known, attempt: Try, *, kept: str) -> Trial:
    """Return the best without changes that save nothing; ``kept`` was the last change."""
    for name, fields in _CHANGED.items():
        settings = _without(best.settings, present.settings, fields)
        if name == kept or settings in {best.settings, present.settings}:
            continue
        (result,) = attempt(f"without {name}", [settings], ())
        least = _LEAST_FAMILY_GAIN if name == "families" else LEAST_GAIN
        saves = 1.0 - best.result.dollars / max(result.dollars, 1e-9)
        if keeps_promise(result, known.promise) and saves < least:
            best = Trial(settings=settings, result=result)
    return best


def _without(
    best: AdvisedSettings, present: AdvisedSettings, fields: Sequence[str]
) -> AdvisedSettings:
    if not fields:
        return replace(best, families_denied=present.families_denied)
    before = {field: getattr(present.policy, field) for field in fields}
    return replace(best, policy=replace(best.policy, **before))


def keeps_promise(result: SimResult, promise: float) -> bool:
    """Tell whether all jobs were done and started in time."""
    return result.jobs_done == result.jobs and result.wait.p95 <= promise


def _better(best: Trial, trials: Sequence[Trial], promise: float, least_gain: float) -> Trial:
    kept = [trial for trial in trials if keeps_promise(trial.result, promise)]
    if not kept:
        return best
    cheapest = min(kept, key=lambda trial: trial.result.dollars)
    if not keeps_promise(best.result, promise):
        return cheapest
    gain = 1.0 - cheapest.result.dollars / max(best.result.dollars, 1e-9)
    return cheapest if gain >= least_gain else best


def _workers(best: Trial, _known: Known) -> Iterator[AdvisedSettings]:
    """Allow more workers where at times all that are allowed ran."""
    most = best.settings.policy.max_workers
    if best.result.peak >= most:
        for factor in _WORKER_FACTORS:
            yield _with(best, max_workers=most * factor)


def _start_within(best: Trial, known: Known) -> Iterator[AdvisedSettings]:
    for minutes in _starts(best, known):
        start = timedelta(minutes=minutes)
        yield _with(best, start_within=start, drain_within=2 * start)


def _starts(best: Trial, known: Known) -> list[int]:
    """Return values of ``start_within`` in minutes, up to what the promise allows.

    With a deadline, ``start_within`` and a boot must be shorter than ``finish_within``.
    """
    policy, seconds = best.settings.policy, known.promise * _ROOM
    if policy.finish_within is not None:
        leaves = policy.finish_within - policy.boot_estimate
        seconds = min(seconds, leaves.total_seconds() - _MINUTE)
    longest = min(int(seconds / _MINUTE), _LONGEST_MINUTES)
    return sorted({*(each for each in _START_MINUTES if each <= longest), max(longest, 1)})


def _gather(best: Trial, known: Known) -> Iterator[AdvisedSettings]:
    """Vary whether work gathers; work gathers no longer than ``start_within`` allows."""
    if best.settings.policy.scale_up_threshold is None:
        yield _with(best, scale_up_threshold=1)
        return
    yield _with(best, scale_up_threshold=None)
    for minutes in _starts(best, known)[-_GATHERED_AT_MOST:]:
        start = timedelta(minutes=minutes)
        yield _with(best, scale_up_threshold=None, start_within=start, drain_within=2 * start)


def _idle(best: Trial, known: Known) -> Iterator[AdvisedSettings]:
    yield _with(best, idle_timeout=None)
    for share in _COVERED if known.gaps else ():
        seconds = timedelta(seconds=round(gap_quantile(known.gaps, share)))
        if seconds <= LONGEST_TIMEOUT:
            yield _with(best, idle_timeout=max(seconds, SHORTEST_TIMEOUT))
    yield _with(best, idle_timeout=_CLASSIC_IDLE)


def _price(best: Trial, known: Known) -> Iterator[AdvisedSettings]:
    """Vary the ceiling; one that rules out nothing that was bought, or lets in nothing, is none."""
    now, result = best.settings.policy.max_price_per_hour, best.result
    prices = known.spot_at_most if result.on_demand_dollars == 0 else known.at_most
    bought = max((prices.get(name, math.inf) for name in result.types), default=math.inf)
    lower, higher = (round(now * factor, 2) for factor in _PRICE_FACTORS)
    if bought > lower:
        yield _with(best, max_price_per_hour=lower)
    if max(known.at_most.values()) > now:
        yield _with(best, max_price_per_hour=higher)


def _families(best: Trial, known: Known) -> Iterator[AdvisedSettings]:
    denied = best.settings.families_denied
    if denied & known.families:
        yield replace(best.settings, families_denied=frozenset())
    allowed = known.families - denied
    launches: dict[str, int] = {}
    for name, count in best.result.types.items():
        family = name.partition(".")[0]
        launches[family] = launches.get(family, 0) + count
    used = sorted(launches, key=lambda family: -launches[family])
    for family in used[:_FAMILIES_AT_MOST] if len(allowed) > 1 else ():
        yield replace(best.settings, families_denied=denied | {family})


#: What a stage tries.
_Vary = Callable[[Trial, Known], Iterator[AdvisedSettings]]

_STAGES: dict[str, _Vary] = {
    "max_workers": _workers,
    "start_within": _start_within,
    "scale_up_threshold": _gather,
    "idle_timeout": _idle,
    "max_price": _price,
    "families": _families,
}


#: Stage -> the policy keys that it changes; empty: it changes families.
_CHANGED: dict[str, tuple[str, ...]] = {
    "max_workers": ("max_workers",),
    "start_within": ("start_within", "drain_within"),
    "scale_up_threshold": ("scale_up_threshold",),
    "idle_timeout": ("idle_timeout",),
    "max_price": ("max_price_per_hour",),
    "families": (),
}


def _with(best: Trial, **changes: object) -> AdvisedSettings:
    return replace(best.settings, policy=replace(best.settings.policy, **changes))  # type: ignore[arg-type]
