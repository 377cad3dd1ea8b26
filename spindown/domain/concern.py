"""What a person must know of, and when to say it: once it has lasted, then not again for a while.

A condition that comes and goes with each look is one condition: unless somebody says that it is
over, it is so only when it has not been seen for ``FORGOTTEN_AFTER``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

#: Not seen for this long, a concern is over; its next time is a new one. Who looks every hour
#: must see it twice.
FORGOTTEN_AFTER = timedelta(hours=2)
#: What lasts is said again after this.
SAID_AGAIN_AFTER = timedelta(days=1)
#: How exactly it is remembered when a concern was last seen, so that not every look writes.
_SEEN_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something that a person should mend. Settings in its text stand in backticks."""

    #: One of a few: a dimension of a metric, and the name of what is remembered.
    name: str
    #: What has happened: one sentence or more.
    says: str
    #: What to do: the setting to change, the command to run; an imperative clause or more.
    mend: str
    #: How long it must last before anybody is told.
    patience: timedelta = timedelta(0)
    #: Least time between two tellings, even if it was over meanwhile.
    rest: timedelta = timedelta(hours=1)

    @property
    def text(self) -> str:
        """Return what the person reads."""
        return f"{self.says} To do: {self.mend}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What is remembered of one concern."""

    #: Since when it lasts.
    since: datetime
    seen_at: datetime
    #: When a person was last told; None: never.
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What one look at all concerns comes to."""

    #: Those that have lasted for their patience.
    standing: tuple[Concern, ...] = ()
    #: Those of them that a person is to be told of now.
    due: tuple[Concern, ...] = ()
    #: Name -> what is known of each that was found.
    present: Mapping[str, Sighting] = field(default_factory=dict)
    #: Name -> what to remember from now on, where that has changed.
    changed: Mapping[str, Sighting] = field(default_factory=dict)
    #: What nobody need remember any more.
    forgotten: tuple[str, ...] = ()


def review(
    found: Sequence[Concern],
    known: Mapping[str, Sighting],
    now: datetime,
    *,
    over: Collection[str] = (),
) -> Review:
    """Compare what is found now with what is remembered.

    Args:
        found: what is wrong now; of several of one name the first counts.
        known: name -> what is remembered, of these and of others.
        now: the time.
        over: names of what is surely over, unless it is found.
    """
    first: dict[str, Concern] = {}
    for concern in found:
        first.setdefault(concern.name, concern)
    standing, due = [], []
    changed: dict[str, Sighting] = {}
    present: dict[str, Sighting] = {}
    for name, concern in first.items():
        before = known.get(name)
        after = present[name] = _seen(before, now)
        if now - after.since >= concern.patience:
            standing.append(concern)
            if _is_due(concern, after):
                due.append(concern)
        if before is None or now - before.seen_at >= _SEEN_WITHIN:
            changed[name] = after
    gone = {name: one for name, one in known.items() if name not in first}
    for name, one in gone.items():
        if name in over and now - one.seen_at <= FORGOTTEN_AFTER:
            # As if it had not been seen for long.
            changed[name] = replace(one, seen_at=now - FORGOTTEN_AFTER - _SEEN_WITHIN)
    return Review(
        standing=tuple(standing),
        due=tuple(due),
        present=present,
        changed=changed,
        forgotten=tuple(name for name, one in gone.items() if _is_past(one, now)),
    )


def _seen(before: Sighting | None, now: datetime) -> Sighting:
    if before is None:
        return Sighting(since=now, seen_at=now)
    is_new = now - before.seen_at > FORGOTTEN_AFTER
    return Sighting(since=now if is_new else before.since, seen_at=now, told_at=before.told_at)


def _is_due(concern: Concern, sighting: Sighting) -> bool:
    told = sighting.told_at
    if told is None:
        return True
    silent_for = sighting.seen_at - told
    if told < sighting.since:
        return silent_for >= concern.rest
    return silent_for >= SAID_AGAIN_AFTER


def _is_past(sighting: Sighting, now: datetime) -> bool:
    """Tell whether a concern is over and would be news if it came back."""
    last = max(sighting.seen_at, sighting.told_at or sighting.seen_at)
    return now - last > SAID_AGAIN_AFTER
