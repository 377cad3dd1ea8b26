"""In which regions nothing may be launched now: left out, stopped, on trial, told to wait."""

from collections.abc import Mapping

from spindown.app.reconcile.breaker import STRIKES
from spindown.app.reconcile.launch.outcome import backing_off_until
from spindown.app.reconcile.tick import Tick
from spindown.contract.row import BreakerRow
from spindown.domain.fleet import Worker
from spindown.domain.ranking import Closure


def closed_regions(tick: Tick) -> Mapping[str, Closure]:
    """Return the regions in which nothing may be launched now, home first, and why."""
    home = tick.deployment.region
    return {
        region: closure
        for region in sorted(tick.settings.outposts, key=lambda name: (name != home, name))
        if (closure := _closure(tick, region)) is not None
    }


def _closure(tick: Tick, region: str) -> Closure | None:
    allowed, breaker = tick.policy.regions, tick.breaker(region)
    if allowed is not None and region not in allowed:
        return Closure(reason=f"regions of the policy leaves {region} out")
    if breaker.open_until is not None and breaker.open_until > tick.now:
        return Closure(reason=f"launching is stopped: {breaker.reason}", until=breaker.open_until)
    here = (w for w in tick.workers.values() if w.region == region and w.is_live)
    unproven = [w for w in here if w.claimed_at is None or _is_tried(w, breaker)]
    if unproven and is_on_trial(tick, region):
        trial = unproven[0].instance_id
        return Closure(reason=f"{trial} tries the image anew: {breaker.reason}")
    until = backing_off_until(tick, region)
    return None if until is None else Closure(reason="EC2 asked to slow down", until=until)


def _is_tried(worker: Worker, breaker: BreakerRow) -> bool:
    """Tell whether a worker has taken a job, and is to show that jobs do not all fail any more."""
    since = breaker.open_until
    return breaker.failed >= STRIKES and since is not None and worker.launched_at >= since


def is_on_trial(tick: Tick, region: str) -> bool:
    """Tell whether the last instances of the image there all failed: then one launch tries it."""
    breaker = tick.breaker(region)
    return max(breaker.strikes, breaker.unclaimed, breaker.failed) >= STRIKES
