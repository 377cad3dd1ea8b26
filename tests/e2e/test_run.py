"""The deployed template with real Lambda code and real workers, for who sends and who operates.

From a message to its results; then views, policies, alerts and advice. To deploy costs more than
all that is asked of it, so one deployment serves all.
"""

import asyncio
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from spindown import BadInput, ItemFailed, Workload
from spindown.cli.init import init
from spindown.contract.job.batch import UPLOADS
from spindown.contract.log import JOB_USED
from spindown.domain.fleet import CodeProgress
from spindown.domain.month_bill import Grouping
from spindown.ec2sim import Ec2Instance, EndReason, InstanceState
from spindown.operate.sent_folder import pack_folder
from tests.cost_export import CUR_COLUMNS, Used, cur_row, write_csv
from tests.day import day_rows
from tests.e2e.mixed import TYPES, check_mixed, send_mixed
from tests.e2e.world import HANGING, ROOT, SWIFT, World, deployed, found, parsed, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("e2e")
    path = write_deployment(directory, "count", "thumbnail", "absent", "lab", "mixed")
    path.write_text(path.read_text(encoding="utf-8") + TYPES, encoding="utf-8")
    add_function(path)
    with deployed(path) as world:
        yield world


def add_function(config: Path) -> None:
    """Put the function of the page beside a spindown.toml, with a policy that ends in seconds."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```py\n# digest.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    policy = f"memory_gib=2, policy={tomllib.loads(SWIFT)!r})"
    file = config.parent / "digest.py"
    file.write_text(text.replace("memory_gib=2)", policy), encoding="utf-8")
    init(config=config, functions=[file])


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


def test_thirty_mixed_jobs_get_the_machines_that_they_need(world: World) -> None:
    jobs = send_mixed(world, 30)
    assert len(jobs) == 30
    check_mixed(world, jobs)


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

    assert (progress.state, progress.items_done, progress.items_failed) == ("completed", 2, 1)
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


@pytest.fixture
def gate(world: World) -> Iterator[Path]:
    """Return a file for which a job waits; at last it is there, or others would wait too."""
    path = world.directory / "gate"
    yield path
    path.touch()


def test_a_log_is_followed_from_machine_to_machine(world: World, gate: Path) -> None:
    waiting = world.directory / "waiting.jsonl"
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
        with world.followed("logs", first["instance_id"], "--follow") as watcher:
            assert watcher.stdout is not None
            assert any(job_id in line for line in watcher.stdout)
            world.system.market.interrupt(first["instance_id"], notice=timedelta(seconds=30))
            # It ends with the machine.
            assert str(gate) in watcher.stdout.read()
            assert watcher.wait(HANGING) == 0
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
    heads = [line for line in kept if line.startswith("==")]
    assert heads[:2] == [f"== {job_id}, attempt 1 ==", f"== {job_id}, attempt 2 =="]
    # How each has used its machine is no part of what was kept.
    used = {
        f"== {job_id}, attempt {one['attempt']} on {one['instance_id']} =="
        for one in (first, second)
    }
    assert set(heads[2:]) <= used
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
    job_id = title.removeprefix("== ").partition(",")[0]
    assert world.finished(job_id).items_failed == 1
    # Whoever tells of it tells the same.
    (batch,) = world.spindown_json("status", job_id)
    assert (batch["batch"]["state"], batch["batch"]["items_failed"]) == ("failed", 1)
    assert world.run("results", job_id).returncode == 1
    instances = {one.instance_id: one for one in world.instances("lab")}
    (instance,) = [one for one in instances.values() if one.instance_id in title]
    # Which pools were tried, and what one run has used.
    assert f"{instance.instance_type}/{instance.zone}/" in done.stderr
    assert any("CPU" in line for line in listed[4:])


def test_an_interrupted_run_goes_on_without_its_sender(world: World, tmp_path: Path) -> None:
    gate = world.directory / "lab-gate"
    # Its line is seen though it flushes none.
    waits = (
        f"import os, time\nprint('begun')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)"
    )
    command = (sys.executable, "-c", waits)

    with world.followed("run", "--folder", str(tmp_path), "--", *command) as runner:
        assert runner.stdout is not None
        title = next(runner.stdout)
        assert next(runner.stdout) == "begun\n"
        runner.send_signal(signal.SIGINT)
        assert runner.wait(HANGING) == 130

    job_id = title.removeprefix("== ").partition(",")[0]
    gate.touch()
    assert world.finished(job_id).state == "completed"
    assert [one["result"] for one in world.records(job_id)] == [{"exit_status": 0}]


def test_a_run_is_cancelled_by_whom_it_is_asked(world: World, tmp_path: Path) -> None:
    screen, keys = pty.openpty()
    command = ("run", "--folder", str(tmp_path), "--", "sh", "-c", "echo begun; sleep 600")
    with world.followed(*command, stdin=keys) as runner:
        assert runner.stdout is not None
        title = next(runner.stdout)
        assert next(runner.stdout) == "begun\n"
        runner.send_signal(signal.SIGINT)
        os.write(screen, b"c\n")
        assert runner.wait(HANGING) == 130
    os.close(screen)
    os.close(keys)

    assert world.finished(title.removeprefix("== ").partition(",")[0]).state == "cancelled"


def test_what_a_sender_uploads_is_never_run(world: World, tmp_path: Path) -> None:
    evil = pack_folder(tmp_path, ["sh", "-c", "echo owned"])
    store = world.session.work_store("lab")
    store.put(f"{UPLOADS}b/{evil.digest}.zip", evil.archive)
    items = [f"{world.session.work_uri('lab')}{UPLOADS}b/{evil.digest}.zip", "sh -c true"]

    world.send("lab", {"items": items, "job_id": "evil"})

    assert world.finished("evil").items_failed == 2
    assert "owned" not in world.spindown("logs", "evil", "--workload", "lab").stdout


def run_program(world: World, program: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in the folder of the deployment, without AWS's configuration of the tests."""
    known = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=world.directory,
        env=known,
        capture_output=True,
        text=True,
        timeout=HANGING,
    )


