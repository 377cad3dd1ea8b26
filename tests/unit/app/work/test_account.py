"""What a worker tells of its work: names, dimensions and sums."""

from datetime import timedelta

from spindown.app.port import Key
from spindown.app.work.account import Account, Progress
from spindown.contract.row import CHECKPOINT_RATE, JOB_RATE, spend_sort, workload_partition
from tests.work import WORKLOAD, WorkWorld, a_worker


def an_account(world: WorkWorld) -> Account:
    return Account(deployment="demo", workload=WORKLOAD, worker=a_worker(), ports=world.ports)


def test_a_report_adds_to_the_day_and_to_what_is_learned() -> None:
    world = WorkWorld()
    progress = Progress(
        items_ok=3,
        items_failed=1,
        items_redone=2,
        busy=timedelta(minutes=6),
        commit=timedelta(seconds=2),
        job_items=8,
        job_busy=timedelta(minutes=20),
    )

    account = an_account(world)
    account.report(progress)
    account.flush()

    rows = world.table.query(workload_partition(WORKLOAD))
    day = rows[spend_sort(world.clock.now())]
    assert day == {"items": 3, "items_failed": 1, "items_redone": 2, "jobs": 1}
    assert rows[JOB_RATE]["samples"] == [8.0]
    assert rows[CHECKPOINT_RATE]["samples"] == [2.0]
    values = {datum.name: datum.value for datum in world.metrics.data}
    assert values == {
        "ItemsDone": 3,
        "ItemsFailed": 1,
        "ItemsRedone": 2,
        "CommitSeconds": 2.0,
        "JobsCompleted": 1,
        "JobSeconds": 1200.0,
    }


def test_what_has_no_commit_and_ends_no_job_says_nothing_of_either() -> None:
    world = WorkWorld()
    account = an_account(world)

    account.report(Progress(items_ok=1, busy=timedelta(seconds=1)))
    account.flush()

    names = {datum.name for datum in world.metrics.data}
    assert names == {"ItemsDone", "ItemsFailed", "ItemsRedone"}
    partition = workload_partition(WORKLOAD)
    assert world.table.get(Key(partition=partition, sort=JOB_RATE)) is None


def test_metrics_carry_deployment_workload_and_if_there_is_one_the_reason() -> None:
    world = WorkWorld()
    account = an_account(world)

    account.emit({"JobsFailed": 1.0}, reason="timeout")
    account.emit({"JobsLost": 1.0})
    assert not world.metrics.values("JobsLost"), "until they are flushed"
    account.flush()
    account.flush()

    failed, lost = world.metrics.data
    assert failed.dimensions == {"Deployment": "demo", "Workload": WORKLOAD, "Reason": "timeout"}
    assert lost.dimensions == {"Deployment": "demo", "Workload": WORKLOAD}


def test_samples_of_one_minute_are_one_and_the_oldest_go() -> None:
    world = WorkWorld()
    account = an_account(world)
    for n in range(120):
        account.report(Progress(commit=timedelta(seconds=n)))
        world.clock.advance(timedelta(seconds=30))

    key = Key(partition=workload_partition(WORKLOAD), sort=CHECKPOINT_RATE)
    samples = (world.table.get(key) or {})["samples"]
    assert samples == [float(n) for n in range(20, 120, 2)]
