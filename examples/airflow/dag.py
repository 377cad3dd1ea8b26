"""A DAG of Airflow 3 that has Spindown work off what a day has brought.

It needs the packages apache-airflow and spindown; ``batch.py`` lies beside it. No slot of Airflow
is taken while the batch runs: the sensor looks once a minute and goes.
"""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import dag, task
from batch import is_over, judge, send

from spindown import Workload


def _workload() -> Workload[Any, Any]:
    return Workload("main", deployment="demo")


@task(retries=3)
def begin(run_id: str) -> str:
    """Send what there is to do."""
    items = [f"s3://my-scans/incoming/{number}.png" for number in range(100)]
    return send(_workload(), items, run_id)


@task.sensor(poke_interval=60, timeout=24 * 3600, mode="reschedule")
def wait(batch: str) -> bool:
    """Wait until it is done."""
    return is_over(_workload(), batch)


@task
def end(batch: str) -> dict[str, Any]:
    """Fail if anything of it has failed."""
    return judge(_workload(), batch)


@dag(schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
def scans() -> None:
    """Send, wait, judge."""
    batch = begin("{{ run_id }}")
    wait(batch) >> end(batch)


scans()
