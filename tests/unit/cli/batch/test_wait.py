"""Who waits for jobs is told how far they are, and waits through silence of AWS."""

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from spindown.cli.render.bar import open_lines
from spindown.cli.wait import is_well, say_awaited, say_trouble, told_why, wait_for
from spindown.contract.codec import encode
from spindown.contract.decision import DecisionSummary, Outcome
from spindown.contract.job.manifest import JobState, Manifest, Part, encode_manifest, manifest_key
from spindown.contract.row import BatchRow, DecisionRow, PolicyRow
from spindown.domain.fleet import RequeuedJob, WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import Failure
from spindown.ec2sim import MemoryClock
from spindown.error import SpindownError, Unreachable
from spindown.job.cancel import REASON
from spindown.ledger import LedgerView
from spindown.memory.store import MemoryObjectStore
from spindown.port import StoredObject
from spindown.reason_text import say_next_try
from tests.builders import NOW, a_lease, a_worker


class Store(MemoryObjectStore):
    """A store whose next answer may be missing."""

    is_silent = False

    def get(
        self, key: str, *, version: str | None = None, at_most_bytes: int | None = None
    ) -> StoredObject:
        """Read an object, or say nothing once."""
        if self.is_silent:
            self.is_silent = False
            raise Unreachable("no answer")
        return super().get(key, version=version, at_most_bytes=at_most_bytes)


def test_waits_until_all_jobs_are_over(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(MemoryClock())
    looks = 0

    def leave(job_id: str, state: JobState, failed: int = 0) -> None:
        part = Part(key="k", first=0, last=3, bytes=1, sha256="", failed=failed)
        manifest = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=state, items=4)
        done = Manifest(**{**vars(manifest), "parts": (part,)})
        store.put(manifest_key(job_id), encode_manifest(done))

    def pause() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            store.is_silent = True
        leave("b", JobState.COMPLETED if looks > 2 else JobState.RUNNING, failed=looks)

    leave("a", JobState.COMPLETED)
    ends = wait_for(["a", "b"], store, pause=pause)

    assert looks == 3
    assert {name: end.items_failed for name, end in ends.items()} == {"a": 0, "b": 3}
    assert (is_well({"a": ends["a"]}), is_well(ends)) == (True, False)
    assert "3 items failed" in capsys.readouterr().err


def test_a_failing_job_is_told_once_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(MemoryClock())

    def fail(job_id: str, times: int) -> None:
        crash = Failure(
            at=MemoryClock().now(), instance_id="i-1", epoch=1, kind="failure", reason="no module x"
        )
        leave(store, job_id, JobState.RUNNING, failures=(crash,) * times)

    def pause() -> None:
        said = capsys.readouterr().err
        looks.append(said)
        fail("a", 2)
        if len(looks) > 2:
            leave(store, "a", JobState.COMPLETED)
            leave(store, "b", JobState.COMPLETED)

    looks: list[str] = []
    fail("a", 1)
    fail("b", 1)
    wait_for(["a", "b"], store, options=" --local", pause=pause)

    why = "see why: spindown logs a --local"
    assert looks == [
        f"spindown: a: 1 failure; last: no module x; it is tried again; {why}\n",
        *("", ""),
    ]


def test_the_end_of_what_failed_says_why_and_what_tells_more() -> None:
    store = Store(MemoryClock())
    for name in "abc":
        leave(store, name, JobState.FAILED, reason="no module x" if name < "c" else "no disk")
    leave(store, "d", JobState.CANCELLED, reason="it waited for too long")
    leave(store, "e", JobState.CANCELLED, reason=REASON)

    ends = wait_for("abcde", store)

    assert list(say_trouble("lot", ends, store, " --local")) == [
        "a was given up: no module x",
        "c was given up: no disk",
        "cancelled: it waited for too long",
        "see why: spindown status lot --local",
    ]


def test_failed_items_are_told_once_a_cause() -> None:
    store = Store(MemoryClock())
    lines = [
        {"job_id": "a", "index": n, "item": n, "status": "failed", "error": "boom"}
        for n in range(2)
    ]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    digest = hashlib.sha256(data).hexdigest()
    part = Part(key="k", first=0, last=1, bytes=len(data), sha256=digest, failed=2)
    store.put("k", data)
    leave(store, "a", JobState.COMPLETED, parts=(part,))

    ends = wait_for(["a"], store)

    see = "see why: spindown results lot --failed"
    assert list(say_trouble("lot", ends, store, "")) == ["failed: a  0  0  boom", see]
    store.is_silent = True
    assert list(say_trouble("lot", ends, store, "")) == [see]


def test_who_waits_is_told_once_why_nothing_is_at_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    boots = LedgerView(workers={"i-1": a_worker("i-1", state=WorkerState.BOOTING)})
    works = LedgerView(leases=(a_lease(job_id="a", instance_id="i-1"),))
    views = iter([LedgerView(), boots, boots, works])
    seconds = iter([0, 19, 20, 21, 40, 60, 80])
    tell = told_why(
        lambda: None, lambda: next(views), lambda: NOW + timedelta(seconds=next(seconds))
    )

    said = []
    for _ in range(6):
        tell(["a"])
        said.append(capsys.readouterr().err)

    assert ["worker" in one for one in said] == [False, True, False, False, False, False]
    assert ["i-1 boots" in one for one in said] == [False, False, False, True, False, False]
    assert said[-2:] == ["", ""]


