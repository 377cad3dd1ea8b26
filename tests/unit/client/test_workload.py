"""A workload that a program sends items to, on a simulated account."""

import json
import os
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from moto import mock_aws

from spindown import BadInput, JobFailed, SpindownError, Submission, Workload
from spindown.client.workload import FIRST_ITEMS
from spindown.contract.codec import encode
from spindown.contract.job.batch import Batch
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.domain.retry_or_dead_letter import Failure
from spindown.error import Unreachable
from spindown.job.cancel import REASON
from spindown.local import STATE
from spindown.local.daemon import DaemonError
from spindown.local.environment import PROFILE
from spindown.local.state import StateDirectory
from spindown.local.status import SystemStatus
from spindown.memory import MemoryClock
from spindown.memory.store import MemoryObjectStore
from spindown.operate.batch_status import BatchState
from spindown.port import ObjectStore, StoredObject
from tests.unit.cli.batch.account import REGION, Account

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


def a_submission(
    store: ObjectStore, jobs: int = 1, check_there: Callable[[], None] = lambda: None
) -> Submission[Any]:
    batch = Batch(batch_id="b-1", workload="ocr", jobs=tuple(f"b-1-{n:05}" for n in range(jobs)))
    sender: Any = SimpleNamespace(store=store, options="")
    session: Any = SimpleNamespace(options="", check_there=check_there)
    return Submission(batch, session, sender)


def leave(store: ObjectStore, job_id: str, state: JobState, reason: str = "") -> None:
    job = Manifest(job_id=job_id, epoch=1, owner="", state=state, reason=reason)
    store.put(manifest_key(job_id), encode_manifest(job))


def has_ended() -> None:
    raise Ended("the local system has ended")


class Ended(SpindownError):
    """Nobody will answer any more."""


def wait(submission: Submission[Any]) -> object:
    return submission.wait()


def use_as_block(submission: Submission[Any]) -> object:
    with submission:
        return submission.wait()


@pytest.mark.parametrize(
    "use",
    [
        wait,
        use_as_block,
        Submission[Any].gather,
        lambda submission: list(submission.results()),
        lambda submission: list(submission.as_completed()),
    ],
    ids=["wait", "block", "gather", "results", "as_completed"],
)
def test_nobody_waits_for_a_local_system_that_has_ended(
    use: Callable[[Submission[Any]], object],
) -> None:
    store = Unanswering(99)

    with pytest.raises(Ended):
        use(a_submission(store, check_there=has_ended))


class Status(BaseHTTPRequestHandler):
    """A local system that tells its status."""

    def do_GET(self) -> None:
        status = SystemStatus(
            endpoint="",
            region=REGION,
            deployment="lab",
            pid=os.getpid(),
            queues=(),
            functions=(),
            instances=(),
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(encode(status)).encode())

    def log_message(self, *_: object) -> None:
        """Keep what a run prints to itself."""


def test_a_program_hears_that_its_local_system_has_ended(account: Account) -> None:
    directory = StateDirectory(account.config.parent / STATE)
    with directory.held(), ThreadingHTTPServer(("127.0.0.1", 0), Status) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        directory.tell(endpoint=f"http://127.0.0.1:{server.server_port}")
        keys = "aws_access_key_id = a\naws_secret_access_key = b"
        directory.profile_path.write_text(f"[profile {PROFILE}]\nregion = {REGION}\n{keys}\n")
        batch = Workload[Any, Any]("ocr", config=account.config, local_system=True).submit([1])
        with pytest.raises(TimeoutError):
            batch.wait(timeout=0)
        server.shutdown()

    with pytest.raises(DaemonError):
        batch.wait(timeout=0)


def test_jobs_that_are_over_are_not_waited_for() -> None:
    store = Unanswering(0)
    submission = a_submission(store, jobs=100)
    for job_id in submission.jobs:
        leave(store, job_id, JobState.COMPLETED)

    assert submission.wait(timeout=0).jobs_over == 100
    leave(store, submission.jobs[-1], JobState.RUNNING)
    with pytest.raises(TimeoutError):
        submission.wait(timeout=0)


@pytest.mark.parametrize(("reason", "is_told"), [(REASON, False), ("b-0 has failed", True)])
def test_why_a_batch_was_cancelled_is_told_if_nobody_asked(*, reason: str, is_told: bool) -> None:
    store = Unanswering(0)
    leave(store, "b-1-00000", JobState.CANCELLED, reason)

    with pytest.raises(JobFailed) as raised:
        a_submission(store).gather()

    assert (f": {reason}" in str(raised.value)) is is_told
    assert ("spindown status b-1" in str(raised.value)) is is_told


def test_a_type_of_a_live_edit_is_sent(account: Account) -> None:
    account.declare("old", live="fresh")
    workload = open_workload(account)

    workload.submit([1], type="fresh")

    with pytest.raises(BadInput, match="type is 'old'"):
        workload.submit([1], type="old")


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
