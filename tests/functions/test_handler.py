"""The functions: an event in, one use case, an answer out; nothing that repeats a bad event."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spindown.contract.row import REHEARSED
from spindown.contract.usage import encode_usage, measured_key, table_key
from spindown.control.market import load_catalogue
from spindown.control.rightsizing import read_learned
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.error import ContractError, NotFound, Throttled, Unreachable
from spindown.functions import interruption, offers, scaler
from spindown.functions.port import for_each_workload
from spindown.job.submit import Draft, submit_items
from spindown.ledger import account_key
from spindown.memory import PortCall
from spindown.port import SETTINGS_FOR, ControlPorts, Write
from tests.builders import NOW, a_usage_record, minutes
from tests.control import DEPLOYMENT, REGION, WORKLOAD, ZONES, ControlWorld
from tests.failure import failing

EVENTS = Path(__file__).parents[1] / "events"


def load(name: str) -> Any:
    return json.loads((EVENTS / f"{name}.json").read_text())


def scale(world: ControlWorld, event: object) -> dict[str, Any]:
    return scaler.handle(event, deployment=DEPLOYMENT, holder="request-1", ports=world.ports)


@pytest.mark.parametrize("name", ["tick", "nudge", "queue_alarm"])
def test_every_event_that_wakes_the_scaler_launches_for_work(name: str) -> None:
    world = ControlWorld()
    world.send()

    said = scale(world, load(name))

    assert said["outcome"] == "launched"
    assert said["workload"] == "classify"
    assert len(world.workers()) == 1


def test_a_duplicated_alarm_launches_nothing_more() -> None:
    world = ControlWorld()
    world.send()

    answers = [scale(world, load("queue_alarm"))["outcome"] for _ in range(3)]

    assert answers == ["launched", "enough", "enough"]
    assert len(world.compute.bills()) == 1


@pytest.mark.parametrize(
    "event",
    [{}, [], None, "tick", {"source": "spindown.tick"}, {"source": "aws.s3"}],
    ids=repr,
)
def test_an_event_that_cannot_be_read_is_counted_and_let_go(event: object) -> None:
    world = ControlWorld()

    said = scale(world, event)

    assert said["outcome"] == "ignored"
    assert world.metrics.values("MalformedEvents") == [1]


def test_a_tick_of_a_workload_that_is_no_more_is_let_go() -> None:
    world = ControlWorld()

    said = scale(world, {"source": "spindown.tick", "workload": "gone"})

    assert said["outcome"] == "ignored"
    assert "gone" in said["summary"]


@pytest.mark.parametrize("function", [scaler, interruption])
def test_unreadable_settings_are_an_error_and_no_bad_event(function: ModuleType) -> None:
    world = ControlWorld()
    worker = world.launched()
    event = load("tick")
    if function is interruption:
        event = load("spot_interruption")
        event["detail"]["instance-id"] = worker.instance_id
    world.clock.advance(SETTINGS_FOR)
    world.interfere = failing(ContractError("run", None, "deploy again"), "workload")

    with pytest.raises(ContractError):
        function.handle(event, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert world.metrics.values("MalformedEvents") == []


def test_a_fault_of_aws_is_an_error_of_the_function() -> None:
    world = ControlWorld()

    world.interfere = failing(Unreachable("no answer"), "query_each")

    with pytest.raises(Unreachable):
        scale(world, load("tick"))


def test_a_warning_of_our_own_instance_is_acted_on() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    event = load("spot_interruption")
    event["detail"]["instance-id"] = worker.instance_id
    event["time"] = world.now.isoformat()

    said = interruption.handle(event, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert (said["acted"], said["workload"]) == (True, "classify")
    assert "launched 1" in said["summary"]


@pytest.mark.parametrize(
    "name", ["spot_interruption", "rebalance_recommendation", "instance_state_change"]
)
def test_events_of_other_instances_are_no_case(name: str) -> None:
    world = ControlWorld()

    said = interruption.handle(load(name), deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert (said["acted"], said["workload"]) == (False, "")


#: What EventBridge may bring, by what differs from an event that is known: whether one of ours is
#: acted on; None: it is refused, ours or not.
FOREIGN: list[tuple[str, dict[str, Any], bool | None]] = [
    ("spot_interruption", {"time": "2026-11-20T12:00:00.123Z"}, True),
    ("spot_interruption", {"time": "2026-11-20T12:00:00.123456789Z"}, True),
    ("spot_interruption", {"time": "2026-11-20T12:00:00+0000"}, True),
    ("spot_interruption", {"time": "2026-11-20T12:00:00"}, True),
    ("spot_interruption", {"detail": {"instance-action": "hibernate"}}, True),
    ("spot_interruption", {"detail": {"instance-action": "stop"}}, True),
    ("spot_interruption", {"detail": {"instance-action": None}}, True),
    ("rebalance_recommendation", {"time": "2026-11-20T12:00:00.5Z"}, True),
    ("instance_state_change", {"time": "2026-11-20T12:00:00.5Z"}, True),
    ("instance_state_change", {"detail": {"state": "shutting-down"}}, True),
    *(
        ("instance_state_change", {"detail": {"state": state}}, False)
        for state in ("pending", "running", "stopping", "stopped", "rebooting")
    ),
    *((name, {"time": None}, None) for name in ("spot_interruption", "instance_state_change")),
    ("spot_interruption", {"time": 1763640000}, None),
    ("spot_interruption", {"time": "yesterday"}, None),
    ("spot_interruption", {"region": None}, None),
    ("spot_interruption", {"detail": {"instance-id": "eni-0123456789abcdef0"}}, None),
    ("spot_interruption", {"detail": {"instance-id": ["i-1"]}}, None),
    ("spot_interruption", {"detail": None}, None),
    ("spot_interruption", {"detail": [1]}, None),
    ("instance_state_change", {"detail": {"state": None}}, None),
    ("spot_interruption", {"detail-type": "EC2 Fleet Instance Change"}, None),
    ("spot_interruption", {"detail-type": None}, None),
]


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize(("name", "change", "acted"), FOREIGN, ids=repr)
def test_no_event_of_ec2_is_an_error(
    name: str, change: dict[str, Any], acted: bool | None, is_ours: bool
) -> None:
    world = ControlWorld()
    worker = world.launched()
    event = load(name)
    event["detail"]["instance-id"] = worker.instance_id if is_ours else "i-0fedcba9876543210"
    detail = change.get("detail")
    nested = isinstance(detail, dict)
    event |= {**change, "detail": event["detail"] | detail} if nested else change
    rows = world.partition()

    said = interruption.handle(event, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert (said.get("outcome") == "ignored") is (acted is None)
    assert len(world.metrics.values("MalformedEvents")) == (acted is None)
    if acted is not None:
        assert said["acted"] is (acted and is_ours)
    if not (acted and is_ours):
        assert world.partition() == rows


def test_a_malformed_event_of_ec2_is_counted_and_let_go() -> None:
    world = ControlWorld()

    said = interruption.handle({"detail": 1}, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert said["outcome"] == "ignored"
    assert world.metrics.data[-1].dimensions == {
        "Deployment": DEPLOYMENT,
        "Function": "interruption",
    }


def test_the_end_of_an_instance_frees_its_job() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.clock.advance(minutes(1))
    event = load("instance_state_change")
    event["detail"]["instance-id"] = worker.instance_id
    event["time"] = world.now.isoformat()

    said = interruption.handle(event, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert said["acted"]
    assert world.metric("LeasesFreed") == 1


def test_ignores_the_end_of_an_instance_of_a_removed_workload() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    # What was read before is forgotten by now.
    world.clock.advance(minutes(6))
    event = load("instance_state_change")
    event["detail"]["instance-id"] = worker.instance_id
    world.interfere = failing(NotFound("no workload classify"), "workload")

    said = interruption.handle(event, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert (said["outcome"], said["summary"]) == ("ignored", "no workload classify")


def test_offers_are_refreshed() -> None:
    world = ControlWorld()

    said = offers.handle(world.ports, lambda _: world.objects)

    assert said["types"] == 3
    nothing = ("failures", "resent", "not_resent", "not_judged", "not_sized", "queues_removed")
    assert not any(said[key] for key in nothing)
    assert load_catalogue(world.objects) is not None


@pytest.mark.parametrize("kind", [Unreachable, ZeroDivisionError])
def test_what_fails_for_one_workload_stops_no_other(kind: type[Exception]) -> None:
    world = ControlWorld()

    def fail(workload: str, _: ControlPorts) -> int:
        raise kind(workload)

    said = for_each_workload("done", fail, world.ports)
    assert said == {"done": {}, "not_done": {WORKLOAD: WORKLOAD}}


def test_the_hourly_run_makes_the_table_of_yesterday() -> None:
    world = ControlWorld()
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    world.clock.advance(midnight + timedelta(hours=1) - world.clock.now())
    record = a_usage_record(workload=WORKLOAD)
    world.objects.put(measured_key(record, NOW.date()), encode_usage([record]))

    said = offers.handle(world.ports, lambda _: world.objects)

    assert (said["compacted"], said["not_compacted"]) == ({WORKLOAD: 1}, {})
    assert world.objects.get(table_key(WORKLOAD, NOW.date(), WORKLOAD)).data


def test_usage_that_cannot_be_read_keeps_nobody_from_prices() -> None:
    world = ControlWorld()
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    world.clock.advance(midnight + timedelta(hours=1) - world.clock.now())

    def run_out(call: Any, proceed: Callable[[], Any]) -> Any:
        if call.method == "list" and "measured/" in call.args[0]:
            raise MemoryError
        return proceed()

    world.interfere = run_out
    said = offers.handle(world.ports, lambda _: world.objects)

    assert said["not_compacted"] == {WORKLOAD: "MemoryError"}
    assert load_catalogue(world.objects) is not None
    assert world.metrics.values("WarmDollars")


def test_sizes_are_learned_however_long_the_reading_takes() -> None:
    policy = Policy(types=(JobType(name="scan", needs=JobNeeds(memory_gib=16)),))
    world = ControlWorld(policy=policy)
    for number in range(30):
        record = a_usage_record(workload=WORKLOAD, job_id=f"{number:02}", type="scan")
        world.objects.put(measured_key(record, world.now.date()), encode_usage([record]))
    world.clock.advance(minutes(60))

    def take_long(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get" and str(call.args[0]).startswith("measured/"):
            world.clock.advance(minutes(1))
        return proceed()

    world.interfere = take_long
    offers.handle(world.ports, lambda _: world.objects)

    assert "/00-" in read_learned(WORKLOAD, world.objects).read_key


def test_the_refresh_of_offers_tells_why_an_item_is_dear() -> None:
    world = ControlWorld()
    day = {"items": 100, "launches": 1, "boot_seconds": 60.0, "busy_seconds": 3600.0}
    for ago in (7, 14):
        world.put_day(world.now - timedelta(days=ago), dollars=1.0, **day)
    world.put_day(world.now, dollars=4.0, **day)

    said = offers.handle(world.ports, lambda _: world.objects)

    assert said["expensive"] == {"classify": "price"}
    assert [subject for subject, _ in world.topic.said] == ["demo--classify: cost-price"]


def test_the_refresh_of_offers_tells_of_jobs_without_message() -> None:
    world = ControlWorld()
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=1)
    submit_items(["x", "y", "z"], draft, queue=world.queue, store=world.objects)
    world.clock.advance(timedelta(hours=1))

    def refresh_for(hours: int) -> None:
        for _ in range(hours):
            offers.handle(world.ports, lambda _: world.objects)
            world.clock.advance(timedelta(hours=1))

    refresh_for(7)
    assert not world.topic.said

    world.empty_the_queue()
    refresh_for(8)
    ((subject, text),) = world.topic.said
    assert subject == "demo--classify: lost-jobs"
    assert "3 jobs" in text
    # It lasts until they are sent again.
    before = len(world.metrics.values("Alerts"))
    refresh_for(3)
    assert len(world.metrics.values("Alerts")) == before + 3
    world.send(3)
    refresh_for(1)
    assert len(world.metrics.values("Alerts")) == before + 3


def test_what_cannot_be_counted_is_said_and_costs_are_judged() -> None:
    world = ControlWorld()
    world.interfere = failing(Unreachable("no answer"), "backlog")
    submit_items(
        ["x"],
        Draft(workload=WORKLOAD, batch_id="b", items_per_job=1),
        queue=world.queue,
        store=world.objects,
    )
    world.clock.advance(timedelta(hours=1))

    said = offers.handle(world.ports, lambda _: world.objects)

    assert "no answer" in said["not_lost"]["classify"]
    assert world.metrics.values("WarmDollars")


def test_a_count_that_takes_all_memory_takes_nothing_else() -> None:
    world = ControlWorld()
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=1)
    submit_items(["x"], draft, queue=world.queue, store=world.objects)
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    world.clock.advance(midnight + timedelta(hours=1) - world.clock.now())
    record = a_usage_record(workload=WORKLOAD)
    world.objects.put(measured_key(record, NOW.date()), encode_usage([record]))

    def run_out(call: Any, proceed: Callable[[], Any]) -> Any:
        if call.method == "list" and call.args[0] == "batches/":
            raise MemoryError
        return proceed()

    world.interfere = run_out
    said = offers.handle(world.ports, lambda _: world.ports.objects)

    assert said["not_lost"] == {WORKLOAD: "MemoryError"}
    assert world.objects.get(table_key(WORKLOAD, NOW.date(), WORKLOAD)).data
    world.clock.advance(timedelta(hours=1))
    assert offers.handle(world.ports, lambda _: world.ports.objects)["not_lost"] == {}


@pytest.mark.parametrize("module", ["scaler", "interruption", "offers", "intake", "malformed"])
def test_a_function_stays_thin(module: str) -> None:
    lines = (Path(__file__).parents[2] / "functions" / f"{module}.py").read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", '"""'))]

    assert len(code) <= 44


