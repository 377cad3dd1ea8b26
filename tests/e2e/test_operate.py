"""The system in the background, as its operator sees it: views, policies, alerts, advice."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindown.local import daemon
from spindown.local.status import SystemStatus
from tests.day import day_rows
from tests.e2e.world import SWIFT, Deployed, found, in_background, parsed, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def background(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Deployed, SystemStatus]]:
    directory = tmp_path_factory.mktemp("operate")
    with in_background(write_deployment(directory, "count", "absent")) as background:
        yield background


@pytest.fixture
def world(background: tuple[Deployed, SystemStatus]) -> Deployed:
    return background[0]


def test_up_tells_what_it_deployed_and_status_what_runs(
    background: tuple[Deployed, SystemStatus],
) -> None:
    world, up = background
    state = world.directory / ".spindown"
    assert up.functions == ("e2e--interruption", "e2e--offers", "e2e--scaler", "e2e--teardown")
    assert {"e2e--count", "e2e--count--dlq"} <= {queue.name for queue in up.queues}

    def now() -> SystemStatus:
        told = daemon.status(state)
        assert told is not None
        return told

    earlier = {one.instance_id for one in now().instances}
    found(lambda: is_quiet(world.session.status("count")))
    world.send("count", {"items": ["a"], "job_id": "seen"})
    found(lambda: {one.instance_id for one in now().instances} - earlier)
    assert now().pid == up.pid
    assert daemon.exports(state).startswith("export AWS_CONFIG_FILE=")
    assert world.finished("seen").state == "completed"


def test_every_view_is_json_for_programs(world: Deployed) -> None:
    workloads = [entry["workload"] for entry in world.spindown_json("status")]

    def plan_without_workers() -> Any:
        plan = world.spindown_json("plan", "count", "--backlog", "3")
        return plan if plan["sizing"]["wanted"] else None

    plan = found(plan_without_workers)
    (decision, *_) = world.spindown_json("why", "count")[0]["decisions"]

    assert sorted(workloads) == ["absent", "count"]
    assert plan["sizing"]["wanted"] == 1
    assert {"offer", "constraint", "reason"} < plan["rejected"][0].keys()
    # The function that keeps the catalogue has read the spot advisor's file and the volumes.
    offers = [candidate["offer"] for candidate in plan["candidates"]]
    assert all(o["reclaim_share"] for o in offers if o["capacity_type"] == "spot")
    assert all(o["volume_price"] > 0 for o in offers)
    assert decision["workload"] == "count"


def test_usage_tells_what_a_job_has_used(world: Deployed) -> None:
    world.send("count", {"items": ["a"], "job_id": "used"})
    assert world.finished("used").state == "completed"

    sql = "SELECT seconds, gpu_mean, vcpus FROM usage WHERE job_id = 'used'"
    # Workers write at their end what they have measured.
    (row,) = found(lambda: world.spindown_json("usage", "count", "--sql", sql))

    assert row["seconds"] > 0.0
    assert row["vcpus"] > 0.0
    assert row["gpu_mean"] is None
    types = world.spindown_json("usage", "--type", "count")
    assert [one["type"] for one in types] == ["count"]


def test_a_policy_set_live_is_in_force_and_a_broken_edit_is_not(world: Deployed) -> None:
    assert world.spindown_json("policy", "set", "count", "max_workers=0") == {"max_workers": 0}
    found(lambda: is_quiet(world.session.status("count")))
    world.send("count", {"items": ["a"], "job_id": "held-back"})
    found(lambda: "max_workers is 0" in world.session.status("count").decision)

    world.put_live_policy("count", json.dumps({"max_workers": "many"}))
    troubles = world.session.status("count").troubles
    shown = world.spindown("policy", "diff", "count")
    assert troubles == ("the live policy is refused: max_workers is 'many': write a whole number",)
    assert "the last valid edit is in force" in shown.stderr
    assert "max_workers  1         0" in shown.stdout

    refused = world.spindown("policy", "set", "count", "max_workers=some")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "spindown: max_workers is 'some': write a whole number\n"

    assert world.spindown_json("policy", "reset", "count", "max_workers") == {"max_workers": 1}
    assert world.finished("held-back").state == "completed"


def test_a_subscriber_hears_why_an_item_became_dear(world: Deployed) -> None:
    inbox = world.subscribe()
    ledger, today = world.session.ledger("absent"), datetime.now(UTC)
    day = {"items": 100, "launches": 1, "boot_seconds": 60.0, "busy_seconds": 3600.0}
    for ago, dollars in ((0, 4.0), (7, 1.0), (14, 1.0)):
        at = today - timedelta(days=ago)
        for sort, row in day_rows(at, {"dollars": dollars, **day}).items():
            ledger.write(ledger.change(sort, row))

    said = world.invoke("offers")

    assert said["expensive"] == {"absent": "price"}
    assert said["not_judged"] == {}
    (subject, text) = world.heard(inbox)
    assert subject == "e2e--absent: cost-price"
    assert text.startswith("absent: ")
    assert "0.04 USD" in text
    assert "0.01" in text
    assert "`max_price_per_hour`" in text
    assert world.invoke("offers")["expensive"] == {"absent": "price"}
    assert world.is_silent(inbox)
    assert world.spindown_json("cost", "absent")["rise"]["rise"]["usual"]["items_per_launch"] == 100

    accepted = world.spindown_json("policy", "accept-cost", "absent")
    assert accepted["dollars"] == pytest.approx(0.04)
    assert accepted["by"].startswith("arn:")
    assert world.invoke("offers")["expensive"] == {}
    (line,) = world.spindown("policy", "history", "absent", "--json").stdout.splitlines()
    assert json.loads(line) == accepted
    assert world.spindown_json("cost", "absent")["rise"] is None


def test_what_came_to_a_queue_can_be_simulated_and_advised_on(world: Deployed) -> None:
    world.send("count", {"items": ["a", "bb"], "job_id": "remembered"})
    world.finished("remembered")
    # A tick of a second is for the tests beside this one: 60 times as many events to simulate.
    text = (world.directory / "spindown.toml").read_text(encoding="utf-8")
    calm = world.directory / "calm.toml"
    calm.write_text(text.replace(SWIFT, ""), encoding="utf-8")
    asked = (
        *("--workload", "count", "--arrivals", "cloudwatch", "--days", "0.1", "--seed", "3"),
        *("--policy", str(calm), "--processes", "1", "--json"),
    )

    history = world.session.aws.traffic()
    now = datetime.now(UTC)
    span = {"since": now - timedelta(hours=1), "until": now + timedelta(minutes=1)}

    # CloudWatch tells of a message when its minute is summed up.
    found(lambda: history.sent("e2e--count", **span))
    told = parsed(world.run("simulate", *asked, *("--prices", "live", "--against", "warm")))
    ours, warm = told["results"]
    assert ours["jobs_done"] == ours["jobs"] > 0
    assert ours["dollars"] < warm["dollars"]
    assert told["arrivals"] == f"{ours['jobs']} messages that came to e2e--count in 0.1 days"
    assert "an item is taken for" in " ".join(told["assumed"])

    advice = parsed(world.run("advise", *asked, *("--within", "10m")))
    assert advice["prices"] == "EC2's prices in us-east-1a, us-east-1b"
    assert advice["promise_seconds"] == 600.0
    assert advice["advised"]["dollars_a_month"] <= advice["now"]["dollars_a_month"]
    assert all(verdict["sentence"] for verdict in advice["when_not"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(
            ("status", "cuont"),
            "workload is 'cuont': name one of the deployment's:",
            id="an unknown workload",
        ),
        pytest.param(
            ("results", "nobody"),
            "results is 'nobody': name a batch or a job",
            id="an unknown batch",
        ),
        pytest.param(
            ("policy", "reset", "count", "nothing"),
            "key is 'nothing': name a key",
            id="an unknown key",
        ),
        pytest.param(
            ("submit", "count", "--items", "/absent.jsonl"),
            "--items is '/absent.jsonl': give a readable file",
            id="an absent list",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    world: Deployed, arguments: tuple[str, ...], sentence: str
) -> None:
    told = world.spindown(*arguments)

    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"spindown: {sentence}")
    assert told.stderr.count("\n") == 1
