"""A workload that a program sends items to, on a simulated account."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moto import mock_aws

from spindown import BadInput, SpindownError, Submission, Workload
from spindown.client.workload import FIRST_ITEMS
from spindown.contract.job.batch import Batch
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.domain.dead_letter import Failure
from spindown.error import Unreachable
from spindown.memory import MemoryClock
from spindown.memory.store import MemoryObjectStore
from spindown.operate.batch import BatchState
from spindown.port import ObjectStore, StoredObject
from tests.unit.cli.batch.account import Account

#: More than the account's queue takes in one message.
TOO_LONG = "x" * 2000


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        account = Account(tmp_path)
        account.take_at_most(1024)
        yield account


def open_workload(account: Account) -> Workload[Any, Any]:
    return Workload("ocr", config=account.config)


def test_a_section_that_is_sent_in_part_is_cancelled(account: Account) -> None:
    workload = open_workload(account)

    with pytest.raises(SpindownError):
        workload.map([TOO_LONG], key="k", on_exit="cancel")

    assert workload.batch("k").status().state is BatchState.CANCELLED


@pytest.mark.parametrize("how", [{}, {"on_exit": "detach"}])
def test_what_goes_on_when_sending_breaks_off_is_named(
    account: Account, how: dict[str, Any]
) -> None:
    workload = open_workload(account)
    send: Any = workload.map if how else workload.submit

    with pytest.raises(SpindownError) as raised:
        send([TOO_LONG], key="k", **how)

    assert "spindown cancel k --config" in raised.value.__notes__[0]
    assert workload.batch("k").status().state is not BatchState.CANCELLED


def test_a_stream_that_is_left_while_items_are_read_sends_none(account: Account) -> None:
    workload = open_workload(account)

    def items() -> Iterator[int]:
        yield from range(FIRST_ITEMS)
        # As a signal's handler would.
        stream.close()
        yield from range(FIRST_ITEMS)

    stream = workload.map(items(), key="k", on_exit="cancel")

    assert list(stream) == []
    assert workload.batch("k").status().state is BatchState.CANCELLED
    with pytest.raises(BadInput):
        workload.batch("k.2")


class Unanswering(MemoryObjectStore):
    """A bucket that gives no answer for so many reads."""

    def __init__(self, times: int) -> None:
        super().__init__(MemoryClock())
        self._left = times

    def get(self, key: str, **how: Any) -> StoredObject:
        if self._left:
            self._left -= 1
            raise Unreachable(key)
        return super().get(key, **how)


def a_submission(store: ObjectStore) -> Submission[Any]:
    batch = Batch(batch_id="b-1", workload="ocr", jobs=("b-1-00000",))
    sender: Any = SimpleNamespace(store=store, options="")
    session: Any = SimpleNamespace(options="")
    return Submission(batch, session, sender)


def test_who_waits_for_a_batch_asks_again_without_an_answer() -> None:
    store = Unanswering(1)
    job = Manifest(job_id="b-1-00000", epoch=1, owner="", state=JobState.COMPLETED)
    store.put(manifest_key(job.job_id), encode_manifest(job))

    assert a_submission(store).wait(timeout=60).jobs_over == 1


def test_a_timeout_says_how_the_job_that_is_waited_for_fails() -> None:
    store, now = Unanswering(0), MemoryClock().now()
    crash = Failure(at=now, instance_id="i-1", epoch=1, kind="failure", reason="no module x")
    job = Manifest(job_id="b-1-00000", epoch=1, owner="", state=JobState.RUNNING, failures=(crash,))
    store.put(manifest_key(job.job_id), encode_manifest(job))

    with pytest.raises(TimeoutError, match="b-1-00000, 1 failure; last: no module x"):
        a_submission(store).wait(timeout=0)


def test_a_timeout_is_told_without_an_answer() -> None:
    with pytest.raises(TimeoutError, match="b-1"):
        a_submission(Unanswering(99)).wait(timeout=0)


@pytest.mark.parametrize(("is_detached", "said"), [(False, "is cancelled"), (True, "goes on")])
def test_a_timeout_in_a_block_says_what_its_end_does(is_detached: bool, said: str) -> None:
    submission = a_submission(Unanswering(99))
    submission.__enter__()
    if is_detached:
        submission.detach()

    with pytest.raises(TimeoutError, match=said):
        submission.wait(timeout=0)


@pytest.mark.parametrize(
    ("name", "more", "field"),
    [
        (3, {}, "name"),
        (["ocr"], {}, "name"),
        ("ocr", {"config": 3}, "config"),
        ("ocr", {"deployment": 3}, "deployment"),
        ("ocr", {"local_system": "yes"}, "local_system"),
    ],
)
def test_what_names_no_workload_is_refused(name: Any, more: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        Workload(name, **more)

    assert caught.value.field == field


def test_a_batch_to_wait_for_is_looked_up_where_it_would_be(account: Account) -> None:
    with pytest.raises(BadInput, match="`spindown batches --config "):
        open_workload(account).submit([1], after="absent")


def test_what_is_no_time_and_no_batch_is_refused(account: Account) -> None:
    workload = open_workload(account)
    batch: Any = workload.submit([1])
    unknown: Any = 3

    for wrong in (batch.wait, lambda timeout: batch.gather(timeout=timeout)):
        with pytest.raises(BadInput, match="timeout is 'soon'"):
            wrong("soon")
    with pytest.raises(BadInput, match="batch is 3"):
        workload.batch(unknown)
