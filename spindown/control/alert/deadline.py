"""What people are told of jobs that must be finished within a time."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from spindown.contract.decision import DeadlineRecord
from spindown.domain.alert import Alert
from spindown.reason_text import name_of

_SHOWN = 4


def find_deadlines(
    deadlines: Sequence[DeadlineRecord], workload: str, now: datetime
) -> Iterator[Alert]:
    """Yield that jobs are late, and that others are going to be."""
    late = [each for each in deadlines if each.due_at < now]
    short = [each for each in deadlines if each.due_at >= now and each.slack_seconds < 0]
    if late:
        yield Alert(
            name="deadline-missed",
            says=f"Jobs of {workload} are not finished within `finish_within`: {_listed(late)}.",
            remedy="run `spindown why`, which says what works on them. Send jobs with fewer items, "
            "raise `max_price_per_hour` or `max_workers`, let a rung of the `ladder` take "
            "on-demand, or allow a longer `finish_within`.",
        )
    if short:
        yield Alert(
            name="deadline-at-risk",
            says=f"Jobs of {workload} take longer than the time that is left to them: "
            f"{_listed(short)}.",
            remedy="run `spindown why`, which says what keeps them waiting. Raise "
            "`max_price_per_hour`, `max_workers` or the quota, or allow a longer `finish_within`.",
        )


def _listed(deadlines: Sequence[DeadlineRecord]) -> str:
    names = [f"{name_of(each)}, due {each.due_at:%Y-%m-%d %H:%M} UTC" for each in deadlines]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(names[:_SHOWN]) + more