def _rehearsal(**changes: Any) -> dict[str, Any]:
    pools = [
        {
            "region": REGION,
            "zone": zone,
            "instance_type": "g6.xlarge",
            "architecture": "x86_64",
            "capacity_type": "spot",
        }
        for zone in ZONES
    ]
    return {"source": "spindown.rehearsal", "workload": WORKLOAD, "pools": pools, **changes}


def test_a_rehearsal_checks_each_pool_and_launches_nothing() -> None:
    world = ControlWorld()
    spot = CapacityType.SPOT
    pool = Pool(instance_type="g6.xlarge", zone=ZONES[1], capacity_type=spot)
    world.compute.forbid(pool, "UnauthorizedOperation")

    said = scale(world, _rehearsal())

    assert [(one["pool"]["zone"], one["code"]) for one in said["launches"]] == [
        (ZONES[0], ""),
        (ZONES[1], "UnauthorizedOperation"),
    ]
    assert world.compute.bills() == []
    # What a grant asks of a launch, the rehearsal of it bears too.
    tags = world.compute.rehearsed[0].tags
    assert {"spindown:deployment", "spindown:workload", "spindown:lease-until"} <= tags.keys()


@pytest.mark.parametrize(
    "change",
    [
        {"pools": []},
        {"pools": _rehearsal()["pools"] * 13},
        {"pools": [{**_rehearsal()["pools"][0], "zone": "us-east-1a"}]},
        {"pools": [{**_rehearsal()["pools"][0], "region": "us-east-1"}]},
        {"pools": [{**_rehearsal()["pools"][0], "architecture": "arm64"}]},
        {"pools": [{**_rehearsal()["pools"][0], "capacity_type": "free"}]},
        {"pools": "g6.xlarge"},
        {"template": "lt-2"},
        {"workload": "gone"},
    ],
    ids=str,
)
def test_a_rehearsal_of_something_else_is_let_go(change: dict[str, Any]) -> None:
    world = ControlWorld()

    said = scale(world, _rehearsal(**change))

    assert said["outcome"] == "ignored"
    assert world.compute.rehearsed == []


