"""Code that wants the worker to write, read or remove files for it."""

import hashlib
import os
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from spindown.contract.job.manifest import (
    JobState,
    Manifest,
    StateFile,
    encode_manifest,
    manifest_key,
    state_key,
)
from spindown.contract.job.result import ItemStatus
from spindown.domain.policy import Policy
from spindown.worker.child.failure_cause import FailureCause
from spindown.worker.machine.leftover import PLACES
from tests.hostile.cell import CODE_GROUP, CODE_USER, Cell

#: Inputs by whose last name the worker names files: wherever they land, they are modules.
INPUTS = [f"s3://inputs/{n}/module.py" for n in range(4)]

#: Each is done at the first item; what the worker makes next, or removes, is to lead elsewhere.
PLANTS = {
    "the next inputs": """
        for n in range(1, 8):
            plant(job / "inputs" / str(n))
    """,
    "all inputs": """
        attempt(os.rename, job / "inputs", job / "moved")
        plant(job / "inputs")
    """,
    "the whole job": """
        attempt(os.rename, job, SLOT / "moved")
        plant(job)
    """,
    "the next job": """
        for epoch in range(1, 9):
            for name in ("state", "inputs", "outputs"):
                plant(SLOT / f"next.{epoch}" / name)
    """,
    "a link for the next job": """
        for epoch in range(1, 9):
            plant(SLOT / f"next.{epoch}")
    """,
    "what is fetched ahead": """
        for n in range(9):
            plant(SLOT / f"ahead-{n}")
    """,
    "outputs": """
        attempt(os.rename, job / "outputs", SLOT / "tmp" / "moved")
        plant(job / "outputs")
        plant(job / "outputs" / "1")
        plant(job / "outputs" / "2")
    """,
    "an item's outputs": """
        import shutil
        shutil.rmtree(ctx.output_dir(batch[0]))
        os.symlink(VICTIM / "0", ctx.outputs / "0")
    """,
    "state": """
        import shutil
        attempt(os.rename, ctx.state_dir, SLOT / "tmp" / "moved-state")
        plant(job / "state")
        attempt(os.symlink, VICTIM / "secret", job / "state" / "secret")
    """,
    "the temporary directory": """
        attempt(os.rename, SLOT / "tmp", SLOT / "moved-tmp")
        plant(SLOT / "tmp")
        plant(SLOT / "tmp" / "link")
    """,
    "secrets by links": """
        out = ctx.output_dir(batch[0])
        os.symlink(VICTIM / "secret", out / "direct")
        os.symlink(VICTIM, out / "folder")
        attempt(os.link, VICTIM / "secret", out / "hard")
        os.mkfifo(out / "pipe")
        attempt(os.link, VICTIM / "secret", ctx.state_dir / "hard")
        os.symlink(VICTIM / "secret", ctx.state_dir / "secret")
    """,
}
RUN = """
def run(batch, ctx):
    job, out = ctx.outputs.parent, ctx.output_dir(batch[0])
    if batch[0].index == 0 and ctx.job_id == "j":
{act}
    return [Result(batch[0], 1)]
"""


def at_first(act: str) -> str:
    """Return code that acts at the first item of the first job, and answers for all."""
    return RUN.format(act=textwrap.indent(textwrap.dedent(act), " " * 8))


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_no_path_of_the_code_leads_the_worker_astray(cell: Cell, name: str) -> None:
    slot = cell.hold(at_first(PLANTS[name]))
    world = slot.world
    world.send({"job_id": "j", "items": INPUTS})
    assert slot.step()
    # A later job, whose state the worker brings back.
    data = b"import os"
    digest = hashlib.sha256(data).hexdigest()
    world.objects.put(state_key("next", digest), data)
    state = StateFile(
        path="module.py",
        key=state_key("next", digest),
        bytes=len(data),
        sha256=digest,
        stored_at=world.clock.now(),
    )
    manifest = Manifest(
        job_id="next",
        epoch=1,
        owner="i-9/0",
        state=JobState.RUNNING,
        code_version="d",
        user_state=(state,),
    )
    world.objects.put(manifest_key("next"), encode_manifest(manifest))
    world.clock.advance(timedelta(minutes=10))
    world.send({"job_id": "next", "items": INPUTS})
    assert slot.step()

    assert cell.is_untouched()
    assert not cell.has_leaked(slot)
    assert world.manifest("next").state is JobState.COMPLETED
    cell.runners[0].kill()
    assert cell.left <= {"moved", "moved-state", "tmp/moved", "tmp/moved-state", "tmp/link"}


