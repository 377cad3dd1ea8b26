"""When a job must be finished, and what that asks for: wait for spot, buy, or move the job."""

from spindown.domain.deadline.job import Unfinished, held_job, is_measured, never_claimed, requeued
from spindown.domain.deadline.mode import (
    DeadlineForecast,
    JobForecast,
    PurchaseMode,
    Reserve,
    allows,
    forecast_deadlines,
    hurry,
    judge,
    open_ladder,
    pays_at,
    reserve_of,
)

__all__ = [
    "DeadlineForecast",
    "JobForecast",
    "PurchaseMode",
    "Reserve",
    "Unfinished",
    "allows",
    "forecast_deadlines",
    "held_job",
    "hurry",
    "is_measured",
    "judge",
    "never_claimed",
    "open_ladder",
    "pays_at",
    "requeued",
    "reserve_of",
]