def test_rehearsals_have_a_bound_in_each_minute() -> None:
    world = ControlWorld()

    answers = [scale(world, _rehearsal()) for _ in range(40)]
    world.clock.advance(minutes(1))
    later = scale(world, _rehearsal())

    assert len(world.compute.rehearsed) == 60 + 2
    assert [len(one["launches"]) for one in answers] == [2] * 30 + [0] * 10
    assert [bool(one["ended"]) for one in answers] == [False] * 30 + [True] * 10
    assert len(later["launches"]) == 2


def test_a_damaged_count_of_rehearsals_stops_none() -> None:
    world = ControlWorld()
    world.table.write(Write(key=account_key(REHEARSED), set={"minute": 7, "count": "many"}))

    assert len(scale(world, _rehearsal())["launches"]) == 2
    assert len(scale(world, _rehearsal())["launches"]) == 2


def test_a_rehearsal_ends_when_ec2_asks_to_slow_down() -> None:
    world = ControlWorld()
    asked = 0

    def slow_down_after_one(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal asked
        asked += call.method == "rehearse"
        if call.method == "rehearse" and asked > 1:
            raise Throttled("slow down")
        return proceed()

    world.interfere = slow_down_after_one

    said = scale(world, _rehearsal())

    assert len(said["launches"]) == 1
    assert said["ended"] == "slow down"
