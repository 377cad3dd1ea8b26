"""The deployed template with real Lambda code and real workers, for who sends.

From a message, a command or a Python program to its results. To deploy costs more than all that is
asked of it, so one deployment serves all.
"""

import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from spindown import BadInput, ItemFailed, Workload
from spindown.cli.init import init
from spindown.contract.log import JOB_USED
from spindown.domain.fleet import CodeProgress
from spindown.ec2sim import Ec2Instance, EndReason, InstanceState
from tests.e2e.world import HANGING, ROOT, SWIFT, World, deployed, found, parsed, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.long(minutes=3)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("e2e")
    path = write_deployment(directory, "count", "thumbnail")
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