#: What may lie where the worker removes the files of an item, of a call and of a job.
REMAINS = {
    "deep": """
        os.chdir(out)
        for n in range(1200):
            os.mkdir("d")
            os.chdir("d")
        os.chdir("/")
    """,
    "sticky": """
        (out / "sticky").mkdir()
        (out / "sticky" / "file").write_text("x")
        (out / "sticky").chmod(0o1777)
    """,
    "closed": """
        (out / "closed" / "inner").mkdir(parents=True)
        (out / "closed" / "inner" / "file").write_text("x")
        (out / "closed" / "inner").chmod(0)
        (out / "closed").chmod(0)
    """,
    "odd names": """
        for name in (b"\\xff", b"-rf", b"\\n", b"..." , b"*", b"a" * 255):
            (out / os.fsdecode(name)).write_text("x")
    """,
    "no files": """
        os.mkfifo(out / "pipe")
        os.symlink("/", out / "root")
        import socket
        os.chdir(out)
        socket.socket(socket.AF_UNIX).bind("socket")
        os.chdir("/")
    """,
}
LEAVE = """
for out in (out, ctx.state_dir, SLOT / "tmp"):
{act}
raise ValueError("not today")
"""


#: To make so many takes seconds.
SLOW = {"deep", "files"}


def named(cases: dict[str, str]) -> list[ParameterSet]:
    return [
        pytest.param(name, marks=[pytest.mark.proof] if name in SLOW else [])
        for name in sorted(cases)
    ]


@pytest.mark.parametrize("name", named(REMAINS))
def test_nothing_the_code_leaves_stays(cell: Cell, name: str) -> None:
    act = textwrap.indent(textwrap.dedent(REMAINS[name]), " " * 4)
    slot = cell.hold(at_first(LEAVE.format(act=act)))
    slot.world.send({"job_id": "j", "items": ["x"]})
    assert slot.step()

    cell.runners[0].kill()
    slot.world.send({"job_id": "k", "items": []})
    assert slot.step()
    assert cell.left == set()


OUTSIDE = """
import ctypes
name, libc = f"left-{os.getgid()}", ctypes.CDLL(None)
for place in ("/tmp", "/var/tmp", "/dev/shm"):
    (pathlib.Path(place) / name / "inner").mkdir(parents=True)
    (pathlib.Path(place) / name / "inner" / "file").write_bytes(bytes(4096))
    attempt(os.chown, pathlib.Path(place) / name, -1, 0)
pathlib.Path("/dev/shm", f"{name}.shm").write_bytes(bytes(2**20))
for n in range(2100):
    pathlib.Path("/dev/shm", f"{name}.{n}").symlink_to(VICTIM)
made = [libc.shmget(0, 2**20, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)]
(out / "made").write_text(str(made))
assert min(made) >= 0
raise ValueError("not today")
"""


SHARED_MEMORY = PLACES[2]


def kept_by_the_kernel() -> list[str]:
    """Return the objects of System V that code of this process's cells has made."""
    lines = [
        line.split()
        for name in ("shm", "msg", "sem")
        for line in Path("/proc/sysvipc", name).read_text().splitlines()
    ]
    return [line[1] for line in lines if str(CODE_GROUP) in line]


@pytest.fixture
def neighbour() -> Iterator[Path]:
    """Make shared memory of the same user in another slot."""
    path = SHARED_MEMORY / f"neighbour-{os.getpid()}"
    path.touch()
    os.chown(path, CODE_USER, CODE_GROUP + 1)
    yield path
    path.unlink()