def test_a_wait_ends_once_nobody_can_answer_any_more() -> None:
    def check() -> None:
        raise SpindownError("nobody is there")

    store = Store(MemoryClock())
    leave(store, "a", JobState.RUNNING)
    tell = told_why(check, LedgerView, MemoryClock().now)
    with pytest.raises(SpindownError, match="nobody is there"):
        wait_for(["a"], store, meanwhile=tell, pause=lambda: None)


def leave(store: Store, job_id: str, state: JobState, **changes: Any) -> None:
    """Store the manifest of a job."""
    known = {"epoch": 1, "owner": "i-1/0", "items": 2}
    manifest = Manifest(job_id=job_id, state=state, **{**known, **changes})
    store.put(manifest_key(job_id), encode_manifest(manifest))


def test_a_file_is_told_now_and_then_also_of_nothing_new(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter([0.0, 1.0, 70.0, 90.0, 101.0])
    with open_lines(lambda: next(seconds)) as show:
        for words in ("at once", "none", "none", "none"):
            show(words, 0, None)

    assert capsys.readouterr().err.splitlines() == [
        "spindown:  70 s  none",
        "spindown: 101 s  none",
    ]


def test_jobs_that_are_over_are_read_without_a_pause() -> None:
    store, pauses = Store(MemoryClock()), list[str]()
    jobs = [f"j{number}" for number in range(250)]
    for job_id in jobs:
        leave(store, job_id, JobState.COMPLETED)

    assert len(wait_for(jobs, store, pause=lambda: pauses.append(""))) == 250
    assert not pauses


def test_who_waits_for_a_batch_hears_which_must_be_over() -> None:
    batches = {"night": BatchRow(since=NOW, after="day"), "other": BatchRow(since=NOW, after="x")}
    boots = {"i-1": a_worker("i-1", state=WorkerState.BOOTING)}

    def said(job_id: str) -> str:
        return say_awaited(LedgerView(batches=batches, workers=boots), {job_id}, NOW)

    assert "day" in said("night-00000")
    assert said("alone-00000").startswith("i-1 boots")
    batches["night"] = BatchRow(since=NOW)
    assert said("night-00000").startswith("i-1 boots")


@pytest.mark.parametrize("at", [None, NOW + timedelta(seconds=50)])
def test_what_keeps_a_slot_from_a_next_try_is_told(at: datetime | None) -> None:
    job = RequeuedJob(job_id="j", sent_at=NOW, at=NOW, items=1, items_done=0, next_try_at=at)
    about: dict[str, str | int | float] = {"max_workers": 0, "workload": "w", "deployed": 1}
    summary = DecisionSummary(why=Reason(ReasonCode.MAX_WORKERS, about))
    blocked = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.BLOCKED, summary=summary)
    drained = PolicyRow(effective=json.dumps(encode(Policy(max_workers=0))))

    def said(**changes: Any) -> str:
        return say_awaited(LedgerView(requeued_jobs={"j": job}, **changes), {"j"}, NOW)

    alone = said(policy=PolicyRow(effective=json.dumps(encode(Policy()))))
    assert say_next_try(at, NOW) in alone
    assert "max_workers" not in alone
    for told in (said(decision=blocked), said(policy=drained)):
        assert told.startswith(alone)
        assert "max_workers" in told


def test_only_a_machine_of_its_shape_is_one_that_comes() -> None:
    boots = a_worker("i-1", state=WorkerState.BOOTING, shape="c2m4")
    there = a_worker("i-2", state=WorkerState.IDLE, shape="c8m16")
    view = LedgerView(workers={"i-1": boots, "i-2": there})
    nothing = say_awaited(LedgerView(), {"j"}, NOW)

    assert say_awaited(view, {"j"}, NOW, "c2m4").startswith("i-1 boots")
    assert say_awaited(view, {"j"}, NOW, "c4m8") == nothing
    assert say_awaited(view, {"j"}, NOW, "c8m16") not in {nothing, ""}
    known = RequeuedJob(job_id="j", sent_at=NOW, at=NOW, items=1, items_done=0, shape="c2m4")
    again = LedgerView(workers=view.workers, requeued_jobs={"j": known})
    assert say_awaited(again, {"j"}, NOW, "c4m8").startswith("i-1 boots")


def test_who_waits_looks_up_the_shape_once() -> None:
    looks = list[str]()

    def expect() -> str:
        looks.append("")
        return "c2m4"

    seconds = iter(range(0, 600, 30))
    tell = told_why(
        lambda: None, LedgerView, lambda: NOW + timedelta(seconds=next(seconds)), expect
    )
    for _ in range(3):
        tell(["a"])

    assert len(looks) == 1
