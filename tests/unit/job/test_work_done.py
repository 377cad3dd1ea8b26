"""What a worker tells of its work: names, dimensions and sums."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import Row, decode
from spindown.contract.row import (
    CHECKPOINT_RATE,
    JOB_RATE,
    RATE,
    RateRow,
    done_sort_key,
    job_sort_key,
    throughput_sort_key,
    worker_partition,
)
from spindown.domain.relative_throughput import relative_throughput
from spindown.job.work_done import Progress, Reporter, share_items
from spindown.ledger.knowledge import read_knowledge
from spindown.memory.interception import PortCall, intercept
from spindown.port import Key, Write
from tests.work import WORKLOAD, WorkWorld, a_worker


def a_reporter(world: WorkWorld) -> Reporter:
    return Reporter(deployment="demo", workload=WORKLOAD, worker=a_worker(), ports=world.ports)


def row(world: WorkWorld, sort: str) -> Row:
    return world.table.get(Key(partition=worker_partition(WORKLOAD), sort=sort)) or {}


def counts(found: Row) -> Row:
    return {name: value for name, value in found.items() if not isinstance(value, str)}


def throughput(world: WorkWorld) -> Row:
    return row(world, throughput_sort_key("T4", 1.0))


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

    reporter = a_reporter(world)
    reporter.report(progress)
    reporter.flush()

    rows = world.table.query(worker_partition(WORKLOAD))
    day = rows[done_sort_key(world.clock.now())]
    assert counts(day) == {"items": 3, "items_failed": 1, "items_redone": 2, "jobs": 1}
    assert rows[JOB_RATE]["samples"] == [8.0]
    assert rows[CHECKPOINT_RATE]["samples"] == [2.0]
    values = {datum.name: datum.value for datum in world.metrics.data}
    assert values == {
        "ItemsDone": 3,
        "ItemsFailed": 1,
        "ItemsRedone": 2,
        "CommitSeconds": 2.0,
        "JobSeconds": 1200.0,
    }


def test_what_a_client_repeats_after_a_lost_answer_adds_once() -> None:
    def repeat(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "write":
            proceed()
        return proceed()

    world = WorkWorld()
    world.ports = replace(world.ports, table=intercept(world.table, "table", repeat))
    reporter = a_reporter(world)

    # The first is a sample too; the others of its minute are additions alone.
    for _ in range(3):
        reporter.report(Progress(items_ok=3, busy=timedelta(minutes=6), job_items=3))

    day, known = row(world, done_sort_key(world.clock.now())), throughput(world)
    assert (day["items"], day["jobs"]) == (9, 3)
    assert (known["count"], known["reports"], known["samples"]) == (9, 3, [30.0])


def test_a_restarted_process_counts_from_its_first_report() -> None:
    world = WorkWorld()

    for _ in range(2):
        a_reporter(world).report(Progress(items_ok=1))

    assert row(world, done_sort_key(world.clock.now()))["items"] == 2


def test_work_without_a_commit_or_end_tells_nothing_of_them() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)

    reporter.report(Progress(items_ok=1, busy=timedelta(seconds=1)))
    reporter.flush()

    names = {datum.name for datum in world.metrics.data}
    assert names == {"ItemsDone", "ItemsFailed", "ItemsRedone"}
    assert counts(row(world, done_sort_key(world.clock.now()))) == {"items": 1}
    assert row(world, JOB_RATE) == {}


def test_metrics_name_deployment_workload_and_any_reason() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)

    reporter.emit({"DeadLettered": 1.0}, reason="timeout")
    reporter.emit({"JobsLost": 1.0})
    assert not world.metrics.values("JobsLost"), "until they are flushed"
    reporter.flush()
    reporter.flush()

    failed, lost = world.metrics.data
    assert failed.dimensions == {"Deployment": "demo", "Workload": WORKLOAD, "Reason": "timeout"}
    assert lost.dimensions == {"Deployment": "demo", "Workload": WORKLOAD}


def test_samples_of_one_minute_are_one_and_the_oldest_go() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)
    for n in range(120):
        reporter.report(Progress(commit=timedelta(seconds=n)))
        world.clock.advance(timedelta(seconds=30))

    key = Key(partition=worker_partition(WORKLOAD), sort=CHECKPOINT_RATE)
    samples = (world.table.get(key) or {})["samples"]
    assert samples == [float(n) for n in range(20, 120, 2)]


def test_every_report_of_a_minute_counts_and_one_is_its_sample() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)

    reporter.report(Progress(items_ok=3, busy=timedelta(minutes=6)))
    reporter.report(Progress(items_ok=1, items_failed=1, busy=timedelta(minutes=3)))

    known = throughput(world)
    assert known["samples"] == [30.0]
    assert (known["count"], known["reports"]) == (5, 2)
    assert known["hours"] == pytest.approx(0.15)


def test_the_longest_and_the_largest_report_are_known() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)

    for items, minutes in ((3, 6), (1, 60), (90, 30), (2, 45)):
        reporter.report(Progress(items_ok=items, busy=timedelta(minutes=minutes)))

    known = throughput(world)
    assert (known["longest_items"], known["longest_hours"]) == (1, 1.0)
    assert (known["largest_items"], known["largest_hours"]) == (90, 0.5)
    assert (known["count"], known["reports"]) == (96, 4)


def test_a_report_costs_one_write_for_day_and_for_throughput() -> None:
    world = WorkWorld()

    a_reporter(world).report(Progress(items_ok=3, busy=timedelta(minutes=6)))

    assert world.calls == {"table.get": 1, "table.write": 2}


def test_a_first_report_that_lost_a_race_is_made_again() -> None:
    world = WorkWorld()
    ours, theirs = a_reporter(world), a_reporter(world)

    def be_quicker(call: PortCall) -> None:
        if call.method == "write" and "samples" in call.args[0].set:
            world.before = None
            theirs.report(Progress(items_ok=3, busy=timedelta(minutes=6)))

    world.before = be_quicker
    ours.report(Progress(items_ok=4, busy=timedelta(minutes=6)))

    known = throughput(world)
    assert known["samples"] == [30.0, 40.0]
    assert (known["count"], known["reports"]) == (7, 2)


def test_a_worker_that_lost_a_race_for_samples_is_still_counted() -> None:
    world = WorkWorld()
    ours, theirs = a_reporter(world), a_reporter(world)
    ours.report(Progress(items_ok=4, busy=timedelta(minutes=6)))
    world.clock.advance(timedelta(minutes=2))

    def be_quicker(call: PortCall) -> None:
        if call.method == "write" and "samples" in call.args[0].set:
            world.before = None
            theirs.report(Progress(items_ok=3, busy=timedelta(minutes=6)))

    world.before = be_quicker
    ours.report(Progress(items_ok=2, busy=timedelta(minutes=6)))

    known = throughput(world)
    assert known["samples"] == [40.0, 30.0]
    assert (known["count"], known["reports"]) == (9, 3)


def test_a_worker_counts_once_among_those_with_a_throughput() -> None:
    world = WorkWorld()
    first, second = a_reporter(world), a_reporter(world)

    first.report(Progress(commit=timedelta(seconds=1)))
    assert "lives" not in throughput(world), "nothing was done yet"
    for reporter in (first, first, second, first, second):
        reporter.report(Progress(items_ok=1, busy=timedelta(minutes=1)))

    assert (throughput(world)["lives"], throughput(world)["reports"]) == (2, 5)


@pytest.mark.parametrize(("bytes_in", "bytes_out", "moved"), [
    (2**30, 2**31, {"moved": 2, "gib_in": 1.0, "gib_out": 2.0}),
    (2**30, None, {}),
    (None, 2**31, {}),
])  # fmt: skip
def test_bytes_add_up_only_with_items_where_both_are_known(
    bytes_in: int | None, bytes_out: int | None, moved: Row
) -> None:
    world = WorkWorld()
    progress = Progress(
        items_ok=2, busy=timedelta(minutes=1), bytes_in=bytes_in, bytes_out=bytes_out
    )

    a_reporter(world).report(progress)

    known = throughput(world)
    assert {name: known[name] for name in ("moved", "gib_in", "gib_out") if name in known} == moved


def test_an_item_of_two_gpus_is_divided_by_hours_and_speed() -> None:
    world = WorkWorld()
    twice = a_worker(gpu_name="twice")
    reporter = Reporter(deployment="demo", workload=WORKLOAD, worker=twice, ports=world.ports)

    # Unknown GPUs are as fast as a T4: 10 h and 30 h for two items.
    progress = Progress(items_ok=2, busy=timedelta(hours=30), earlier={"T4#1": 36_000.0})
    reporter.report(progress)

    other = row(world, throughput_sort_key("twice", 1.0))
    assert (other["count"], other["hours"], other["samples"]) == (1.5, 30.0, [0.05])
    assert counts(throughput(world)) == {"count": 0.5, "hours": 10.0}


@pytest.mark.parametrize("earlier", [
    {},
    {"T4#1": 0.0},
    {"A10G#1": 36_000.0},
    {"no kind": 36_000.0, "#x": 1.0},
])  # fmt: skip
def test_items_of_one_gpu_are_its_own(earlier: dict[str, float]) -> None:
    assert share_items(3, 1.0, ("A10G", 1.0), earlier) == (3, {})


def test_a_faster_gpu_has_done_more_of_an_item_in_the_same_time() -> None:
    fast = relative_throughput("A10G", 1.0)

    own, others = share_items(1, 10.0, ("A10G", 1.0), {"T4#1": 36_000.0})

    assert own == pytest.approx(fast / (1 + fast))
    assert others["T4", 1.0]["count"] == pytest.approx(1 / (1 + fast))


def test_every_job_counts_though_few_reports_are_written() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)

    for size in (100, 1, 1, 1, 40, 2):
        reporter.report(Progress(items_ok=size, job_items=size))
        world.clock.advance(timedelta(seconds=25))

    # Written at 0 s, 75 s; what came since waits for the next.
    known = row(world, JOB_RATE)
    assert known["samples"] == [100.0, 1.0]
    assert known["jobs"] == pytest.approx(4, rel=0.01)
    assert known["count"] == pytest.approx(103, rel=0.01)

    world.clock.advance(timedelta(minutes=1))
    reporter.report(Progress(items_ok=7, job_items=7))
    known = row(world, JOB_RATE)
    assert known["samples"] == [100.0, 1.0, 40.0]
    assert known["count"] / known["jobs"] == pytest.approx(152 / 7, rel=0.02)


def test_old_jobs_fade() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)
    for size in [1] * 1000 + [50] * 1000:
        reporter.report(Progress(items_ok=size, job_items=size))
        world.clock.advance(timedelta(minutes=1))

    known = row(world, JOB_RATE)
    assert known["jobs"] < 250
    assert known["count"] / known["jobs"] == pytest.approx(50, rel=0.02)


@pytest.mark.parametrize("damage", [{"samples": 5.0}, {"count": "many"}, {"jobs": "few"}])
def test_a_row_that_cannot_be_read_begins_anew(damage: Row) -> None:
    world = WorkWorld()
    key = Key(partition=worker_partition(WORKLOAD), sort=JOB_RATE)
    world.table.write(Write(key=key, set=damage))

    a_reporter(world).report(Progress(items_ok=4, job_items=4))

    known = row(world, JOB_RATE)
    assert (known["count"], known["jobs"], known["samples"]) == (4.0, 1.0, [4.0])


def test_each_type_of_jobs_is_learned_by_itself() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)
    minute = timedelta(minutes=1)
    for job_type, items in (("scan", 60), ("", 6), ("scan", 60), ("fit", 1)):
        told = Progress(items_ok=items, busy=minute, job_items=items, job_type=job_type)
        reporter.report(told)
        world.clock.advance(2 * minute)

    scan, fit = (row(world, throughput_sort_key("T4", 1.0, name)) for name in ("scan", "fit"))
    assert (scan["count"], scan["reports"], scan["lives"]) == (120, 2, 1)
    assert (fit["count"], fit["lives"]) == (1, 1)
    assert (throughput(world)["count"], throughput(world)["lives"]) == (6, 1)
    sizes = [row(world, job_sort_key(name))["samples"] for name in ("scan", "", "fit")]
    assert sizes == [[60.0, 60.0], [6.0], [1.0]]


def test_what_is_known_of_types_is_that_of_their_work() -> None:
    world = WorkWorld()
    reporter = a_reporter(world)
    for job_type, items in (("scan", 60), ("", 6), ("fit", 1)):
        told = Progress(items_ok=items, busy=timedelta(hours=1), job_items=2, job_type=job_type)
        reporter.report(told)
        world.clock.advance(timedelta(minutes=2))
    found = world.table.query(worker_partition(WORKLOAD), RATE).items()
    known = read_knowledge({sort: decode(RateRow, row) for sort, row in found}, slots="per-gpu")

    def items_of(*names: str) -> float:
        return known.of_types(names).throughput["T4", 1.0].items

    assert items_of("scan") == 60
    assert items_of("fit", "scan") == 61
    assert items_of("") == 6
    # Of a type that nobody has seen, all that is known counts.
    assert items_of("new") == items_of() == known.throughput["T4", 1.0].items == 67
    assert (known.jobs.jobs, known.of_types(["fit"]).jobs.jobs) == (3, 1)