def a_workload(world: World) -> Workload[str, dict[str, int]]:
    return Workload("count", config=world.directory / "spindown.toml")


def test_a_program_maps_items_to_results_in_order(world: World) -> None:
    words = ["x" * size for size in range(1, 8)]

    # More items of a job than a job may have, so that it is split.
    values = list(a_workload(world).map(iter(words), items_per_job=6, timeout=HANGING))

    assert values == [{"length": size} for size in range(1, 8)]


def test_an_item_that_raises_is_raised_with_its_traceback(world: World) -> None:
    workload = a_workload(world)
    items = ["a", "raise", "ccc"]

    outcomes = workload.gather(items, return_exceptions=True, items_per_job=3, timeout=HANGING)

    first, failure, last = outcomes
    assert (first, last) == ({"length": 1}, {"length": 3})
    assert isinstance(failure, ItemFailed)
    assert (failure.index, failure.item) == (1, "raise")
    assert failure.error == "ValueError: nothing to count"
    assert 'raise ValueError("nothing to count")' in (failure.traceback or "")
    assert f"spindown logs {failure.job_id} --workload count" in str(failure)
    batch = workload.batch(failure.batch_id)
    assert (batch.status().items_done, batch.status().items_failed) == (2, 1)
    with pytest.raises(ItemFailed):
        batch.gather(timeout=HANGING)
    found = {one.index: one.ok for one in batch.as_completed(timeout=HANGING)}
    assert found == {0: True, 1: False, 2: True}


def test_leaving_the_results_cancels_what_is_not_done(world: World) -> None:
    gate, workload = world.directory / "never", a_workload(world)

    with workload.as_completed(["a", str(gate)], items_per_job=1, timeout=HANGING) as results:
        first = next(results)

    assert first.result() == {"length": 1}
    count = workload.batch(first.job_id.rpartition("-")[0]).wait(timeout=HANGING)
    assert (count.state, count.jobs_over, count.items_done) == ("cancelled", 2, 1)


def test_the_same_call_with_a_key_finds_its_batch_again(world: World) -> None:
    gate, workload = world.directory / "later", a_workload(world)
    items = ["a", str(gate)]

    with workload.map(items, key="nightly", timeout=HANGING) as results:
        assert next(results) == {"length": 1}
    gate.touch()

    assert workload.gather(items, key="nightly", timeout=HANGING) == [
        {"length": 1},
        {"length": len(str(gate))},
    ]
    with pytest.raises(BadInput, match="key is 'nightly'"):
        workload.gather(["b"], key="nightly")


def test_an_event_loop_goes_on_while_results_come(world: World) -> None:
    gate, workload = world.directory / "opened", a_workload(world)

    async def use() -> list[dict[str, int]]:
        async with workload.aio.map(["a", str(gate)], timeout=HANGING) as results:
            first = await anext(results)
            gate.touch()
            return [first] + [one async for one in results]

    assert asyncio.run(use()) == [{"length": 1}, {"length": len(str(gate))}]


