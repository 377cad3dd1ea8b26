"""What new machines are wanted for, when, and what may be bought, so that deadlines are kept.

``slots`` says what the fleet does by itself, and ``jobs`` what is left to do. ``start_within``
and ``finish_within`` plan for the settings of these names; ``demand`` joins what they ask for. How
many machines that takes is in ``domain.machine_count``.
"""

from spindown.domain.schedule.demand import (
    Demand,
    Schedule,
    hurry,
    limit_to_plan,
    make_schedule,
    missing,
)
from spindown.domain.schedule.finish_within import (
    DeadlineForecast,
    JobForecast,
    TimeReserve,
    forecast_deadlines,
    judge,
    pays_at,
    reserve_of,
)
from spindown.domain.schedule.jobs import (
    Unfinished,
    Waiting,
    held_job,
    is_measured,
    mark_requeued,
    never_claimed,
    requeued,
)
from spindown.domain.schedule.slots import (
    Capacity,
    SlotAhead,
    capacity,
    done_within,
    headroom_slots,
    jobs_started,
    places,
    rests_in_hand,
    unanswered_dollars,
    window,
)
from spindown.domain.schedule.start_within import StartPlan, next_margin, plan_starts

__all__ = [
    "Capacity",
    "DeadlineForecast",
    "Demand",
    "JobForecast",
    "Schedule",
    "SlotAhead",
    "StartPlan",
    "TimeReserve",
    "Unfinished",
    "Waiting",
    "capacity",
    "done_within",
    "forecast_deadlines",
    "headroom_slots",
    "held_job",
    "hurry",
    "is_measured",
    "jobs_started",
    "judge",
    "limit_to_plan",
    "make_schedule",
    "mark_requeued",
    "missing",
    "never_claimed",
    "next_margin",
    "pays_at",
    "places",
    "plan_starts",
    "requeued",
    "reserve_of",
    "rests_in_hand",
    "unanswered_dollars",
    "window",
]
