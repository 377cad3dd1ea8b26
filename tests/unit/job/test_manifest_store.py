"""The fence as it is read and written: how few requests it takes, and what it passes over."""

from dataclasses import replace

import pytest

from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.error import NotFound, PreconditionFailed, Unreachable
from spindown.job.manifest_store import load_manifest, read_older, save_manifest
from spindown.memory.interception import PortCall
from tests.work import WorkWorld

KEY = manifest_key("j")
MANIFEST = Manifest(job_id="j", epoch=1, owner="i-1/0", state=JobState.RUNNING)
NEWER_MESSAGE = b'{"schema": 3, "fence": "elsewhere"}'


def epochs(world: WorkWorld) -> list[int]:
    return [manifest.epoch for manifest in read_older("j", world.ports.objects)]


def lose(world: WorkWorld, *versions: str) -> None:
    """Let the bucket's rule expire versions between their listing and the reading."""

    def expire(call: PortCall) -> None:
        if call.method == "get" and call.kwargs.get("version") in versions:
            raise NotFound("it has expired")

    world.before = expire


def test_a_sound_manifest_is_read_with_one_request() -> None:
    world = WorkWorld()
    manifest = world.put_manifest(epoch=4)
    world.calls.clear()

    fence = load_manifest("j", world.ports.objects)

    assert fence is not None
    assert (fence.manifest, fence.epoch_floor) == (manifest, 4)
    assert fence.etag == world.objects.get(KEY).etag
    assert world.calls == {"objects.get": 1}


def test_the_manifest_of_another_job_is_taken_for_damage() -> None:
    world = WorkWorld()
    world.put_manifest(epoch=4)
    other = Manifest(job_id="k", epoch=1, owner="i-1/0", state=JobState.COMPLETED)
    world.objects.put(KEY, encode_manifest(other))

    fence = load_manifest("j", world.ports.objects)

    assert fence is not None
    assert (fence.manifest.job_id, fence.manifest.epoch, fence.epoch_floor) == ("j", 4, 5)


def test_a_job_without_a_readable_manifest_begins_anew() -> None:
    world = WorkWorld()
    world.objects.put(KEY, b"{")

    fence = load_manifest("j", world.ports.objects)

    assert fence is not None
    assert fence.manifest == Manifest(job_id="j", epoch=0, owner="", state=JobState.RUNNING)


def test_a_version_that_has_expired_may_have_been_a_claim_too() -> None:
    world = WorkWorld()
    world.put_manifest(epoch=2)
    world.put_manifest(epoch=3)
    world.objects.put(KEY, b"{")
    _, third, _ = world.objects.versions(KEY)
    lose(world, third)

    fence = load_manifest("j", world.ports.objects)

    assert fence is not None
    assert (fence.manifest.epoch, fence.epoch_floor) == (2, 4)


def test_older_versions_go_on_behind_one_that_cannot_be_read() -> None:
    world = WorkWorld()
    for number in range(1, 5):
        world.put_manifest(epoch=number)
    world.objects.put(KEY, NEWER_MESSAGE)
    world.objects.put(KEY, b"{")
    world.put_manifest(epoch=9)
    lose(world, world.objects.versions(KEY)[4])

    assert epochs(world) == [4, 2, 1]


def test_the_second_writer_is_told_that_another_has_written() -> None:
    world = WorkWorld()
    manifest = world.put_manifest()

    with pytest.raises(PreconditionFailed, match=f"^{KEY} "):
        save_manifest(manifest, None, world.ports)


@pytest.mark.parametrize("conflicts", range(8))
def test_each_of_eight_tries_writes_over_the_manifest_read(conflicts: int) -> None:
    world = WorkWorld()
    manifest = world.put_manifest(epoch=3)
    etag = world.objects.get(KEY).etag
    world.objects.conflict_next(KEY, times=conflicts)

    fence = save_manifest(replace(manifest, next_item=5), etag, world.ports)

    assert (fence.manifest, fence.etag) == (world.manifest("j"), world.objects.get(KEY).etag)
    assert (fence.manifest.next_item, fence.manifest.previous) == (5, etag)
    assert fence.epoch_floor == 3


def test_an_endless_write_conflict_says_what_the_store_said() -> None:
    world = WorkWorld()
    world.objects.conflict_next(KEY, times=100)

    with pytest.raises(Unreachable, match=KEY):
        save_manifest(MANIFEST, None, world.ports)
