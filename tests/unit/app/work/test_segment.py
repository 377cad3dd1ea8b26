"""Many commits: each costs the same, and what a segment lists is read as if the manifest did."""

from datetime import timedelta

import pytest

from spindown.app.batch.result import read_parts, read_progress, read_records
from spindown.app.work.commit import Portion, commit
from spindown.app.work.held import ClaimedJob, Finished
from spindown.contract.job.manifest import Part, encode_manifest, manifest_key
from spindown.contract.job.result import ItemStatus, part_key
from spindown.contract.job.segment import PARTS_LISTED_MAX, decode_segment
from spindown.error import ContractError, LeaseLost, Unreachable
from spindown.memory.interception import PortCall
from tests.work import WorkWorld, a_portion, a_record, a_slot_id, items

KEY = manifest_key("j")
MANY = 2 * PARTS_LISTED_MAX + 5
JOB = {"job_id": "j", "items": items(MANY)}


def commit_each(world: WorkWorld, held: ClaimedJob, count: int, seat_of: str = "i-1") -> ClaimedJob:
    for _ in range(count):
        held = commit(held, a_portion(held, 1), slot_id=a_slot_id(seat_of), ports=world.ports)
    return held


@pytest.fixture(scope="module")
def begun() -> tuple[WorkWorld, ClaimedJob]:
    """A job of which all is committed but the last items, one by one. For those who only read."""
    world = WorkWorld()
    return world, commit_each(world, world.hold(JOB), MANY - 2)


def test_a_commit_costs_no_more_than_those_before_it() -> None:
    world, sizes = WorkWorld(), []

    def measure(call: PortCall) -> None:
        if call.method == "put" and call.args[0] == KEY:
            sizes.append(len(call.args[1]))

    world.before = measure
    held = world.hold(JOB)
    sizes.clear()
    world.calls.clear()
    commit_each(world, held, MANY)
    first, second, third = (
        sizes[n * PARTS_LISTED_MAX : (n + 1) * PARTS_LISTED_MAX] for n in range(3)
    )
    assert max(second) < 1.05 * max(first)
    assert max(third) < max(second)
    # Part and manifest, and now and then a segment.
    assert world.calls == {"objects.put": 2 * MANY + 2}


def test_the_results_of_all_segments_are_read_in_item_order(
    begun: tuple[WorkWorld, ClaimedJob],
) -> None:
    world, held = begun
    assert len(held.manifest.parts) < PARTS_LISTED_MAX
    parts = read_parts(held.manifest, world.objects)
    assert [part.first for part in parts] == list(range(MANY - 2))
    found = [record["index"] for record in read_records("j", world.objects)]
    assert found == list(range(MANY - 2))


def test_failed_items_of_segments_still_count() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    bad = a_record("j", 0, status=ItemStatus.FAILED, result=None, error="no")
    first = Portion(finished=(Finished(record=bad),))
    held = commit(held, first, slot_id=a_slot_id(), ports=world.ports)
    held = commit_each(world, held, MANY - 2)
    assert sum(part.failed for part in held.manifest.parts) == 0
    progress = read_progress("j", world.objects)
    assert (progress.items_done, progress.items_failed) == (MANY - 1, 1)


def test_only_a_manifest_with_a_segment_needs_that_version() -> None:
    world = WorkWorld()
    held = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX)
    assert (held.manifest.schema, held.manifest.sealed) == (1, None)
    assert b"sealed" not in world.objects.get(KEY).data
    assert commit_each(world, held, 1).manifest.schema == 2


def test_the_next_owner_goes_on_without_reading_segments() -> None:
    world = WorkWorld()
    before = commit_each(world, world.hold(JOB), MANY - 3)
    world.clock.advance(timedelta(minutes=6))
    world.calls.clear()
    held = world.hold(slot_id=a_slot_id("i-2"))
    assert world.calls["objects.get"] == 1
    assert held.manifest.sealed == before.manifest.sealed
    commit_each(world, held, 3, "i-2")
    assert [r.index for r in world.records("j")] == list(range(MANY))


def test_a_fenced_off_worker_seals_nothing() -> None:
    world = WorkWorld()
    zombie = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX)
    world.clock.advance(timedelta(minutes=6))
    owner = world.hold(slot_id=a_slot_id("i-2"))
    with pytest.raises(LeaseLost):
        commit_each(world, zombie, 1)
    held = commit_each(world, owner, 2, "i-2")
    assert held.manifest.sealed is not None
    assert held.manifest.sealed.key.startswith("jobs/j/parts/00000002-")
    assert [r.index for r in world.records("j")] == list(range(PARTS_LISTED_MAX + 2))