def test_nothing_the_code_leaves_elsewhere_stays(cell: Cell, neighbour: Path) -> None:
    slot = cell.hold(at_first(OUTSIDE.replace("\n", "\n        ")))
    slot.world.send({"job_id": "j", "items": ["x"]})
    assert slot.step()
    assert [one.error for one in slot.world.records("j")] == ["ValueError: not today"]
    assert len(kept_by_the_kernel()) == 3
    assert len(list(SHARED_MEMORY.glob(f"left-{CODE_GROUP}*"))) == 2102

    cell.runners[0].kill()
    slot.world.send({"job_id": "k", "items": []})
    assert slot.step()
    assert kept_by_the_kernel() == []
    for place in PLACES:
        assert list(place.glob(f"left-{CODE_GROUP}*")) == []
    assert neighbour.exists()


#: More than may be taken of one item.
TOO_MUCH = {
    "files": "for n in range(20_001): (out / str(n)).touch()",
    "bytes that are not there": "(out / 'a').touch(); os.truncate(out / 'a', 2**43)",
    "names of one file": """
        (out / "a").touch()
        os.truncate(out / "a", 2**36)
        for n in range(1000): os.link(out / "a", out / f"b{n}")
    """,
}


@pytest.mark.parametrize("name", named(TOO_MUCH))
def test_an_item_that_leaves_too_much_fails_alone(cell: Cell, name: str) -> None:
    slot = cell.hold(at_first(TOO_MUCH[name]))
    slot.world.send({"job_id": "j", "items": ["a", "b"]})
    assert slot.step()

    first, second = slot.world.records("j")
    assert (first.status, first.outputs) == (ItemStatus.FAILED, ())
    assert second.status is ItemStatus.OK


#: More than a checkpoint may be.
STATES = {
    "nested": """
        for n in range(70):
            folder = folder / "d"
            folder.mkdir()
        (folder / "file").touch()
    """,
    "bytes that are not there": "(folder / 'a').touch(); os.truncate(folder / 'a', 2**43)",
}
#: What a name may be, and no text is.
ODD = """
    for name in (b"\\xff", b"-rf", b"\\n", b"a" * 255):
        (folder / os.fsdecode(name)).touch()
"""
CHECKPOINT = """
def run(batch, ctx):
    folder = ctx.state_dir
    if ctx.job_id == "j":
{act}
    time.sleep(0.1)
    yield Result(batch[0], 1)
    time.sleep(60)
"""


def at_checkpoint(act: str) -> str:
    """Return code that acts in its checkpoint's directory, and has one item of two."""
    return CHECKPOINT.format(act=textwrap.indent(textwrap.dedent(act), " " * 8))


@pytest.mark.parametrize("name", sorted(STATES))
def test_a_checkpoint_that_is_too_much_fails_the_attempt(cell: Cell, name: str) -> None:
    policy = Policy(checkpoint_items=1)
    slot = cell.hold(at_checkpoint(STATES[name]), batch_size=2, policy=policy)
    slot.world.send({"job_id": "j", "items": ["a", "b"]})
    assert slot.step()

    [failed] = slot.events("attempt_failed")
    assert failed["cause"] == FailureCause.TOO_MUCH
    assert slot.world.manifest("j").user_state == ()
    cell.runners[0].kill()
    assert cell.left == set()


def test_odd_names_in_a_checkpoint_do_the_worker_no_harm(cell: Cell) -> None:
    slot = cell.hold(
        at_checkpoint(ODD),
        batch_size=2,
        policy=Policy(checkpoint_items=1),
        item_timeout=timedelta(seconds=0.75),
    )
    slot.world.send({"job_id": "j", "items": ["a", "b"]})
    assert slot.step()

    [failed] = slot.events("attempt_failed")
    assert failed["cause"] == FailureCause.TIMEOUT
    kept = {os.fsencode(file.path) for file in slot.world.manifest("j").user_state}
    assert kept == {b"\xff", b"-rf", b"\n", b"a" * 255}