def test_a_program_that_raises_leaves_nothing_behind(world: World) -> None:
    gate = world.directory / "forgotten"
    program = (
        "from spindown import Workload\n"
        "workload = Workload('count', local_system=True)\n"
        f"results = workload.map({['a', str(gate)]!r}, items_per_job=1)\n"
        "print(next(results), flush=True)\n"
        "raise SystemExit(3)\n"
    )

    ended = run_program(world, program)

    assert (ended.returncode, ended.stdout) == (3, "{'length': 1}\n"), ended.stderr
    newest = world.spindown_json("batches", "count", "--limit", "1")
    assert [one["state"] for one in newest] == ["cancelled"]


def test_every_example_of_the_page_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(world.directory)
    monkeypatch.syspath_prepend(str(world.directory))
    names: dict[str, object] = {}

    for example in examples:
        exec(compile(example, "python.md", "exec"), names)  # noqa: S102 - our own page

    printed = capsys.readouterr().out
    assert printed.startswith("{'length': 1}\n{'length': 2}\n{'length': 3}\n")
    assert "ValueError: nothing to count" in printed
    assert names["values"] == [{"length": 1}, {"length": 2}]
    # A call here, on machines, and here as on a machine.
    assert printed.count("ca978112\n") == 2
    assert [text[:8] for text in cast("list[str]", names["texts"])] == ["ca978112", "3b64db95"]


def test_a_function_runs_as_it_was_deployed_or_not_at_all(world: World) -> None:
    program = (
        "import asyncio, hashlib\n"
        "from digest import digest\n"
        "there = digest.workload(local_system=True)\n"
        "batch = there.submit(['a'])\n"
        "there_too = asyncio.run(there.aio.gather(['bb', 3], return_exceptions=True))\n"
        "here = digest.local.gather(['bb', 3], return_exceptions=True)\n"
        "assert batch.gather() == [digest('a')]\n"
        "assert there_too[0] == here[0] == digest('bb')\n"
        "print(there_too[1].error, here[1].error, sep='\\n')\n"
        "for one in (there_too[1], here[1]):\n"
        "    print(one.traceback.splitlines()[-1])\n"
    )

    done = run_program(world, program)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {
        "AttributeError: 'int' object has no attribute 'encode'"
    }
    told = len(world.spindown_json("batches", "digest"))

    file = world.directory / "digest.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\n# changed since\n", encoding="utf-8")
    refused = run_program(world, program)
    file.write_text(text, encoding="utf-8")

    assert refused.returncode == 1
    assert "function is 'digest': its code here is not what runs" in refused.stderr
    assert len(world.spindown_json("batches", "digest")) == told


def test_files_go_and_come_by_their_paths(world: World, tmp_path: Path) -> None:
    picture = tmp_path / "wide.png"
    picture.write_bytes(a_picture(40, 20))
    workload = Workload[Path, Any]("thumbnail", config=world.directory / "spindown.toml")

    (found,) = workload.results([picture], params={"width": 16}, timeout=HANGING)
    (made,) = found.download(tmp_path / "made")

    assert (found.result()["width"], width_of(made.read_bytes())) == (16, 16)


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

    assert sorted(workloads) == ["absent", "count", "digest", "lab", "mixed", "thumbnail"]
    assert plan["sizing"]["wanted"] == 1
    assert {"offer", "constraint", "reason"} < plan["rejected"][0].keys()
    # The function that keeps the catalogue has read the spot advisor's file and the volumes.
    offers = [candidate["offer"] for candidate in plan["candidates"]]
    assert all(o["reclaim_share"] for o in offers if o["capacity_type"] == "spot")
    assert all(o["volume_price"] > 0 for o in offers)
    assert decision["workload"] == "count"


def test_usage_tells_what_a_job_has_used(world: World) -> None:
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


def test_a_policy_set_live_is_in_force_and_a_broken_edit_is_not(world: World) -> None:
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
    assert refused.stderr.endswith("spindown: max_workers is 'some': write a whole number\n")

    assert world.spindown_json("policy", "reset", "count", "max_workers") == {"max_workers": 1}
    assert world.finished("held-back").state == "completed"


