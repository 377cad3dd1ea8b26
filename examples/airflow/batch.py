"""What tasks of Airflow do with Spindown: send a batch, look whether it is over, judge it.

Plain functions, which need no Airflow: ``dag.py`` makes tasks of them.
"""

from collections.abc import Sequence
from typing import Any

from spindown import Workload


def send(workload: Workload[Any, Any], items: Sequence[Any], run_id: str) -> str:
    """Send items as the batch of a run; return its name. A retry finds the batch of the first try.

    A run's id has characters that no batch may have.
    """
    key = "".join(one if one.isascii() and one.isalnum() else "-" for one in run_id)[-100:]
    return workload.submit(items, key=key).id


def is_over(workload: Workload[Any, Any], batch: str) -> bool:
    """Tell whether all jobs of a batch are over."""
    found = workload.batch(batch).status()
    return found.jobs_over == found.jobs


def judge(workload: Workload[Any, Any], batch: str) -> dict[str, Any]:
    """Return what came of a batch that is over, small enough for an XCom.

    Raises:
        RuntimeError: a job was given up or cancelled, or an item has failed.
    """
    found = workload.batch(batch).status()
    if found.items_failed or found.state != "completed":
        raise RuntimeError(f"{batch} is {found.state}, items failed: {found.items_failed}")
    return {"batch": batch, "items": found.items_done, "dollars": round(found.dollars, 4)}
