"""When a job must be finished, and what that asks for: wait for spot, buy, or move the job."""

from spindown.domain.deadline.course import (
    Course,
    Outlook,
    Reserve,
    Verdict,
    allows,
    hurry,
    judge,
    look_out,
    open_ladder,
    pays_at,
    reserve_of,
)
from spindown.domain.deadline.job import Unfinished, held_job, is_measured, never_claimed, put_down

__all__ = [
    "Course",
    "Outlook",
    "Reserve",
    "Unfinished",
    "Verdict",
    "allows",
    "held_job",
    "hurry",
    "is_measured",
    "judge",
    "look_out",
    "never_claimed",
    "open_ladder",
    "pays_at",
    "put_down",
    "reserve_of",
]