def test_other_code_begins_anew_without_the_first_s_segments() -> None:
    world, old, new = WorkWorld(), a_slot_id(code_digest="old"), a_slot_id("i-2", code_digest="new")
    held = world.hold(JOB, old)
    for _ in range(PARTS_LISTED_MAX + 1):
        held = commit(held, a_portion(held, 1), slot_id=old, ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(slot_id=new)
    fresh = (taken.manifest.next_item, taken.manifest.sealed, taken.manifest.parts)
    assert (*fresh, taken.manifest.schema) == (0, None, (), 1)
    assert read_progress("j", world.objects).items_done == 0


def test_a_manifest_of_before_that_lists_many_parts_goes_on() -> None:
    world, count = WorkWorld(), 3 * PARTS_LISTED_MAX
    listed = tuple(
        Part(key=part_key("j", 1, n, n), first=n, last=n, bytes=1, sha256="s", failed=n % 2)
        for n in range(count)
    )
    world.put_manifest(parts=listed, next_item=count, items=count + 9, released=True)
    world.send({"job_id": "j", "items": items(count + 9)})
    held = commit_each(world, world.hold(), 2)
    assert read_parts(held.manifest, world.objects)[:count] == listed
    assert (held.manifest.items_done, held.manifest.items_failed) == (count + 2, count // 2)
    assert len(encode_manifest(held.manifest)) < 2000


def test_a_damaged_segment_gives_way_to_what_was_committed() -> None:
    world = WorkWorld()
    held = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX + 1)
    assert held.manifest.sealed is not None
    key = held.manifest.sealed.key
    data, whole = world.objects.get(key).data, read_parts(held.manifest, world.objects)
    for at in range(0, len(data), 97):
        world.objects.put(key, data[:at])
        assert read_parts(held.manifest, world.objects) == whole
        world.objects.put(key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert read_parts(held.manifest, world.objects) == whole


@pytest.mark.parametrize("left", [None, b"{"], ids=["gone", "damaged"])
def test_a_segment_of_which_no_version_is_whole_is_one_sentence(left: bytes | None) -> None:
    world = WorkWorld()
    held = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX + 1)
    assert held.manifest.sealed is not None
    world.objects.expire(held.manifest.sealed.key)
    if left is not None:
        world.objects.put(held.manifest.sealed.key, left)
    with pytest.raises(ContractError, match=r"^segment is 'jobs/j/.*: restore it"):
        list(read_records("j", world.objects))


def test_each_segment_names_the_one_before(begun: tuple[WorkWorld, ClaimedJob]) -> None:
    world, held = begun
    last = held.manifest.sealed
    assert last is not None
    listed = decode_segment(world.objects.get(last.key).data)
    assert listed.before is not None
    assert listed.before.items == listed.parts[0].first == PARTS_LISTED_MAX
    first = decode_segment(world.objects.get(listed.before.key).data)
    assert (first.before, first.parts[0].first) == (None, 0)
    assert last.items == held.manifest.parts[0].first


def test_the_key_of_a_segment_tells_the_items_that_it_lists() -> None:
    world = WorkWorld()
    commit_each(world, world.hold(JOB), PARTS_LISTED_MAX + 1)
    assert segments(world) == ["jobs/j/parts/00000001-00000000-00000099.segment.json"]


def test_sealing_outlasts_seconds_without_answers_from_s3() -> None:
    world = WorkWorld()
    held, left = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX), [4]

    def give_no_answer(call: PortCall) -> None:
        if call.method == "put" and call.args[0].endswith(".segment.json") and left[0]:
            left[0] -= 1
            raise Unreachable("no answer")

    world.before = give_no_answer
    held = commit_each(world, held, 1)
    assert (left, len(segments(world))) == ([0], 1)
    assert held.manifest.next_item == PARTS_LISTED_MAX + 1


def test_a_repeated_seal_writes_the_same_bytes() -> None:
    world = WorkWorld()
    held = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX)
    commit_each(world, held, 1)
    with pytest.raises(LeaseLost):
        commit_each(world, held, 1)
    stored = {key: world.objects.get(key).data for key in segments(world)}
    [key] = stored
    written = [world.objects.get(key, version=v).data for v in world.objects.versions(key)]
    assert written == 2 * [stored[key]]


def segments(world: WorkWorld) -> list[str]:
    return [f.key for f in world.objects.list("jobs/j/parts/") if f.key.endswith(".segment.json")]


def test_the_epoch_of_a_segment_keeps_a_blank_start_above_it() -> None:
    world = WorkWorld()
    held = commit_each(world, world.hold(JOB), PARTS_LISTED_MAX + 1)
    for found in tuple(world.objects.list("jobs/j/parts/")):
        if found.key not in segments(world):
            world.objects.expire(found.key)
    world.objects.expire(KEY)
    world.objects.put(KEY, b"{")
    world.clock.advance(timedelta(minutes=6))
    again = world.hold(slot_id=a_slot_id("i-2"))
    assert again.manifest.epoch == held.manifest.epoch + 1
    assert (again.manifest.next_item, again.manifest.sealed) == (0, None)
