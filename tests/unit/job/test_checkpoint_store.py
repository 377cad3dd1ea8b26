"""The user's own state comes back as it was committed, or as the newest state before it."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from spindown.contract.job.manifest import Manifest, StateFile, state_key
from spindown.job.attachment.checkpoint_store import measure, restore_state, upload_state
from spindown.job.claimed_job import LocalFile
from tests.work import WorkWorld

MEBIBYTE = 1024 * 1024


def a_state(world: WorkWorld, text: str) -> tuple[StateFile, ...]:
    """Return a state of one file that lies in the bucket."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    key = state_key("j", digest)
    world.objects.put(key, text.encode())
    now = world.clock.now()
    return (StateFile(path="step", key=key, bytes=len(text), sha256=digest, stored_at=now),)


def a_history(
    world: WorkWorld, count: int, state: Callable[[int], tuple[StateFile, ...]], **changes: object
) -> Manifest:
    """Write manifests with states 0 to ``count - 1``, of which all but the first are damaged."""
    for number in range(count):
        files = state(number)
        manifest = world.put_manifest(user_state=files, next_item=number, **changes)
        if number:
            world.objects.put(files[0].key, b"damaged")
    return manifest


def test_a_file_is_measured_as_a_whole_however_large(tmp_path: Path) -> None:
    data = b"x" * (2 * MEBIBYTE + 5)
    (tmp_path / "large").write_bytes(data)

    assert measure(tmp_path / "large") == (len(data), hashlib.sha256(data).hexdigest())


def test_state_that_is_whole_comes_back_without_a_complaint(tmp_path: Path) -> None:
    world = WorkWorld()
    state = a_state(world, "one")

    assert restore_state(world.put_manifest(user_state=state), tmp_path, world.ports) == (
        state,
        None,
    )
    assert (tmp_path / "step").read_text() == "one"


def test_a_damaged_state_shared_by_many_manifests_is_read_once(tmp_path: Path) -> None:
    world = WorkWorld()
    first, second = a_state(world, "one"), a_state(world, "two")
    manifest = a_history(world, 8, lambda number: second if number else first)
    world.calls.clear()

    files, trouble = restore_state(manifest, tmp_path, world.ports)

    assert (files, trouble) == (first, f"{second[0].key} is damaged")
    assert world.calls["objects.get_file"] == 2


def test_tries_the_state_of_20_older_manifests_and_no_more(tmp_path: Path) -> None:
    world = WorkWorld()
    manifest = a_history(world, 30, lambda number: a_state(world, f"state {number}"))
    world.calls.clear()

    files, trouble = restore_state(manifest, tmp_path, world.ports)

    assert (files, trouble) == ((), f"{manifest.user_state[0].key} is damaged")
    assert world.calls["objects.get_file"] == 1 + 20


def test_state_of_other_code_never_serves(tmp_path: Path) -> None:
    world = WorkWorld()
    world.put_manifest(user_state=a_state(world, "of the old code"), code_version="old")
    world.put_manifest(user_state=a_state(world, "new, older"), code_version="new")
    world.put_manifest(user_state=a_state(world, "of the old code"), code_version="old", epoch=2)
    manifest = a_history(world, 2, lambda n: a_state(world, f"new {n}"), code_version="new")
    world.objects.put(state_key("j", hashlib.sha256(b"new 0").hexdigest()), b"damaged too")

    files, _ = restore_state(manifest, tmp_path, world.ports)

    assert (tmp_path / "step").read_text() == "new, older"
    assert len(files) == 1


def test_a_manifest_before_the_first_state_has_no_state(tmp_path: Path) -> None:
    world = WorkWorld()
    older = a_state(world, "one")
    world.put_manifest(user_state=older)
    world.put_manifest(user_state=(), epoch=2)
    manifest = a_history(world, 2, lambda n: a_state(world, f"new {n}"), epoch=3)
    world.objects.put(state_key("j", hashlib.sha256(b"new 0").hexdigest()), b"damaged too")

    assert restore_state(manifest, tmp_path, world.ports)[0] == older


def test_state_that_two_files_have_in_common_is_uploaded_once(tmp_path: Path) -> None:
    world = WorkWorld()
    for name in "ab":
        (tmp_path / name).write_text("same")
    state = tuple(LocalFile(path=name, local=tmp_path / name) for name in "ab")

    stored = upload_state(world.put_manifest(), state, world.ports)

    assert [file.path for file in stored] == ["a", "b"]
    assert world.calls["objects.put_file"] == 1
