"""Since when somebody has been there to hear what workers say of themselves."""

from datetime import datetime, timedelta

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


def could_check_in(
    launched_at: datetime, until: datetime, watched_since: datetime | None, within: timedelta
) -> bool:
    """Tell whether a worker that never checked in had somebody there to hear it.

    Args:
        launched_at: when it began to boot.
        until: its end, or the present.
        watched_since: since when ticks have reached the ledger without a break; None: always.
        within: how long a boot may take.
    """
    if watched_since is None or watched_since <= launched_at:
        return True
    return until - watched_since > within
