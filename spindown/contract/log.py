"""What a worker's log says of jobs: one JSON object an event, written by workers, read for people.

Whoever writes a workload's log group may write anything there, so what is read is checked.
"""

import json
from collections.abc import Collection, Container, Mapping
from typing import Any

from spindown.contract.job.message import CHILD_ID, child_id

#: A line that the code of a job printed: ``job_id``, ``epoch``, ``text``; with ``again`` if the log
#: has that already without a job, as what ``setup`` prints before there is one.
USER_OUTPUT = "user_output"
#: Lines of a second that were printed beyond the bound: ``lines``.
USER_OUTPUT_LEFT_OUT = "user_output_left_out"
#: The slot has printed all that a day has room for: ``bytes_a_day``.
USER_OUTPUT_LIMIT = "user_output_limit"
#: How far the code says that it is: ``done``, ``of``, ``text``.
USER_PROGRESS = "user_progress"
#: An attempt failed: ``reason``.
ATTEMPT_FAILED = "attempt_failed"
#: What an attempt has used of its machine: ``summary``.
JOB_USED = "job_used"

#: What somebody may be waiting to see: sent at once, and not with the next heartbeat.
AWAITED = frozenset({USER_OUTPUT, USER_OUTPUT_LEFT_OUT, USER_OUTPUT_LIMIT, USER_PROGRESS})


def read_event(message: str) -> Mapping[str, Any] | None:
    """Return the fields of an event; None: it is no JSON object."""
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_of(message: str, jobs: Collection[str]) -> bool:
    """Tell whether an event is one of these jobs', or of a child of one."""
    event = read_event(message)
    job_id = None if event is None else event.get("job_id")
    return isinstance(job_id, str) and is_one_of(job_id, jobs)


def is_one_of(job_id: str, jobs: Container[str]) -> bool:
    """Tell whether this is one of these jobs, or a child of one, however often it was split."""
    while job_id and job_id not in jobs:
        job_id = parent_id(job_id)
    return bool(job_id)


def parent_id(job_id: str) -> str:
    """Return the job that a job would be a child of, by its id; "": none."""
    parent, _, _ = job_id.rpartition(".")
    return parent if CHILD_ID.fullmatch(job_id) else ""


def followed_ids(job_id: str) -> tuple[str, str]:
    """Return a job's id, and the one that its children's ids begin with."""
    return job_id, parent_id(child_id(job_id, 0))
