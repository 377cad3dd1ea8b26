"""The deployed template with real Lambda code and real workers: from a message to its results."""

import json
import re
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.cli.main import main
from spindown.contract.row import spend_sort
from spindown.local.market import MarketInstance
from spindown.local.market.instance import Reason, State
from tests.e2e.world import World, deployed, found, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("e2e")
    with deployed(write_deployment(directory)) as world:
        yield world


def a_picture(width: int, height: int) -> bytes:
    """Return a grey PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x7f" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, body) for kind, body in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    )


def width_of(picture: bytes) -> int:
    return int(struct.unpack_from(">I", picture, 16)[0])


def test_a_message_by_plain_boto3_is_done_and_its_worker_ends(world: World) -> None:
    # A worker of another test may be there still, and may be ended for that test's sake.
    found(lambda: is_quiet(world.session.status("count")))
    earlier = {one.instance_id for one in world.instances("count")}
    world.send("count", {"items": ["a", "bb"], "job_id": "plain"})

    assert world.finished("plain").items_done == 2
    assert [record["result"] for record in world.records("plain")] == [{"length": 1}, {"length": 2}]

    def its_own() -> list[MarketInstance]:
        return [one for one in world.instances("count") if one.instance_id not in earlier]

    found(lambda: its_own() and all(one.state is State.TERMINATED for one in its_own()))
    assert {one.reason for one in its_own()} == {Reason.GUEST}
    found(lambda: is_quiet(world.session.status("count")))


def test_the_files_that_code_leaves_come_back_with_their_item(world: World) -> None:
    pictures = world.directory / "pictures"
    pictures.mkdir()
    (pictures / "wide.png").write_bytes(a_picture(40, 20))
    (pictures / "small.png").write_bytes(a_picture(8, 8))

    batch = world.spindown_json("submit", "thumbnail", "pictures", "--param", "width=16")
    (job_id,) = batch["jobs"]
    world.finished(job_id)

    small, wide = world.records(job_id)
    assert (small["result"]["width"], wide["result"]["width"]) == (8, 16)
    (output,) = wide["outputs"]
    picture = world.session.work_store("thumbnail").get(output["key"]).data
    assert (width_of(picture), len(picture)) == (16, output["bytes"])


def test_an_item_that_raises_is_recorded_and_the_rest_goes_on(world: World) -> None:
    world.send("count", {"items": ["a", "raise", "ccc"], "job_id": "raising"})

    progress = world.finished("raising")

    assert (progress.state, progress.items_done, progress.items_failed) == ("completed", 3, 1)
    records = world.records("raising")
    assert [record["status"] for record in records] == ["ok", "failed", "ok"]
    assert "nothing to count" in records[1]["error"]


def test_code_that_cannot_be_imported_fails_the_job(world: World) -> None:
    message_id = world.send("absent", {"items": ["a"], "job_id": "unloadable"})

    letter = world.dead_letter("absent", message_id)

    assert "a_module_that_nobody_installed" in letter["reason"]
    assert letter["job_id"] == "unloadable"
    assert world.finished("unloadable").state == "failed"
    told = world.spindown("results", "unloadable")
    assert "a_module_that_nobody_installed" in told.stderr


def test_what_came_to_a_queue_can_be_simulated_and_advised_on(world: World) -> None:
    world.send("count", {"items": ["a", "bb"], "job_id": "remembered"})
    world.finished("remembered")
    asked = ("--workload", "count", "--arrivals", "cloudwatch", "--days", "0.1", "--seed", "3")

    history = world.session.aws.traffic()
    now = datetime.now(UTC)
    span = {"since": now - timedelta(hours=1), "until": now + timedelta(minutes=1)}

    # CloudWatch tells of a message when its minute is summed up.
    found(lambda: history.sent("e2e-count", **span))
    told = world.spindown_json("simulate", *asked, "--prices", "live", "--against", "warm")
    ours, warm = told["results"]
    assert ours["jobs_done"] == ours["jobs"] > 0
    assert ours["dollars"] < warm["dollars"]
    assert told["arrivals"] == f"{ours['jobs']} messages that came to e2e-count in 0.1 days"
    assert "an item is taken for" in " ".join(told["assumed"])

    advice = world.spindown_json("advise", *asked, "--within", "10m")
    assert advice["prices"] == "EC2's prices in us-east-1a, us-east-1b"
    assert advice["promise_seconds"] == 600.0
    assert advice["advised"]["dollars_a_month"] <= advice["now"]["dollars_a_month"]
    assert all(verdict["sentence"] for verdict in advice["when_not"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"item": ["a"]}', "did you mean items?"),
        ("not JSON", "write one JSON object"),
        ('{"items": ["a"], "prefix_uri": "s3://b-b/c/"}', "exactly one of"),
    ],
    ids=["an unknown key", "no JSON", "two sources"],
)
def test_a_malformed_message_is_dead_lettered_and_the_next_done(
    world: World, body: str, reason: str, request: pytest.FixtureRequest
) -> None:
    job_id = f"after-{request.node.callspec.id.replace(' ', '-')}"
    message_id = world.send("count", body)
    world.send("count", {"items": ["a"], "job_id": job_id})

    letter = world.dead_letter("count", message_id)

    assert reason in letter["reason"]
    assert letter["body"] == body
    assert world.finished(job_id).state == "completed"


def test_a_job_of_too_many_items_is_split_and_done_once(world: World) -> None:
    world.send("count", {"items": ["x" * n for n in range(1, 11)], "job_id": "large"})

    progress = world.finished("large")

    assert (progress.state, progress.items_done, progress.items) == ("completed", 10, 10)
    records = world.records("large")
    assert [record["result"]["length"] for record in records] == list(range(1, 11))
    assert len({record["job_id"] for record in records}) == 3


def test_a_policy_set_live_is_in_force_and_a_broken_edit_is_not(world: World) -> None:
    assert world.spindown_json("policy", "set", "count", "max_workers=0") == {"max_workers": 0}
    found(lambda: is_quiet(world.session.status("count")))
    world.send("count", {"items": ["a"], "job_id": "held-back"})
    found(lambda: "max_workers is 0" in world.session.status("count").decision)

    world.put_live_policy("count", json.dumps({"max_workers": "many"}))
    troubles = world.session.status("count").troubles
    shown = world.spindown("policy", "diff", "count")
    assert troubles == ("the live policy is refused: max_workers is 'many': write a whole number",)
    assert "the last good edit is in force" in shown.stderr
    assert "max_workers  1         0" in shown.stdout

    refused = world.spindown("policy", "set", "count", "max_workers=some")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "spindown: max_workers is 'some': write a whole number\n"

    assert world.spindown_json("policy", "reset", "count", "max_workers") == {"max_workers": 1}
    assert world.finished("held-back").state == "completed"


def test_a_subscriber_hears_why_an_item_became_dear(world: World) -> None:
    inbox = world.subscribe()
    ledger, today = world.session.ledger("absent"), datetime.now(UTC)
    day = {"items": 100, "launches": 1, "boot_seconds": 60.0, "busy_seconds": 3600.0}
    for ago, dollars in ((0, 4.0), (1, 1.0), (2, 1.0), (3, 1.0)):
        sort = spend_sort(today - timedelta(days=ago))
        ledger.write(ledger.change(sort, {"dollars": dollars, **day}))

    said = world.invoke("offers")

    assert said["dear"] == {"absent": "price"}
    assert said["not_judged"] == {}
    (subject, text) = world.heard(inbox)
    assert subject == "e2e-absent: cost-price"
    # A machine that another test has left to this workload may still add its seconds.
    words = r"absent: An item costs 0\.04\d* USD, usually 0\.01\. Price: a paid hour"
    assert re.match(words, text)
    assert "To do: lower `max_price_per_hour`" in text
    assert world.invoke("offers")["dear"] == {"absent": "price"}
    assert world.is_silent(inbox)


def test_jobs_from_files_lines_and_stdin_are_found_by_batch(world: World) -> None:
    (world.directory / "lines.jsonl").write_text('"a"\n\n"bb"\n"ccc"\n', encoding="utf-8")

    sent = world.spindown_json(
        "submit", "count", "--items", "lines.jsonl", "--items-per-job", "2", "--tenant", "acme"
    )

    assert (sent["items"], len(sent["jobs"])) == (3, 2)
    for job_id in sent["jobs"]:
        world.finished(job_id)
    told = world.spindown("results", sent["batch_id"])
    lengths = [json.loads(line)["result"]["length"] for line in told.stdout.splitlines()]
    assert lengths == [1, 2, 3]
    summary = world.spindown("results", sent["batch_id"], "--summary")
    assert [line.split()[1:3] for line in summary.stdout.splitlines()] == [
        ["completed", "2/2"],
        ["completed", "1/1"],
    ]


def test_a_prefix_in_s3_is_a_job_of_all_that_lies_there(world: World, tmp_path: Path) -> None:
    for name in ("one", "two"):
        path = tmp_path / name
        path.write_text(name, encoding="utf-8")
        world.session.work_store("count").put_file(f"inputs/here/{name}", path)

    here = f"{world.session.work_uri('count')}inputs/here/"
    sent = world.spindown_json("submit", "count", "--uri", here)
    (job_id,) = sent["jobs"]
    world.finished(job_id)

    assert [record["item"] for record in world.records(job_id)] == [
        f"{here}{name}" for name in ("one", "two")
    ]


def test_a_missing_input_fails_its_item_a_missing_list_its_job(world: World) -> None:
    uploads = f"{world.session.work_uri('count')}inputs/"
    absent = f"{uploads}absent.bin"
    world.send("count", {"items": ["a", absent], "job_id": "missing-input"})
    message_id = world.send(
        "count", {"items_uri": f"{uploads}absent.jsonl", "job_id": "missing-list"}
    )

    assert world.finished("missing-input").items_failed == 1
    assert world.records("missing-input")[1]["error"] == f"{absent} is not there"
    assert "put the object there" in world.dead_letter("count", message_id)["reason"]


def test_every_view_is_json_for_programs(world: World) -> None:
    workloads = [entry["workload"] for entry in world.spindown_json("status")]

    def plan_without_workers() -> Any:
        plan = world.spindown_json("plan", "count", "--backlog", "3")
        return plan if plan["sizing"]["wanted"] else None

    plan = found(plan_without_workers)
    (decision, *_) = world.spindown_json("why", "count")[0]["decisions"]

    assert sorted(workloads) == ["absent", "count", "thumbnail"]
    assert plan["sizing"]["wanted"] == 1
    assert {"offer", "constraint", "reason"} < plan["rejected"][0].keys()
    # The function that keeps the catalogue has read the spot advisor's file and the volumes.
    offers = [candidate["offer"] for candidate in plan["candidates"]]
    assert all(o["reclaim_share"] for o in offers if o["capacity_type"] == "spot")
    assert all(o["volume_price"] > 0 for o in offers)
    assert decision["workload"] == "count"


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
            ("submit", "count", "absent-file"),
            "FILES is 'absent-file': name a file",
            id="an absent file",
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
        pytest.param(
            ("submit", "count", "--uri", "https://here/"),
            "--uri is 'https://here/': write it as s3://",
            id="an address that is not of S3",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    world: World, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--deployment", "e2e"])

    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (1, "")
    assert told.err.startswith(f"spindown: {sentence}")
    assert told.err.count("\n") == 1
