"""Items are settled once, whoever reads them and whatever their list is like."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.job.message import ITEMS_MAX, VALUES_MAX, JobMessage, items_key
from spindown.error import ContractError, Unreachable, Unreadable
from spindown.job.item import settle_items
from spindown.memory.interception import PortCall, intercept
from tests.unit.job.listed import a_world, conflict
from tests.work import WorkWorld

REMEDY = "declare its prefix under the workload's inputs, deploy, then redrive the job"
NO_JSON = "Expecting value: line 1 column 1 (char 0)"


def test_items_of_a_prefix_do_not_move_when_objects_come_later() -> None:
    world = a_world()
    job = JobMessage(job_id="j", prefix_uri="s3://inputs/images/")
    first = settle_items(job, world.ports)
    world.sources["s3://inputs/images/0.png"] = b""
    assert settle_items(job, world.ports) == first


def test_who_has_stored_a_list_does_not_read_it_again() -> None:
    world = a_world()

    settle_items(JobMessage(job_id="p", prefix_uri="s3://inputs/images/"), world.ports)

    assert world.calls == {"objects.get": 1, "objects.put": 1}, "a look whether it is there"


def test_two_listers_of_a_prefix_take_the_first_stored_list() -> None:
    world = a_world()
    world.just_before("put", lambda _: world.objects.put(items_key("p"), b'"theirs"\n'))
    job = JobMessage(job_id="p", prefix_uri="s3://inputs/images/")

    assert settle_items(job, world.ports) == ("theirs",)


def test_a_write_that_meets_another_under_way_is_made_again() -> None:
    world = a_world()
    world.before = conflict(items_key("p"), times=2)
    job = JobMessage(job_id="p", prefix_uri="s3://inputs/images/")

    found = settle_items(job, world.ports)

    assert len(found) == 10
    assert len(world.objects.versions(items_key("p"))) == 1


def test_a_list_always_written_by_others_is_an_outage() -> None:
    world = a_world()
    world.before = conflict(items_key("p"), times=1000)

    with pytest.raises(Unreachable):
        settle_items(JobMessage(job_id="p", prefix_uri="s3://inputs/images/"), world.ports)


def test_a_list_that_is_archived_is_told_to_be_restored() -> None:
    def archive(call: PortCall, proceed: Callable[[], Any]) -> Any:
        raise Unreadable(f"{call.method}: InvalidObjectState")

    ports = a_world().ports
    ports = replace(ports, inputs=intercept(ports.inputs, "inputs", archive))
    with pytest.raises(ContractError, match="restore"):
        settle_items(JobMessage(job_id="j", items_uri="s3://inputs/list"), ports)


def test_a_folder_marker_is_no_item() -> None:
    world = WorkWorld(sources={"s3://inputs/d/": b"", "s3://inputs/d/a": b"a"})
    job = JobMessage(job_id="j", prefix_uri="s3://inputs/d/")
    assert settle_items(job, world.ports) == ("s3://inputs/d/a",)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (
            JobMessage(job_id="j", items_uri="s3://inputs/none"),
            "items_uri is 's3://inputs/none': put the object there, then redrive the job",
        ),
        (
            JobMessage(job_id="j", items_uri="s3://other/x"),
            f"items_uri is 's3://other/x': {REMEDY}",
        ),
        (
            JobMessage(job_id="j", prefix_uri="s3://other/"),
            f"prefix_uri is 's3://other/': {REMEDY}",
        ),
        (
            JobMessage(job_id="j", items_uri="s3://inputs/latin1"),
            """s3://inputs/latin1 is b'"\\xe9"': save line 2 as UTF-8""",
        ),
        (
            JobMessage(job_id="j", items_uri="s3://inputs/text"),
            (
                "s3://inputs/text is 'hello': write one JSON value on line 1, "
                f'such as "hello world" ({NO_JSON})'
            ),
        ),
        (
            JobMessage(job_id="k", items_uri="s3://inputs/text"),
            (
                "jobs/k/items.jsonl is 'hello': write one JSON value on line 2, "
                f'such as "hello world" ({NO_JSON})'
            ),
        ),
    ],
    ids=[
        "missing",
        "undeclared list",
        "undeclared prefix",
        "not UTF-8",
        "not JSON",
        "stored, not JSON",
    ],
)
def test_says_in_one_sentence_what_is_wrong_with_a_list(job: JobMessage, says: str) -> None:
    world = WorkWorld(
        sources={"s3://inputs/latin1": b'"a"\n"\xe9"\n', "s3://inputs/text": b"hello\n"}
    )
    world.objects.put(items_key("k"), b"1\nhello\n")
    with pytest.raises(ContractError) as caught:
        settle_items(job, world.ports)
    assert str(caught.value) == says


def test_a_prefix_too_large_for_any_worker_is_refused() -> None:
    world = a_world()
    job = JobMessage(job_id="j", prefix_uri="s3://inputs/images/")
    size = 10 * len("s3://inputs/images/10.png")
    with pytest.raises(ContractError) as caught:
        settle_items(job, world.ports, at_most_bytes=size - 1)

    assert (caught.value.field, caught.value.value) == ("prefix_uri", "s3://inputs/images/")
    assert not world.objects.versions(items_key("j"))
    assert len(settle_items(job, world.ports, at_most_bytes=size)) == 10


def test_a_damaged_list_that_another_stored_first_is_named() -> None:
    world = a_world()
    world.just_before("put", lambda _: world.objects.put(items_key("p"), b"{"))

    with pytest.raises(ContractError, match=r"^jobs/p/items\.jsonl is '{'"):
        settle_items(JobMessage(job_id="p", prefix_uri="s3://inputs/images/"), world.ports)


def test_reads_a_list_with_a_byte_order_mark_and_empty_lines() -> None:
    world = WorkWorld(sources={"s3://inputs/l": b'\xef\xbb\xbf"a"\r\n\n{"b": 1}'})
    job = JobMessage(job_id="j", items_uri="s3://inputs/l")
    assert settle_items(job, world.ports) == ("a", {"b": 1})


def test_a_list_of_more_values_than_memory_holds_is_refused() -> None:
    row = b"[" * 60 + b"]" * 60 + b"\n"
    world = WorkWorld(sources={"s3://inputs/deep.jsonl": row * (VALUES_MAX // 60 + 1)})
    job = JobMessage(job_id="j", items_uri="s3://inputs/deep.jsonl")

    with pytest.raises(ContractError) as caught:
        settle_items(job, world.ports)

    assert caught.value.field == "s3://inputs/deep.jsonl"


def test_a_list_of_more_items_than_memory_holds_is_refused() -> None:
    world = WorkWorld(sources={"s3://inputs/many.jsonl": b"1\n" * (ITEMS_MAX + 1)})
    job = JobMessage(job_id="j", items_uri="s3://inputs/many.jsonl")

    with pytest.raises(ContractError) as caught:
        settle_items(job, world.ports)

    assert caught.value.value == f"{ITEMS_MAX + 1} lines"
