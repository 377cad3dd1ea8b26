"""Damage at any byte of what lies in S3: the version before serves, and no epoch goes back."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import Manifest, manifest_key, state_key
from spindown.domain.policy import Policy
from spindown.ec2sim import MemoryClock
from spindown.error import ContractError, NotFound, SpindownError, Unreachable
from spindown.job.attachment.checkpoint_store import restore_state, upload_state
from spindown.job.claimed_job import ClaimedJob, LocalFile
from spindown.job.commit import commit
from spindown.job.manifest_store import load_manifest, read_older
from spindown.job.release import release, settle_release
from spindown.job.result import read_records
from spindown.memory.interception import PortCall
from spindown.memory.store import MemoryObjectStore
from tests.work import WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(6)}
KEY = manifest_key("j")


def damages(data: bytes, changes: Sequence[int] = (0x01,)) -> Iterator[tuple[str, bytes]]:
    """Yield the data cut and changed at every byte, and what was done to it."""
    for at in range(len(data)):
        yield f"cut at {at}", data[:at]
        for change in changes:
            damaged = bytes([data[at] ^ change])
            yield f"byte {at} ^ {change:#x}", data[:at] + damaged + data[at + 1 :]


def with_state(held: ClaimedJob, tmp_path: Path, text: str) -> ClaimedJob:
    local = tmp_path / f"{text}.bin"
    local.write_text(text)
    world = WORLDS[id(tmp_path)]
    portion = replace(a_portion(held, 1), state=(LocalFile(path="deep/er/step", local=local),))
    return commit(held, portion, slot_id=a_slot_id(), ports=world.ports)


WORLDS: dict[int, WorkWorld] = {}


@pytest.fixture
def world(tmp_path: Path) -> WorkWorld:
    """A job in its third epoch, with parts and two versions of the user's own state."""
    world = WORLDS[id(tmp_path)] = WorkWorld()
    world.send(JOB)
    for text in ("one", "two"):
        held = with_state(world.hold(), tmp_path, text)
        held = settle_release(
            held,
            a_portion(held, 1),
            interrupted=True,
            slot_id=a_slot_id(),
            ports=world.ports,
            policy=Policy(),
        )
        release(
            held,
            slot_id=a_slot_id(),
            worker_row=world.worker_row(),
            ports=world.ports,
            policy=Policy(),
        )
    world.clock.advance(timedelta(seconds=1))
    world.hold()
    return world


def versions(world: WorkWorld) -> list[bytes]:
    """Return every version of the manifest, oldest first."""
    found = world.objects.versions(KEY)
    return [world.objects.get(KEY, version=version).data for version in reversed(found)]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((0x01,), id="one bit"),
        pytest.param(tuple(1 << n for n in range(8)), id="each bit", marks=pytest.mark.proof),
    ],
)
def test_a_damaged_manifest_gives_way_to_the_one_before(
    world: WorkWorld, changes: Sequence[int]
) -> None:
    history = versions(world)
    current = load_manifest("j", world.objects)
    assert current is not None
    assert current.manifest.epoch == 3
    served_before = 0
    for what, damaged in damages(history[-1], changes):
        store = MemoryObjectStore(MemoryClock())
        for data in (*history[:-1], damaged):
            store.put(KEY, data)

        fence = load_manifest("j", store)

        assert fence is not None, what
        assert fence.epoch_floor >= current.manifest.epoch, what
        if fence.manifest.epoch < current.manifest.epoch:
            served_before += 1
            assert fence.manifest.next_item == current.manifest.next_item, what
            continue
        # Only what says nothing of the job may differ: a nonce, or the check's own name.
        assert blank(fence.manifest) == blank(current.manifest), what
    assert served_before > len(history[-1])


def blank(manifest: Manifest) -> Manifest:
    return replace(manifest, nonce="", extra={})


def test_a_claim_over_a_damaged_manifest_keeps_what_was_done(
    world: WorkWorld,
) -> None:
    data = versions(world)[-1]
    world.objects.put(KEY, data[:-1])
    world.clock.advance(timedelta(minutes=6))

    held = world.hold(slot_id=a_slot_id("i-2"))

    assert held.manifest.epoch > 3
    assert held.manifest.next_item == 4
    assert [part.last for part in held.manifest.parts] == [0, 1, 2, 3]


def test_a_part_that_is_damaged_anywhere_is_never_given_out(world: WorkWorld) -> None:
    key = world.manifest("j").parts[0].key
    whole = list(read_records("j", world.objects))
    data = world.objects.get(key).data
    for _, damaged in damages(data):
        world.objects.put(key, damaged)
        # The version that was committed still lies below.
        assert list(read_records("j", world.objects)) == whole


