"""What workers have measured becomes one table a day and type, once."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from spindown.contract.usage import (
    OBJECT_BYTES_MAX,
    OTHER_TYPES,
    UsageRecord,
    done_key,
    encode_usage,
    measured_key,
    measured_prefix,
    table_key,
)
from spindown.control.usage import (
    Compacted,
    ReadBounds,
    ReadTo,
    compact,
    compact_all,
    read_usage,
    read_written,
    share_time,
    table_keys,
)
from spindown.error import AccessDenied, Unreachable, Unreadable
from spindown.memory import MemorySettingsStore
from spindown.memory.interception import PortCall, intercept
from spindown.port import ObjectStore
from tests.builders import NOW, a_usage_record
from tests.control import WORKLOAD, ControlWorld

DAY = NOW.date() - timedelta(days=1)
RECORD = a_usage_record(workload=WORKLOAD, started_at=NOW - timedelta(days=1), cpu_mean=0.5)


def measure(world: ControlWorld, *records: UsageRecord, day: date = DAY) -> None:
    for record in records:
        world.objects.put(measured_key(record, day), encode_usage([record]))


def measure_one_of(world: ControlWorld, day: date) -> None:
    begun = RECORD.started_at + (day - RECORD.started_at.date())
    measure(world, replace(RECORD, started_at=begun), day=day)


def all_of(world: ControlWorld) -> list[UsageRecord]:
    since = NOW - timedelta(days=14)
    found = read_usage(WORKLOAD, world.objects, since=since, until=world.clock.now())
    return sorted(found, key=lambda record: record.job_id)


def at_hour(world: ControlWorld, hour: int) -> None:
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    world.clock.advance(midnight + timedelta(days=1, hours=hour) - world.clock.now())


def test_a_day_becomes_a_table_for_each_type() -> None:
    world = ControlWorld()
    measure(world, RECORD, replace(RECORD, job_id="b", type="scan"), replace(RECORD, job_id="c"))
    before = all_of(world)

    assert compact(WORKLOAD, DAY, world.objects) == Compacted(3, is_read=True)

    keys = [found.key for found in world.objects.list("usage/")]
    types = [table_key(WORKLOAD, DAY, type_) for type_ in (WORKLOAD, "scan")]
    assert keys == sorted([done_key(WORKLOAD, DAY), *types])
    assert all_of(world) == before


def test_a_table_is_made_once_and_what_comes_later_is_left() -> None:
    world = ControlWorld()
    measure(world, RECORD)
    compact(WORKLOAD, DAY, world.objects)
    measure(world, replace(RECORD, job_id="late"))

    assert compact(WORKLOAD, DAY, world.objects) == Compacted()
    assert [record.job_id for record in all_of(world)] == [RECORD.job_id]


def test_a_day_without_records_leaves_nothing() -> None:
    world = ControlWorld()

    assert compact(WORKLOAD, DAY, world.objects) == Compacted()
    assert list(world.objects.list("")) == []


@pytest.mark.parametrize("failing", range(3))
def test_every_record_is_read_once_wherever_it_fails(failing: int) -> None:
    world = ControlWorld()
    measure(world, RECORD, replace(RECORD, job_id="b", type="scan"))
    puts = 0

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal puts
        if call.method != "put":
            return proceed()
        puts += 1
        if puts == failing + 1:
            raise Unreachable("no S3")
        return proceed()

    with pytest.raises(Unreachable):
        compact(WORKLOAD, DAY, intercept(world.objects, "objects", fail))
    assert len(all_of(world)) == 2
    compact(WORKLOAD, DAY, world.objects)
    assert len(all_of(world)) == 2


def test_an_attempt_that_was_written_twice_counts_once() -> None:
    world = ControlWorld()
    measure(world, RECORD)
    other = replace(RECORD, job_id="a")
    both = encode_usage([other, RECORD])
    world.objects.put(measured_key(other, DAY), both)

    assert compact(WORKLOAD, DAY, world.objects).records == 2


@pytest.mark.parametrize(
    "data", [b"{broken", b"[1]", b"\xff\xfe", b'{"job_id":"x"}', b"[" * 100_000, b""]
)
def test_what_cannot_be_read_hides_no_other(data: bytes) -> None:
    world = ControlWorld()
    measure(world, RECORD)
    world.objects.put(f"{measured_prefix(WORKLOAD, DAY)}0.jsonl", data)

    assert compact(WORKLOAD, DAY, world.objects).records == 1


#: A worker may name its objects as it likes.
DENIED = f"{measured_prefix(WORKLOAD, DAY)}\x1b[2J.jsonl"


def deny(call: PortCall, proceed: Callable[[], Any]) -> Any:
    if call.method == "get" and DENIED in call.args:
        raise AccessDenied("GetObject: AccessDenied: kms:Decrypt")
    return proceed()


def deny_all(call: PortCall, proceed: Callable[[], Any]) -> Any:
    if call.method == "get" and call.args[0].startswith("measured/"):
        raise AccessDenied("GetObject: AccessDenied")
    return proceed()


def archive_all(call: PortCall, proceed: Callable[[], Any]) -> Any:
    if call.method == "get" and call.args[0].startswith("measured/"):
        raise Unreadable("GetObject: InvalidObjectState")
    return proceed()


def test_what_may_not_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = ControlWorld()
    measure(world, RECORD)
    world.objects.put(DENIED, b"x")
    objects = intercept(world.objects, "objects", deny)

    read = read_usage(WORKLOAD, objects, since=NOW - timedelta(days=2), until=NOW)
    last = NOW + timedelta(days=1)
    written, end = read_written(
        WORKLOAD,
        objects,
        lambda record: record.job_id,
        since=ReadTo(NOW - timedelta(days=2)),
        until=last,
        bounds=ReadBounds(),
    )
    made = compact(WORKLOAD, DAY, objects)

    assert (len(read), written, made) == (1, [RECORD.job_id], Compacted(1, is_read=True))
    assert end == ReadTo(last)
    assert "usage_not_read: " in caplog.text
    assert all(line.isprintable() for line in caplog.messages)


def test_what_nobody_may_read_is_left_to_a_later_run() -> None:
    world = ControlWorld()
    measure(world, RECORD)
    denied = intercept(world.objects, "objects", deny_all)
    since = ReadTo(NOW - timedelta(days=2))

    with pytest.raises(AccessDenied):
        read_usage(WORKLOAD, denied, since=since.at, until=NOW)
    with pytest.raises(AccessDenied):
        compact(WORKLOAD, DAY, denied)
    assert read_from(world, ReadBounds(), since, denied) == ([], since)

    assert compact(WORKLOAD, DAY, world.objects).records == 1
    assert read_from(world, ReadBounds(), since)[0] == [RECORD.job_id]


def test_archived_objects_stop_no_run_however_many() -> None:
    world = ControlWorld()
    measure(world, *(replace(RECORD, job_id=name) for name in "abc"), day=NOW.date())
    archived = intercept(world.objects, "objects", archive_all)

    _, end = read_from(world, ReadBounds(objects=2), objects=archived)
    measure(world, RECORD)

    assert read_from(world, ReadBounds(), end)[0] == ["c"]
    assert compact(WORKLOAD, DAY, archived) == Compacted(is_read=True)
    assert read_usage(WORKLOAD, archived, since=NOW - timedelta(days=2), until=NOW) == []


@pytest.mark.parametrize(
    "off", [timedelta(days=-34), timedelta(days=3), timedelta(days=-18_000), timedelta(days=60_000)]
)
def test_an_attempt_of_another_time_is_left_out(off: timedelta) -> None:
    world = ControlWorld()
    measure(world, RECORD, replace(RECORD, job_id="b", started_at=RECORD.started_at + off))

    assert [record.job_id for record in all_of(world)] == [RECORD.job_id]
    assert compact(WORKLOAD, DAY, world.objects).records == 1


def test_the_longest_attempt_is_read() -> None:
    world = ControlWorld()
    begun = RECORD.started_at - timedelta(days=31)
    measure(world, replace(RECORD, started_at=begun, seconds=31 * 86400.0))

    assert compact(WORKLOAD, DAY, world.objects).records == 1


def test_what_began_after_the_span_is_not_in_it() -> None:
    world = ControlWorld()
    measure(world, RECORD)

    for minutes, found in ((1, 1), (-1, 0)):
        until = RECORD.started_at + timedelta(minutes=minutes)
        since = until - timedelta(days=1)
        assert len(read_usage(WORKLOAD, world.objects, since=since, until=until)) == found


def test_a_worker_that_writes_without_end_is_read_within_bounds() -> None:
    world = ControlWorld()
    measure(world, *(replace(RECORD, job_id=name) for name in "abcdef"))
    huge = encode_usage([replace(RECORD, job_id="0")]) + b"\n" * OBJECT_BYTES_MAX
    world.objects.put(f"{measured_prefix(WORKLOAD, DAY)}0.jsonl", huge)

    assert compact(WORKLOAD, DAY, world.objects, bounds=ReadBounds(objects=4)).records == 4


@pytest.mark.parametrize("junk", [b"x" * 9_000, b"{}\n" * 3_000])
def test_junk_of_one_worker_keeps_no_other_s_records_out(junk: bytes) -> None:
    """Whenever it was written and whatever it is called: the largest objects are left out."""
    world = ControlWorld()
    for number in range(10):
        prefix = measured_prefix(WORKLOAD, DAY)
        for name in ("", "zz-"):
            world.objects.put(f"{prefix}{name}{number}.jsonl", junk)
        measure(world, replace(RECORD, job_id=f"j{number}"))
    most = ReadBounds(bytes=40_000)
    read, end = read_from(world, most, ReadTo(NOW - timedelta(days=2)))

    assert (len(read), end) == (10, ReadTo(NOW + timedelta(days=1)))
    assert compact(WORKLOAD, DAY, world.objects, bounds=most).records == 10


def test_names_without_end_are_not_listed_to_the_end() -> None:
    world = ControlWorld()
    measure(world, *(replace(RECORD, job_id=name) for name in "abcdef"))

    assert set(read_from(world, ReadBounds(listed=4))[0]) == set("abcd")


def read_from(
    world: ControlWorld,
    bounds: ReadBounds,
    since: ReadTo | None = None,
    objects: ObjectStore | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> tuple[Sequence[str], ReadTo]:
    return read_written(
        WORKLOAD,
        objects or world.objects,
        lambda record: record.job_id,
        since=since or ReadTo(NOW - timedelta(days=1)),
        until=NOW + timedelta(days=1),
        bounds=bounds,
        has_time=has_time,
    )


def test_what_there_is_no_time_to_read_is_read_next() -> None:
    world = ControlWorld()
    measure(world, *(replace(RECORD, job_id=name) for name in "abc"), day=NOW.date())

    first, end = read_from(world, ReadBounds(), has_time=lambda: False)
    denied = intercept(world.objects, "objects", deny_all)
    none = read_from(world, ReadBounds(), end, denied, has_time=lambda: False)

    assert (first, none) == (["a"], ([], end))
    assert read_from(world, ReadBounds(), end)[0] == ["b", "c"]


def test_each_workload_has_a_share_of_the_time_left() -> None:
    clock = ControlWorld().clock
    taken = list[timedelta]()
    for has_time in share_time(3, clock, timedelta(minutes=3)):
        begun = clock.now()
        while has_time() and len(taken) != 1:
            clock.advance(timedelta(seconds=10))
        taken.append(clock.now() - begun)

    assert taken == [timedelta(minutes=1), timedelta(0), timedelta(minutes=2)]


def test_of_objects_of_one_size_the_oldest_are_read() -> None:
    world = ControlWorld()
    for name in "cab":
        measure(world, replace(RECORD, job_id=name))
        world.clock.advance(timedelta(minutes=1))
    (size,) = {one.bytes for one in world.objects.list(measured_prefix(WORKLOAD, DAY))}
    most = ReadBounds(bytes=2 * size)

    assert read_from(world, most)[0] == ["c", "a"]
    compact(WORKLOAD, DAY, world.objects, bounds=most)
    assert [one.job_id for one in all_of(world)] == ["a", "c"]


@pytest.mark.parametrize("bounds", [ReadBounds(objects=2), ReadBounds(records=2)])
def test_what_is_too_much_for_one_hour_is_read_in_the_next(bounds: ReadBounds) -> None:
    """Whatever its name is, what was written first comes first."""
    world = ControlWorld()
    for name in ("d", "c", "ab"):
        measure(world, *(replace(RECORD, job_id=each) for each in name), day=NOW.date())
        world.clock.advance(timedelta(minutes=1))
    first, end = read_from(world, bounds)
    second, last = read_from(world, bounds, end)

    assert (list(first), list(second)) == (["d", "c"], ["a", "b"])
    assert end.key
    assert last == ReadTo(NOW + timedelta(days=1))


def test_so_many_records_and_types_of_a_day_are_kept() -> None:
    world = ControlWorld()
    measure(world, *(replace(RECORD, job_id=name, type=name) for name in "abcdef"))

    found = compact(WORKLOAD, DAY, world.objects, declared=["f"], bounds=ReadBounds(types=2))

    assert found.records == 6
    kept = Counter(record.type for record in all_of(world))
    assert kept == {"f": 1, "a": 1, "b": 1, OTHER_TYPES: 3}
    other = ControlWorld()
    measure(other, *(replace(RECORD, job_id=f"{number:02}") for number in range(20)))
    assert compact(WORKLOAD, DAY, other.objects, bounds=ReadBounds(records=3)).records == 3


def test_a_day_with_many_records_becomes_several_files() -> None:
    world = ControlWorld()
    few = ReadBounds(records_at_once=3)
    measure(world, *(replace(RECORD, job_id=f"{number:02}") for number in range(8)))
    measure(world, *(replace(RECORD, job_id=f"s{number}", type="scan") for number in range(2)))

    assert compact(WORKLOAD, DAY, world.objects, bounds=few) == Compacted(10, is_read=True)

    assert sorted(one.job_id for one in all_of(world)) == [
        *(f"{number:02}" for number in range(8)),
        "s0",
        "s1",
    ]
    keys = table_keys(WORKLOAD, DAY, world.objects) or ()
    assert {table_key(WORKLOAD, DAY, WORKLOAD, part) for part in (1, 4, 7)} < set(keys)
    assert world.objects.get(done_key(WORKLOAD, DAY)).data == b""


#: So many objects are read before a run asks whether it has time.
PIECES = ReadBounds(objects_at_once=8, types=2)


def a_long_day(world: ControlWorld) -> None:
    measure(world, *(replace(RECORD, job_id=f"{n:02}", type=f"t{n % 4}") for n in range(25)))


def go_on(world: ControlWorld, objects: ObjectStore | None = None) -> Compacted:
    """Go on with the day until there is no time, which is at once."""
    store = objects or world.objects
    return compact(WORKLOAD, DAY, store, bounds=PIECES, has_time=lambda: False)


def test_a_day_longer_than_a_run_is_gone_on_with() -> None:
    world = ControlWorld()
    a_long_day(world)
    measured = Counter[str]()

    def count(call: PortCall, proceed: Callable[[], Any]) -> Any:
        measured.update(call.args[:1] if call.method == "get" else [])
        return proceed()

    store = intercept(world.objects, "objects", count)
    made = [go_on(world, store) for _ in range(5)]

    assert made == [
        *[Compacted(8, is_whole=False, is_read=True)] * 3,
        Compacted(1, is_read=True),
        Compacted(),
    ]
    assert set(measured.values()) == {1}
    kept = [(one.job_id, one.type) for one in all_of(world)]
    types = ["t0", "t1", OTHER_TYPES, OTHER_TYPES]
    assert kept == [(f"{n:02}", types[n % 4]) for n in range(25)]


@pytest.mark.parametrize("failing", range(14))
def test_a_long_day_counts_each_record_once_wherever_it_fails(failing: int) -> None:
    world = ControlWorld()
    a_long_day(world)
    puts = 0

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal puts
        puts += call.method == "put"
        if call.method == "put" and puts == failing + 1:
            raise Unreachable("no S3")
        return proceed()

    store = intercept(world.objects, "objects", fail)
    for _ in range(5):
        with suppress(Unreachable):
            go_on(world, store)

    assert puts > failing
    assert table_keys(WORKLOAD, DAY, world.objects) is not None
    assert [one.job_id for one in all_of(world)] == [f"{n:02}" for n in range(25)]


def test_what_is_written_meanwhile_moves_no_record_out() -> None:
    """The table goes on after the last key, not after a number of objects that may change."""
    world = ControlWorld()
    small = ReadBounds(objects_at_once=8, bytes=100_000)
    a_long_day(world)
    prefix = measured_prefix(WORKLOAD, DAY)
    world.objects.put(f"{prefix}00-junk.jsonl", b"x" * 50_000)
    compact(WORKLOAD, DAY, world.objects, bounds=small, has_time=lambda: False)
    # Now the larger one is beyond the bound, and no more among those that are counted.
    world.objects.put(f"{prefix}zz-junk.jsonl", b"x" * 49_999)
    world.objects.put(f"{prefix}zz-more.jsonl", b"x" * 49_999)
    compact(WORKLOAD, DAY, world.objects, bounds=small)

    assert [one.job_id for one in all_of(world)] == [f"{n:02}" for n in range(25)]


def test_a_day_of_which_nothing_can_be_read_is_done_once() -> None:
    world = ControlWorld()
    world.objects.put(f"{measured_prefix(WORKLOAD, DAY)}0.jsonl", b"{broken")

    assert compact(WORKLOAD, DAY, world.objects) == Compacted(is_read=True)

    assert table_keys(WORKLOAD, DAY, world.objects) == []


def test_no_record_of_a_large_day_is_left_out() -> None:
    world = ControlWorld()
    for first in range(0, 24_000, 800):
        jobs = (f"{number:05}" for number in range(first, first + 800))
        records = [replace(RECORD, job_id=job) for job in jobs]
        world.objects.put(measured_key(records[0], DAY), encode_usage(records))

    found = read_usage(WORKLOAD, world.objects, since=RECORD.started_at, until=NOW)

    assert len(found) == 24_000


def test_a_day_beyond_the_bounds_says_so() -> None:
    world = ControlWorld()
    measure(world, *(replace(RECORD, job_id=name, type=name) for name in "abcdef"))

    compact(WORKLOAD, DAY, world.objects, bounds=ReadBounds(types=2, records=5))

    assert world.objects.get(done_key(WORKLOAD, DAY)).data == b"records"


def test_the_hourly_run_makes_the_tables_of_the_last_days() -> None:
    world = ControlWorld()
    at_hour(world, 0)
    today = world.clock.now().date()
    for back in (0, 1, 7, 8):
        measure_one_of(world, today - timedelta(days=back))

    assert ran(world) == ({}, [])
    at_hour(world, 1)
    assert ran(world) == ({WORKLOAD: 2}, [])
    at_hour(world, 2)
    assert ran(world) == ({}, [])
    at_hour(world, 12)
    measure_one_of(world, today - timedelta(days=3))
    assert ran(world) == ({}, [])


def ran(world: ControlWorld) -> tuple[dict[str, int], list[str]]:
    said = compact_all(world.ports)
    return said["compacted"], list(said["not_compacted"])


def test_what_there_is_no_time_for_is_left_to_the_next_run() -> None:
    world = ControlWorld()
    at_hour(world, 1)
    today = world.clock.now().date()
    for back in (6, 2):
        measure_one_of(world, today - timedelta(days=back))

    def take_long(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "put":
            world.clock.advance(timedelta(minutes=2))
        return proceed()

    slow = replace(world.ports, objects=intercept(world.objects, "objects", take_long))
    said = compact_all(slow)

    assert (said["compacted"], list(said["not_compacted"])) == ({WORKLOAD: 1}, [WORKLOAD])
    assert ran(world) == ({WORKLOAD: 1}, [])


def test_a_workload_s_workers_take_no_other_s_time() -> None:
    world = ControlWorld()
    deployment = world.settings.deployment()
    at_hour(world, 1)
    yesterday = world.clock.now().date() - timedelta(days=1)
    for number in range(2_000):
        world.objects.put(f"{measured_prefix(WORKLOAD, yesterday)}{number}", b"{")
    measure(world, replace(RECORD, workload="other"), day=yesterday)

    def take_long(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get" and WORKLOAD in call.args[0]:
            world.clock.advance(timedelta(seconds=1))
        return proceed()

    settings = MemorySettingsStore(
        world.clock,
        replace(deployment, workloads=(WORKLOAD, "other")),
        {name: world.workload_settings() for name in (WORKLOAD, "other")},
    )
    objects = intercept(world.objects, "objects", take_long)
    said = compact_all(replace(world.ports, objects=objects, settings=settings))

    assert said["compacted"] == {"other": 1}
    assert list(said["not_compacted"]) == [WORKLOAD]


def test_what_fails_is_told_and_left_to_the_next_run() -> None:
    world = ControlWorld()
    at_hour(world, 1)
    measure(world, RECORD, day=world.clock.now().date() - timedelta(days=1))

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "put":
            raise Unreachable("no S3")
        return proceed()

    broken = replace(world.ports, objects=intercept(world.objects, "objects", fail))
    assert list(compact_all(broken)["not_compacted"]) == [WORKLOAD]
    assert ran(world) == ({WORKLOAD: 1}, [])


def test_days_that_cannot_be_read_take_time_too() -> None:
    world = ControlWorld()
    days = [DAY - timedelta(days=back) for back in range(5)]
    for day in days:
        world.objects.put(f"{measured_prefix(WORKLOAD, day)}0.jsonl", b"{broken")
    at_hour(world, 1)
    reads = 0

    def wait(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal reads
        if call.port == "objects" and call.method == "get":
            reads += 1
            world.clock.advance(timedelta(minutes=3))
        return proceed()

    world.interfere = wait

    assert list(compact_all(world.ports)["not_compacted"]) == [WORKLOAD]
    assert reads == 2


def test_bytes_that_cannot_be_read_fill_a_batch_too() -> None:
    world = ControlWorld()
    for name in "abc":
        world.objects.put(f"{measured_prefix(WORKLOAD, DAY)}{name}.jsonl", b"{broken" * 100)
    few = ReadBounds(bytes_at_once=600)

    made = compact(WORKLOAD, DAY, world.objects, bounds=few, has_time=lambda: False)

    assert made == Compacted(is_whole=False, is_read=True)


def test_values_fill_a_batch_however_short_they_are() -> None:
    world = ControlWorld()
    full = replace(RECORD, cores=(0.0,) * 1_000)
    for name in "abc":
        line = encode_usage([replace(full, job_id=name)]).replace(b"0.0,", b"0,")
        world.objects.put(measured_key(replace(full, job_id=name), DAY), line)
    few = ReadBounds(bytes_at_once=9_000)

    made = compact(WORKLOAD, DAY, world.objects, bounds=few, has_time=lambda: False)

    assert made.records == 1


def test_no_object_is_read_that_has_grown_beyond_the_bound() -> None:
    world = ControlWorld()
    measure(world, RECORD)
    bounds = set[int]()

    def note(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get":
            bounds.add(call.kwargs["at_most_bytes"])
        return proceed()

    compact(WORKLOAD, DAY, intercept(world.objects, "objects", note))

    assert bounds == {OBJECT_BYTES_MAX}
