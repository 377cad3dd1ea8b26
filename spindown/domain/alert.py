"""Which alerts a person is told, and when: once one has lasted, and then not again for a while.

A condition that comes and goes counts as one. It is over when somebody says so, or when it has not
been seen for ``FORGOTTEN_AFTER``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

#: An alert that is not seen for this long is over, and counts as a new one if it comes back. Longer
#: than an hour, since some are looked for every hour.
FORGOTTEN_AFTER = timedelta(hours=2)
#: An alert that lasts is told again after this.
SAID_AGAIN_AFTER = timedelta(days=1)
#: How exactly the last time of an alert is remembered, so that not every look writes.
_SEEN_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that a person should fix. Settings in its text stand in backticks."""

    #: One of a few: the dimension of a metric, and the key of what is remembered.
    name: str
    #: What has happened: one sentence or more.
    says: str
    #: What to do: the setting to change, the command to run; an imperative clause or more.
    remedy: str
    #: How long it must last before anybody is told.
    for_: timedelta = timedelta(0)
    #: Least time before it is told again, even if it was over in between.
    rest: timedelta = timedelta(hours=1)

    @property
    def text(self) -> str:
        """Return what the person reads."""
        return f"{self.says} To do: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """What is remembered of one alert."""

    #: Since when it lasts.
    since: datetime
    seen_at: datetime
    #: When a person was last told; None: never.
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What one look at all alerts comes to."""

    #: Those that have lasted for ``for_``.
    standing: tuple[Alert, ...] = ()
    #: Those of them that a person is to be told of now.
    due: tuple[Alert, ...] = ()
    #: Name -> what is known of each that was found.
    present: Mapping[str, AlertState] = field(default_factory=dict)
    #: Name -> what to remember from now on, where that has changed.
    changed: Mapping[str, AlertState] = field(default_factory=dict)
    #: What nobody need remember any more.
    forgotten: tuple[str, ...] = ()


def review(
    found: Sequence[Alert],
    known: Mapping[str, AlertState],
    now: datetime,
    *,
    over: Collection[str] = (),
) -> Review:
    """Compare what is found now with what is remembered.

    Args:
        found: what is wrong now; of several with one name the first counts.
        known: name -> what is remembered, of these and of others.
        now: the time.
        over: names of alerts that are over for certain, unless they are found.
    """
    first: dict[str, Alert] = {}
    for alert in found:
        first.setdefault(alert.name, alert)
    standing, due = [], []
    changed: dict[str, AlertState] = {}
    present: dict[str, AlertState] = {}
    for name, alert in first.items():
        before = known.get(name)
        after = present[name] = _seen(before, now)
        if now - after.since >= alert.for_:
            standing.append(alert)
            if _is_due(alert, after):
                due.append(alert)
        if before is None or now - before.seen_at >= _SEEN_WITHIN:
            changed[name] = after
    gone = {name: one for name, one in known.items() if name not in first}
    for name, one in gone.items():
        if name in over and now - one.seen_at <= FORGOTTEN_AFTER:
            # As if it had not been seen for a long time.
            changed[name] = replace(one, seen_at=now - FORGOTTEN_AFTER - _SEEN_WITHIN)
    return Review(
        standing=tuple(standing),
        due=tuple(due),
        present=present,
        changed=changed,
        forgotten=tuple(name for name, one in gone.items() if _is_past(one, now)),
    )


def _seen(before: AlertState | None, now: datetime) -> AlertState:
    if before is None:
        return AlertState(since=now, seen_at=now)
    is_new = now - before.seen_at > FORGOTTEN_AFTER
    return AlertState(since=now if is_new else before.since, seen_at=now, told_at=before.told_at)


def _is_due(alert: Alert, alert_state: AlertState) -> bool:
    told = alert_state.told_at
    if told is None:
        return True
    silent_for = alert_state.seen_at - told
    if told < alert_state.since:
        return silent_for >= alert.rest
    return silent_for >= SAID_AGAIN_AFTER


def _is_past(alert_state: AlertState, now: datetime) -> bool:
    """Tell whether an alert is over and would be news if it came back."""
    last = max(alert_state.seen_at, alert_state.told_at or alert_state.seen_at)
    return now - last > SAID_AGAIN_AFTER
