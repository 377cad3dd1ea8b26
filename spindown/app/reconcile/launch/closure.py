"""In which regions nothing may be launched now, or only last of all.

Left out, stopped, on trial, told to wait; or without an answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from spindown.app.reconcile.breaker import STRIKES
from spindown.app.reconcile.launch.adopt import UNANSWERED, decode_request
from spindown.app.reconcile.launch.outcome import backing_off_until
from spindown.app.reconcile.tick import Tick
from spindown.contract.row import BreakerRow
from spindown.domain.fleet import LaunchState, Worker
from spindown.domain.ranking import Candidate, CandidateList, RegionBlock, bands
from spindown.domain.reason import Reason, ReasonCode

#: Candidates that one walk can reach; the tick after it sees the next ones.
_LISTED = 400


def closed_regions(tick: Tick) -> Mapping[str, RegionBlock]:
    """Return the regions in which nothing may be launched now, home first, and why."""
    home = tick.deployment.region
    return {
        region: block
        for region in sorted(tick.settings.outposts, key=lambda name: (name != home, name))
        if (block := _block(tick, region)) is not None
    }


def _block(tick: Tick, region: str) -> RegionBlock | None:
    allowed, breaker = tick.policy.regions, tick.breaker(region)
    if allowed is not None and region not in allowed:
        return RegionBlock(reason=Reason(ReasonCode.REGION_LEFT_OUT, {"region": region}))
    if breaker.open_until is not None and breaker.open_until > tick.now:
        return RegionBlock(reason=launching_stopped(breaker), until=breaker.open_until)
    here = (w for w in tick.workers.values() if w.region == region and w.is_live)
    unproven = [w for w in here if w.claimed_at is None or _is_tried(w, breaker)]
    if unproven and is_on_trial(tick, region):
        trial = unproven[0].instance_id
        return RegionBlock(reason=breaker.reason.within(ReasonCode.IMAGE_ON_TRIAL, trial=trial))
    until = backing_off_until(tick, region)
    return None if until is None else RegionBlock(reason=Reason(ReasonCode.SLOW_DOWN), until=until)


def launching_stopped(breaker: BreakerRow) -> Reason:
    """Return why nothing is launched while a breaker is open."""
    return breaker.reason.within(ReasonCode.LAUNCHING_STOPPED)


def _is_tried(worker: Worker, breaker: BreakerRow) -> bool:
    """Tell whether a worker has taken a job, and is to show that jobs do not all fail any more."""
    since = breaker.open_until
    return breaker.failed >= STRIKES and since is not None and worker.launched_at >= since


def is_on_trial(tick: Tick, region: str) -> bool:
    """Tell whether the last instances of the image there all failed: then one launch tries it."""
    breaker = tick.breaker(region)
    return max(breaker.strikes, breaker.unclaimed, breaker.failed) >= STRIKES


def bands_to_ask(tick: Tick, candidates: CandidateList) -> Iterator[Sequence[Candidate]]:
    """Yield the bands of the list in the order of asking: silent regions after all others."""
    band, rank_by, silent = tick.policy.band, tick.policy.rank_by, _silent_regions(tick)
    if not silent:
        # The list is made as far as it is walked.
        yield from bands(islice(candidates, _LISTED), band, rank_by)
        return
    listed = list(islice(candidates, _LISTED))
    regions = {candidate.offer.region for candidate in listed}
    if silent & regions and regions - silent:
        last = ", ".join(sorted(silent & regions))
        tick.notes.append(f"{last} has not answered a launch, and is asked last")
    for is_silent in (False, True):
        asked = (c for c in listed if (c.offer.region in silent) is is_silent)
        yield from bands(asked, band, rank_by)


def _silent_regions(tick: Tick) -> frozenset[str]:
    """Return the regions in which a launch of late has had no answer, as far as rows tell.

    Who asks there again first waits again, for as long as that launch counts as on its way.
    """
    unanswered = [
        decode_request(launch)
        for launch in tick.launches.values()
        if launch.state is LaunchState.INTENDED or launch.reason.code in UNANSWERED
    ]
    return frozenset(request.region for request in unanswered if request is not None)
