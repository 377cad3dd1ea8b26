"""The deployed template with real Lambda code and real workers: from a message to its results."""

import json
import signal
import struct
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.batch import UPLOADS
from spindown.contract.log import JOB_USED
from spindown.domain.fleet import CodeProgress
from spindown.ec2sim import Ec2Instance, EndReason, InstanceState
from spindown.operate.folder import pack_folder
from tests.e2e.world import HANGING, World, deployed, found, parsed, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("e2e")
    with deployed(write_deployment(directory, "count", "thumbnail", "absent", "lab")) as world:
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

    def its_own() -> list[Ec2Instance]:
        return [one for one in world.instances("count") if one.instance_id not in earlier]

    found(lambda: its_own() and all(one.state is InstanceState.TERMINATED for one in its_own()))
    assert {one.reason for one in its_own()} == {EndReason.POWERED_OFF}
    found(lambda: is_quiet(world.session.status("count")))


def test_the_files_that_code_leaves_come_back_with_their_item(world: World) -> None:
    pictures = world.directory / "pictures"
    pictures.mkdir()
    (pictures / "wide.png").write_bytes(a_picture(40, 20))
    (pictures / "small.png").write_bytes(a_picture(8, 8))

    batch = world.spindown_json("submit", "thumbnail", str(pictures), "--param", "width=16")
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


def test_jobs_from_files_lines_and_stdin_are_found_by_batch(world: World) -> None:
    (world.directory / "lines.jsonl").write_text('"a"\n\n"bb"\n"ccc"\n', encoding="utf-8")

    # Relative names, and no word of where AWS is: this is the command as a shell finds it.
    sent = parsed(
        world.shell(
            *("submit", "count", "--items", "lines.jsonl", "--items-per-job", "2"),
            *("--tenant", "acme", "--json"),
        )
    )

    assert (sent["items"], len(sent["jobs"])) == (3, 2)
    for job_id in sent["jobs"]:
        world.finished(job_id)
    told = world.shell("results", sent["batch_id"])
    lengths = [json.loads(line)["result"]["length"] for line in told.stdout.splitlines()]
    assert lengths == [1, 2, 3]
    summary = world.spindown("results", sent["batch_id"], "--summary")
    assert [line.split()[1:3] for line in summary.stdout.splitlines()] == [
        ["completed", "2/2"],
        ["completed", "1/1"],
    ]


def progress_of(world: World, job_id: str) -> CodeProgress | None:
    """Return what the status says of a job's progress; None: it does not yet."""
    leases = [lease for one in world.session.status("count").workers for lease in one.leases]
    return next((one.progress for one in leases if one.job_id == job_id), None)


def test_a_log_is_followed_from_machine_to_machine(world: World) -> None:
    gate, waiting = world.directory / "gate", world.directory / "waiting.jsonl"
    waiting.write_text(f'"a"\n{json.dumps(str(gate))}', encoding="utf-8")
    batch = world.spindown_json("submit", "count", "--items", str(waiting))
    (job_id,) = batch["jobs"]

    with world.followed("logs", job_id, "--follow", "--json") as follower:
        assert follower.stdout is not None
        rows = map(json.loads, follower.stdout)
        # How each attempt has used its machine may come late.
        lines = (row for row in rows if row.get("event") != JOB_USED)
        # The job goes on only when its line has been seen.
        first = next(lines)
        assert (first["attempt"], first["value"]) == (1, f"waits\x1b[2J for {gate}")
        told = next(lines)
        assert (told["done"], told["of"], told["value"]) == (2, 2, "\\x1b[2Jwaiting")
        assert first["instance_id"] == world.worker_at_work("count", job_id=job_id).instance_id
        progress = found(lambda: progress_of(world, job_id))
        assert (progress.done, progress.of) == (2, 2)
        world.system.market.interrupt(first["instance_id"], notice=timedelta(seconds=5))
        second = next(lines)
        assert (second["attempt"], second["value"]) == (2, first["value"])
        # What was committed is not in the batch any more.
        told = next(lines)
        assert (told["done"], told["of"]) == (2, 1)
        gate.touch()
        (end,) = lines
        assert end["state"] == "completed"
        assert follower.wait(HANGING) == 0

    assert second["instance_id"] != first["instance_id"]
    kept = world.spindown("logs", job_id).stdout.splitlines()
    assert [line for line in kept if line.startswith("==")] == [
        f"== {job_id}, attempt 1 ==",
        f"== {job_id}, attempt 2 ==",
    ]
    assert world.spindown("logs", second["instance_id"]).stdout.count(str(gate)) == 1


def test_a_command_is_run_in_a_copy_of_a_folder(world: World, tmp_path: Path) -> None:
    (tmp_path / "say.sh").write_text("read word < data; echo $word > outputs/made; exit 7")
    (tmp_path / "data").write_text("hello")
    (tmp_path / ".env").write_text("secret")
    folder = ("--config", str(world.directory / "spindown.toml"), "--folder", str(tmp_path))
    # The workload declares no types.
    assert world.run("run", *folder, "--cpu", "1", "true").returncode == 1

    found(lambda: is_quiet(world.session.status("lab")))
    done = world.run("run", *folder, "--", "sh", "-c", "ls -A; . ./say.sh")

    title, *listed = done.stdout.splitlines()
    assert listed[:4] == [".spindown-command.json", "data", "outputs", "say.sh"]
    (made,) = (tmp_path / "outputs").glob("*/made")
    assert made.read_text() == "hello\n"
    assert done.returncode == 7
    instances = {one.instance_id: one for one in world.instances("lab")}
    (instance,) = [one for one in instances.values() if one.instance_id in title]
    # Which pools were tried, and what one run has used.
    assert f"{instance.instance_type}/{instance.zone}/" in done.stderr
    assert any("CPU" in line for line in listed[4:])


def test_an_interrupted_run_goes_on_without_its_sender(world: World, tmp_path: Path) -> None:
    gate = world.directory / "lab-gate"
    waits = f"echo begun; while [ ! -e {gate} ]; do sleep 0.1; done; echo over"

    with world.followed("run", "--folder", str(tmp_path), "--", "sh", "-c", waits) as runner:
        assert runner.stdout is not None
        title = next(runner.stdout)
        assert next(runner.stdout) == "begun\n"
        runner.send_signal(signal.SIGINT)
        assert runner.wait(HANGING) == 130

    job_id = title.removeprefix("== ").partition(",")[0]
    gate.touch()
    assert world.finished(job_id).state == "completed"
    assert [one["result"] for one in world.records(job_id)] == [{"exit_status": 0}]


def test_what_a_sender_uploads_is_never_run(world: World, tmp_path: Path) -> None:
    evil = pack_folder(tmp_path, ["sh", "-c", "echo owned"])
    store = world.session.work_store("lab")
    store.put(f"{UPLOADS}b/{evil.digest}.zip", evil.archive)
    items = [f"{world.session.work_uri('lab')}{UPLOADS}b/{evil.digest}.zip", "sh -c true"]

    world.send("lab", {"items": items, "job_id": "evil"})

    assert world.finished("evil").items_failed == 2
    assert "owned" not in world.spindown("logs", "evil", "--workload", "lab").stdout


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
