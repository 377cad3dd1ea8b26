"""Since when somebody has been there to hear what workers say of themselves."""

from datetime import datetime

from spindown.domain.policy import Policy


def watch_from(
    watched_since: datetime | None, last_tick: datetime | None, policy: Policy, now: datetime
) -> datetime:
    """Return since when ticks have reached the ledger without a break.

    A break is a span between two good ticks of more than one and a half ticks, and of more than
    a third of ``heartbeat_stale_after``: a shorter one leaves a worker time enough to report.

    Args:
        watched_since: what the last good tick found; None: nothing.
        last_tick: when that was; None: there was none.
        policy: in force.
        now: of this tick, which has read the ledger.
    """
    allowed = max(1.5 * policy.tick, policy.heartbeat_stale_after / 3)
    if watched_since is None or last_tick is None or now - last_tick > allowed:
        return now
    return watched_since