def test_a_part_of_which_no_version_is_whole_is_one_sentence(world: WorkWorld) -> None:
    key = world.manifest("j").parts[0].key
    store = MemoryObjectStore(MemoryClock())
    store.put(KEY, world.objects.get(KEY).data)
    store.put(key, world.objects.get(key).data[:-1])
    with pytest.raises(ContractError, match=re.escape(key)):
        list(read_records("j", store))


def test_damaged_state_gives_way_to_the_state_before(world: WorkWorld, tmp_path: Path) -> None:
    manifest = world.manifest("j")
    [newest] = manifest.user_state
    assert newest.key == state_key("j", hashlib.sha256(b"two").hexdigest())
    for number, (what, damaged) in enumerate(damages(b"two")):
        world.objects.put(newest.key, damaged)
        root = tmp_path / f"root-{number}"
        root.mkdir()

        files, trouble = restore_state(manifest, root, world.ports)

        assert trouble == f"{newest.key} is damaged", what
        assert (root / "deep" / "er" / "step").read_text() == "one", what
        assert [file.sha256 for file in files] == [hashlib.sha256(b"one").hexdigest()]


def test_state_that_is_gone_altogether_is_none(world: WorkWorld, tmp_path: Path) -> None:
    manifest = world.manifest("j")
    world.objects.expire("state/")
    root = tmp_path / "root"
    root.mkdir()
    files, trouble = restore_state(manifest, root, world.ports)
    assert (files, trouble) == ((), f"{manifest.user_state[0].key} is gone")
    assert not [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a/../../out", ""])
def test_state_never_leaves_its_directory(world: WorkWorld, tmp_path: Path, path: str) -> None:
    [known] = world.manifest("j").user_state
    forged = replace(world.manifest("j"), user_state=(replace(known, path=path),))
    root = tmp_path / "a" / "root"
    root.mkdir(parents=True)
    _, trouble = restore_state(forged, root, world.ports)
    assert trouble is not None
    assert path in trouble
    assert not list(tmp_path.rglob("out"))


def test_only_what_is_new_of_a_state_is_uploaded(world: WorkWorld, tmp_path: Path) -> None:
    manifest = world.manifest("j")
    [known] = manifest.user_state
    same, other = tmp_path / "same", tmp_path / "other"
    same.write_text("two")
    other.write_text("three")
    world.calls.clear()
    state = (
        known,
        LocalFile(path="again", local=same),
        LocalFile(path="more", local=other),
        LocalFile(path="more again", local=other),
    )
    stored = upload_state(manifest, state, world.ports)
    assert [file.path for file in stored] == ["deep/er/step", "again", "more", "more again"]
    assert stored[1] == replace(known, path="again")
    assert world.calls["objects.put_file"] == 1


def test_a_file_changed_during_upload_leaves_state_as_it_was(
    world: WorkWorld, tmp_path: Path
) -> None:
    local = tmp_path / "busy"
    local.write_text("first")
    world.before = lambda call: local.write_text("second one") and None  # type: ignore[assignment]
    manifest = world.manifest("j")
    assert upload_state(manifest, (LocalFile(path="a", local=local),), world.ports) is (
        manifest.user_state
    )


def test_a_file_cut_during_upload_leaves_state_as_it_was(world: WorkWorld, tmp_path: Path) -> None:
    """S3 refuses a large file that becomes shorter on its way: one part of it is too small."""
    local = tmp_path / "busy"
    local.write_text("first")

    def cut(call: PortCall) -> None:
        local.write_text("")
        raise SpindownError("CompleteMultipartUpload: EntityTooSmall")

    world.before = cut
    manifest = world.manifest("j")
    assert upload_state(manifest, (LocalFile(path="a", local=local),), world.ports) is (
        manifest.user_state
    )


def test_an_upload_that_fails_otherwise_is_told(world: WorkWorld, tmp_path: Path) -> None:
    local = tmp_path / "quiet"
    local.write_text("first")

    def fail(call: PortCall) -> None:
        raise Unreachable("no answer")

    world.before = fail
    with pytest.raises(Unreachable):
        upload_state(world.manifest("j"), (LocalFile(path="a", local=local),), world.ports)


def test_older_manifests_come_newest_first(world: WorkWorld) -> None:
    epochs = [manifest.epoch for manifest in read_older("j", world.objects)]
    assert epochs == sorted(epochs, reverse=True)
    assert len(epochs) == len(versions(world)) - 1
    with pytest.raises(NotFound):
        world.objects.get("jobs/none/manifest.json")