def test_a_subscriber_hears_why_an_item_became_dear(world: World) -> None:
    found(lambda: is_quiet(world.session.status("thumbnail")))
    inbox = world.subscribe()
    ledger, today = world.session.ledger("thumbnail"), datetime.now(UTC)
    day = {"items": 100, "launches": 1, "boot_seconds": 60.0, "busy_seconds": 3600.0}
    for ago, dollars in ((0, 4.0), (7, 1.0), (14, 1.0)):
        at = today - timedelta(days=ago)
        for sort, row in day_rows(at, {"dollars": dollars, **day}).items():
            ledger.write(ledger.change(sort, row))

    said = world.invoke("offers")

    assert said["expensive"] == {"thumbnail": "price"}
    assert (said["not_judged"], said["not_lost"]) == ({}, {})
    (subject, text) = world.heard(inbox, "thumbnail")
    assert subject == "e2e--thumbnail: cost-price"
    assert text.startswith("thumbnail: ")
    assert "0.04 USD" in text
    assert "0.01" in text
    assert "`max_price_per_hour`" in text
    assert world.invoke("offers")["expensive"] == {"thumbnail": "price"}
    assert world.is_silent(inbox, "thumbnail")
    assert (
        world.spindown_json("cost", "thumbnail")["rise"]["rise"]["usual"]["items_per_launch"] == 100
    )

    accepted = world.spindown_json("policy", "accept-cost", "thumbnail")
    assert accepted["dollars"] == pytest.approx(0.04, rel=0.01)
    assert accepted["by"].startswith("arn:")
    assert world.invoke("offers")["expensive"] == {}
    (line,) = world.spindown("policy", "history", "thumbnail", "--json").stdout.splitlines()
    assert json.loads(line) == accepted
    assert world.spindown_json("cost", "thumbnail")["rise"] is None


def test_the_bill_is_the_market_s_within_cents(world: World) -> None:
    # Tests come in any order; this one may be the first.
    world.send("count", {"items": ["a"], "job_id": "billed"})
    world.finished("billed")
    workloads = world.session.deployment.workloads
    found(lambda: all(is_quiet(world.session.status(name)) for name in workloads))
    lines = world.system.market.bill()
    now = datetime.now(UTC)
    tags = {"spindown:deployment": world.session.deployment.name}
    rows = [
        cur_row(
            Used(
                at=now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1),
                length=timedelta(hours=2),
                dollars=line.dollars,
                amount=line.paid_seconds / 3600,
                resource=line.instance_id,
                tags=tags,
            )
        )
        for line in lines
    ]
    export = write_csv(world.directory / "cur.csv.gz", CUR_COLUMNS, rows)

    told = world.spindown_json("bill", "--export", str(export))

    # The market charges nothing for a machine that it has taken back within its first hour.
    machines = {one["instance_id"]: one for one in told["machines"]}
    assert machines.keys() >= {line.instance_id for line in lines if line.paid_seconds}
    assert machines.keys() <= {line.instance_id for line in lines}
    charged = sum(line.dollars for line in lines)
    assert charged > 0
    # Of a machine whose end is not in the books yet some seconds are told.
    minutes_left = 0.002 * len(lines)
    booked = sum(one["machine"] for one in machines.values())
    assert booked == pytest.approx(charged, abs=minutes_left)
    (kind,) = (one for one in told["export"]["kinds"] if one["kind"] == "machines")
    assert kind["billed"] == pytest.approx(charged)
    assert abs(kind["billed"] - kind["booked"]) < minutes_left
    assert told["export"]["tags"] == ["spindown:deployment"]
    for grouping in Grouping:
        rows_told = world.spindown_json("bill", "--by", grouping)["rows"]
        assert sum(row["dollars"] for row in rows_told) == pytest.approx(told["dollars"], rel=0.01)
    assert world.spindown("bill", "--csv").stdout.startswith("name,usd,estimate")


def test_what_came_to_a_queue_can_be_simulated_and_advised_on(world: World) -> None:
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
            "WORKLOAD, BATCH or JOB is 'cuont': name a batch or a job",
            id="an unknown name",
        ),
        pytest.param(
            ("results", "nobody"),
            "BATCH or JOB is 'nobody': name a batch or a job",
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
def test_a_mistake_is_one_sentence(world: World, arguments: tuple[str, ...], sentence: str) -> None:
    told = world.spindown(*arguments)

    assert (told.returncode, told.stdout) == (1, "")
    # On a busy machine it may say before that it loads.
    (said,) = [line for line in told.stderr.splitlines() if not line.endswith(" ...")]
    assert said.startswith(f"spindown: {sentence}")
