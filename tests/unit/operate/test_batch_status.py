"""A batch is shown as its jobs' manifests say, the newest first, and an ETA where one is known."""

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from spindown.cli.render.batch import render_batch, say_failed
from spindown.contract.codec import encode
from spindown.contract.decision import DecisionSummary, Outcome, ShapeRecord
from spindown.contract.job.batch import Batch, batch_key
from spindown.contract.job.manifest import JobState, Manifest, Part, encode_manifest, manifest_key
from spindown.contract.job.message import child_id
from spindown.contract.row import DecisionRow
from spindown.domain.batch import BatchTally
from spindown.domain.fleet import Backlog, RequeuedJob, Worker
from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.lease import LEAVE_FOR
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import Failure
from spindown.ec2sim import MemoryClock
from spindown.error import NotFound
from spindown.job.cancel import REASON
from spindown.ledger import LedgerView
from spindown.memory.store import MemoryObjectStore
from spindown.operate.batch_status import (
    BatchDetail,
    BatchState,
    BatchStatus,
    Outlook,
    expect_shape_of,
    find_newest,
    read_batches,
    read_detail,
)
from spindown.reason_text import say_next_try
from tests.builders import NOW, a_lease, a_worker

KNOWN = Knowledge(
    throughput={("T4", 1.0): ThroughputRecord(items=1000.0, hours=10.0, reports=9, lives=9)}
)
DONE, HALF = JobState.COMPLETED, JobState.RUNNING


class World:
    """The bucket of a workload, and what its ledger says."""

    def __init__(self) -> None:
        self.clock = MemoryClock(NOW)
        self.store = MemoryObjectStore(self.clock)
        self.outlook = Outlook(
            view=LedgerView(),
            knowledge=Knowledge(),
            policy=Policy(),
            waiting={"": Backlog(visible=2, in_flight=1)},
            at=NOW,
        )

    def submit(self, name: str, jobs: int = 2, items: int | None = None, **changes: Any) -> None:
        self.clock.advance(timedelta(seconds=1))
        names = tuple(f"{name}-{n:05d}" for n in range(jobs))
        batch = Batch(batch_id=name, workload="ocr", jobs=names, items=items, **changes)
        self.store.put(batch_key(name), json.dumps(encode(batch)).encode())

    def leave(self, job_id: str, state: JobState, done: int = 4, **changes: Any) -> None:
        parts = (Part(key=f"{job_id}/p", first=0, last=done - 1, bytes=1, sha256=""),) * (done > 0)
        values = {"items": 10, "parts": parts, "next_item": done, "cost_usd": 0.5, **changes}
        job = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=state, **values)
        self.store.put(manifest_key(job_id), encode_manifest(job))

    def listed(self, limit: int = 20, before: str | None = None, **bound: int) -> list[BatchStatus]:
        stores = {"ocr": self.store}
        found = find_newest(stores, limit=limit, before=before)
        return list(read_batches(found, stores, {"ocr": self.outlook}, **bound))

    def detail(self, name: str, *jobs: str) -> BatchDetail:
        return read_detail(name, jobs, "ocr", self.store, self.outlook)


def screen_of(detail: BatchDetail) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render_batch(detail, NOW, ""))
    return captured.get()


def test_of_a_long_item_begin_and_end_are_shown() -> None:
    item = f"s3://bucket/{'folder/' * 20}scan-0017.tif"
    said = say_failed({"job_id": "j", "index": 0, "item": item, "error": "boom"})
    shown = said.split("  ")[2]
    assert shown.startswith('"s3://bucket/')
    assert shown.endswith('/scan-0017.tif"')
    assert len(shown) <= 80


def test_batches_come_newest_first_and_page_by_page() -> None:
    world = World()
    # Not in the order of their names.
    for name in ("c", "a", "d", "b"):
        world.submit(name)

    assert [one.batch_id for one in world.listed(limit=3)] == ["b", "d", "a"]
    assert [one.batch_id for one in world.listed(before="a")] == ["c"]
    assert world.listed(before="c") == []
    with pytest.raises(NotFound):
        world.listed(before="nothing")


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ((None, None), BatchState.WAITING),
        ((HALF, None), BatchState.RUNNING),
        ((DONE, None), BatchState.WAITING),
        ((DONE, DONE), BatchState.COMPLETED),
        ((DONE, JobState.CANCELLED), BatchState.CANCELLED),
        ((JobState.FAILED, JobState.CANCELLED), BatchState.FAILED),
    ],
)
def test_the_state_of_a_batch_is_that_of_its_jobs(
    states: tuple[JobState | None, ...], state: BatchState
) -> None:
    world = World()
    world.submit("b")
    for number, each in enumerate(states):
        if each is not None:
            world.leave(f"b-{number:05d}", each)

    (found,) = world.listed()

    assert found.state is state
    assert found.jobs_over == sum(each not in {None, HALF} for each in states)


def test_a_failed_item_fails_its_batch_as_people_are_told() -> None:
    world = World()
    world.submit("b", jobs=1)
    part = Part(key="p", first=0, last=0, bytes=1, sha256="", failed=1)
    world.leave("b-00000", DONE, done=1, parts=(part,), items=1)

    (found,) = world.listed()

    assert (found.state, found.items_failed) == (BatchState.FAILED, 1)
    assert BatchTally().with_job("completed", items=1, failed=1).end.value == "failed"


def test_a_child_that_is_given_up_is_told_while_others_are_open() -> None:
    world = World()
    world.submit("b", jobs=1)
    children = (child_id("b-00000", 0), child_id("b-00000", 1))
    world.leave("b-00000", JobState.SPLIT, children=children)
    world.leave(children[0], JobState.FAILED, reason="boom")

    found = world.detail("b")

    assert (found.batch.jobs_over, found.batch.jobs_given_up) == (0, 1)
    assert [one.job_id for one in found.given_up] == ["b-00000"]


def test_why_nobody_s_cancel_has_cancelled_a_batch_is_told() -> None:
    world = World()
    for name, reason in (("asked", REASON), ("dropped", "too long")):
        world.submit(name, jobs=1)
        world.leave(f"{name}-00000", JobState.CANCELLED, 0, reason=reason)
    found = {name: world.detail(name).cancelled_why for name in ("asked", "dropped")}

    assert found == {"asked": "", "dropped": "too long"}


def test_a_job_that_no_machine_takes_waits_with_its_reason() -> None:
    world = World()
    world.submit("b", jobs=1)
    last = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.NOTHING_FITS)
    world.outlook = replace(world.outlook, view=LedgerView(decision=last))
    world.leave("b-00000", HALF, released=True)
    waits = world.detail("b").batch
    world.leave("b-00000", HALF)
    runs = world.detail("b").batch

    assert (waits.state, bool(waits.decision)) == (BatchState.WAITING, True)
    assert (runs.state, runs.decision) == (BatchState.RUNNING, "")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (Backlog(visible=1, in_flight=0), "nothing waited; the next tick decides"),
        (Backlog(visible=0, in_flight=1), "no message can be received now"),
        (Backlog(visible=0, in_flight=0), "nothing waits"),
    ],
    ids=["sent since", "hidden", "no message"],
)
def test_what_waits_is_not_told_that_nothing_does(there: Backlog, said: str) -> None:
    world = World()
    world.submit("b", jobs=1)
    summary = DecisionSummary(sizing=Reason(ReasonCode.NOTHING_WAITS))
    last = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.ENOUGH, summary=summary)
    view = LedgerView(decision=last)
    world.outlook = replace(world.outlook, view=view, waiting={"": there})

    assert world.detail("b").batch.decision.startswith(said)


def test_what_waits_is_told_what_was_decided_for_its_own_shape() -> None:
    world = World()
    types = (JobType(name="big", needs=JobNeeds(memory_gib=64)), JobType(name="small"))
    shapes = tuple(
        ShapeRecord(
            shape=shape,
            visible=visible,
            in_flight=0,
            workers=0,
            wanted=0,
            blocked_by=Reason(ReasonCode.POOL_REFUSED, {"refusal": f"of {shape}"}),
        )
        for shape, visible in (("c0m0", 3), ("c0m64", 1), ("c0m128", 0))
    )
    last = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.NOTHING_FITS)
    world.outlook = replace(
        world.outlook,
        view=LedgerView(decision=last),
        policy=Policy(types=types, requirements_at_most=JobNeeds(memory_gib=128)),
        shapes=shapes,
    )
    world.submit("typed", type="big", command="python train.py")
    world.submit("larger", requirements={"memory_gib": 100})
    world.submit("plain")

    plain, larger, typed = (one.decision for one in world.listed())
    assert "of c0m64" in typed
    assert "of c0m0" in plain
    # It was not in its queue yet when that was decided.
    assert larger == ""
    assert world.detail("typed").batch.command == "python train.py"
    # Of a job that is asked for by its own name nobody knows the shape: all are named.
    alone = world.detail("alone", "alone").batch.decision
    assert "of c0m64" in alone
    assert "of c0m0" in alone


def test_items_and_dollars_are_those_of_all_jobs() -> None:
    world = World()
    world.submit("b", items=20)
    world.leave("b-00000", DONE, 10)

    (found,) = world.listed()
    assert (found.items_done, found.items, found.dollars) == (10, 20, 0.5)

    world.leave(
        "b-00001", DONE, 4, parts=(Part(key="p", first=0, last=3, bytes=1, sha256="", failed=2),)
    )
    (found,) = world.listed()
    assert (found.items_done, found.items_failed, found.items) == (12, 2, 20)
    assert found.dollars == 1.0


def test_a_batch_with_splits_without_end_hides_no_other() -> None:
    world = World()
    world.submit("good", 1)
    world.submit("bad", 1)
    job_id = "bad-00000"
    for _ in range(1200):
        child = child_id(job_id, 0)
        world.leave(job_id, JobState.SPLIT, children=(child,))
        job_id = child

    bad, good = world.listed()

    assert (bad.batch_id, bad.state, good.state) == ("bad", None, BatchState.WAITING)
    assert ".00000.00000" in bad.fault


def test_a_list_looks_at_no_more_jobs_than_it_may() -> None:
    world = World()
    world.submit("small", 2)
    world.submit("large", 4)
    world.submit("newest", 2)

    states = [one.state for one in world.listed(jobs_at_most=5)]
    assert states == [BatchState.WAITING, None, BatchState.WAITING]
    assert world.detail("large").batch.state is BatchState.WAITING


def test_what_cannot_be_read_hides_no_other() -> None:
    world = World()
    world.submit("good")
    world.submit("newer")
    later = Manifest(job_id="newer-00000", epoch=1, owner="", state=DONE, schema=2)
    world.store.put(manifest_key(later.job_id), encode_manifest(later))
    world.store.put(batch_key("damaged"), b"{")

    states = {one.batch_id: (one.state, bool(one.fault)) for one in world.listed()}

    assert states == {
        "good": (BatchState.WAITING, False),
        "newer": (None, True),
        "damaged": (None, True),
    }


def test_an_eta_needs_a_machine_and_a_speed() -> None:
    world = World()
    world.submit("b", items=20)
    assert world.listed()[0].eta is None

    there = LedgerView(workers={"i-1": a_worker()})
    world.outlook = replace(world.outlook, view=there)
    assert world.listed()[0].eta is None

    world.outlook = replace(world.outlook, knowledge=KNOWN)
    eta = world.listed()[0].eta
    assert eta is not None
    # 20 items of its own and those of one other job, about 100 an hour.
    assert NOW < eta.sooner < eta.likely < eta.later
    for number in range(2):
        world.leave(f"b-{number:05d}", DONE, 10)
    assert world.listed()[0].eta is None


def test_with_types_only_the_machines_of_its_shape_count() -> None:
    world = World()
    world.submit("b", items=20)
    waiting = {shape: Backlog(visible=1, in_flight=0) for shape in ("", "c4m8", "c8m64")}
    there = LedgerView(workers={"i-1": a_worker(shape="c8m64")})
    world.outlook = replace(world.outlook, knowledge=KNOWN, waiting=waiting, view=there)
    assert world.listed()[0].eta is None

    for shape, is_known in (("c8m64", True), ("c4m8", False)):
        view = replace(there, leases=(a_lease(job_id="b-00000.00003", shape=shape),))
        world.outlook = replace(world.outlook, view=view)
        assert (world.listed()[0].eta is not None) is is_known


def test_an_eta_goes_by_how_long_its_own_items_take() -> None:
    world = World()
    world.submit("b", jobs=1, items=20)
    there = LedgerView(workers={"i-1": a_worker()})
    alive_until = NOW + world.outlook.policy.lease_duration
    found = []
    for hours in (0.0, 9.0):
        begun = NOW - timedelta(hours=hours)
        world.leave("b-00000", HALF, 0, claimed_at=begun)
        lease = a_lease(job_id="b-00000", claimed_at=begun, deadline=alive_until, items_done=0)
        view = replace(there, leases=(lease,))
        world.outlook = replace(world.outlook, knowledge=KNOWN, view=view)
        eta = world.listed()[0].eta
        assert eta is not None
        found.append(eta)

    # 100 items an hour were learned; a first item that has taken 9 hours is taken for half done.
    learned, own = found
    assert learned.later < NOW + timedelta(hours=4)
    assert own.likely > NOW + timedelta(hours=9)
    assert own.later > NOW + timedelta(hours=20 * 18)
    assert own.sooner == NOW + timedelta(hours=1)


def test_the_last_item_of_a_job_is_as_old_as_it_is_now() -> None:
    world = World()
    world.submit("b", jobs=1, items=1)
    begun = NOW - timedelta(seconds=49)
    # No heartbeat has come since the claim.
    lease = a_lease(
        job_id="b-00000",
        claimed_at=begun,
        deadline=begun + world.outlook.policy.lease_duration,
        items_done=0,
    )
    world.leave("b-00000", HALF, 0, claimed_at=begun, items=1)
    view = LedgerView(workers={"i-1": a_worker()}, leases=(lease,))
    quick = Knowledge(
        throughput={key: replace(one, items=1e6) for key, one in KNOWN.throughput.items()}
    )
    world.outlook = replace(world.outlook, knowledge=quick, view=view)

    eta = world.listed()[0].eta

    assert eta is not None
    assert eta.likely - NOW == timedelta(seconds=49)
    assert eta.later - NOW >= timedelta(seconds=9 * 49)


@pytest.mark.parametrize(("seconds", "is_told"), [(5, True), (40, False)])
def test_a_slow_job_has_no_eta_before_its_first_heartbeat(seconds: int, *, is_told: bool) -> None:
    world = World()
    world.submit("b", jobs=1, items=10)
    begun = NOW - timedelta(seconds=seconds)
    until = begun + world.outlook.policy.lease_duration
    lease = a_lease(job_id="b-00000", claimed_at=begun, deadline=until, items=10, items_done=0)
    world.leave("b-00000", HALF, 0, claimed_at=begun, items=10)
    view = LedgerView(workers={"i-1": a_worker()}, leases=(lease,))
    # So many an hour that ten take ten seconds.
    known = Knowledge(
        throughput={
            key: replace(one, items=36 * one.items) for key, one in KNOWN.throughput.items()
        }
    )
    world.outlook = replace(world.outlook, knowledge=known, view=view)

    one = world.listed()[0]

    assert one.state is BatchState.RUNNING
    assert (one.eta is not None) is is_told


def test_a_job_between_two_tries_waits_and_names_its_failure() -> None:
    world = World()
    world.submit("b", jobs=1)
    crash = Failure(at=NOW, instance_id="i-1", epoch=1, kind="failure", reason="exit status 7")
    world.leave("b-00000", HALF, released=True, failures=(crash,))

    detail = world.detail("b")

    (job,) = detail.failing
    assert (detail.batch.state, job.word) == (BatchState.WAITING, "waiting")
    assert "exit status 7" in job.failures_told
    assert detail.next_tries == {}


def test_an_attempt_that_said_nothing_is_told_as_a_loss() -> None:
    world = World()
    world.submit("b", jobs=1)
    loss = Failure(at=NOW, instance_id="i-1", epoch=1, kind="loss")
    world.leave("b-00000", HALF, released=True, failures=(loss,), losses=1)

    (job,) = world.detail("b").failing

    assert job.failures_told.startswith("1 loss")
    assert replace(job, failures=2).failures_told.startswith("2 losses")


def test_a_job_that_nobody_gets_yet_tells_when_it_is_tried() -> None:
    world = World()
    world.submit("b", jobs=1)
    world.leave("b-00000", HALF, released=True)
    job = RequeuedJob(
        job_id="b-00000",
        sent_at=NOW,
        items=10,
        items_done=4,
        at=NOW,
        next_try_at=NOW + timedelta(seconds=90),
    )
    last = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.NOTHING_FITS)
    view = replace(world.outlook.view, requeued_jobs={"b-00000": job}, decision=last)
    world.outlook = replace(world.outlook, view=view)

    detail = world.detail("b")

    assert detail.next_tries == {"b-00000": job.next_try_at}
    assert say_next_try(job.next_try_at, NOW) in screen_of(detail)
    # What the last tick has seen is no reason of its own.
    assert detail.batch.decision == ""


def failed_once(world: World, *workers: Worker) -> LedgerView:
    """Let i-1 fail the one job of a batch and take up another, one of a long item."""
    world.submit("b", jobs=1, items=1)
    world.leave("b-00000", HALF, 0, released=True, items=1)
    job = RequeuedJob(job_id="b-00000", sent_at=NOW, items=1, items_done=0, at=NOW, failures=1)
    other = a_lease(job_id="other", items=1, claimed_at=NOW - timedelta(seconds=60))
    return LedgerView(
        workers={one.instance_id: one for one in workers},
        requeued_jobs={"b-00000": job},
        leases=(other,),
    )


@pytest.mark.parametrize(
    ("others", "soonest"),
    [((), LEAVE_FOR), ((a_worker("i-2"),), timedelta(0))],
    ids=["the only machine", "another is free"],
)
def test_a_failed_job_is_begun_where_a_machine_takes_it(
    others: tuple[Worker, ...], soonest: timedelta
) -> None:
    world = World()
    view = failed_once(world, a_worker(), *others)
    world.outlook = replace(world.outlook, knowledge=KNOWN, view=view)

    eta = world.listed()[0].eta

    assert eta is not None
    assert (eta.sooner - NOW >= LEAVE_FOR) is (soonest == LEAVE_FOR)
    # The other's item has taken a minute, and may take nine more.
    held = timedelta(0) if others else timedelta(seconds=60)
    assert eta.likely - NOW > max(held, soonest)


@pytest.mark.parametrize(("jobs", "is_told"), [(1, True), (2, False)])
def test_a_machine_that_ends_does_what_it_holds(jobs: int, *, is_told: bool) -> None:
    world = World()
    world.submit("b", jobs=jobs, items=10 * jobs)
    world.leave("b-00000", HALF, 5)
    lease = a_lease(job_id="b-00000", items=10, items_done=5, claimed_at=NOW - timedelta(minutes=3))
    view = LedgerView(workers={"i-1": a_worker(surplus_at=NOW)}, leases=(lease,))
    world.outlook = replace(world.outlook, knowledge=KNOWN, view=view)
    detail = world.detail("b")

    assert (detail.batch.state, detail.batch.has_machine) == (BatchState.RUNNING, False)
    assert (detail.batch.eta is not None) is is_told
    # Without an ETA it is not told that items will tell a speed, which is known.
    awaits = replace(detail, batch=replace(detail.batch, has_machine=True))
    assert (screen_of(detail) == screen_of(awaits)) is is_told


def test_a_job_whose_machine_was_ended_waits() -> None:
    world = World()
    world.submit("b", jobs=1)
    world.leave("b-00000", HALF)
    left = RequeuedJob(job_id="b-00000", sent_at=NOW, items=10, items_done=4, at=NOW)
    view = replace(world.outlook.view, requeued_jobs={"b-00000": left})
    world.outlook = replace(world.outlook, view=view)

    (waits,) = world.listed()
    again = replace(view, leases=(a_lease(job_id="b-00000"),))
    world.outlook = replace(world.outlook, view=again)
    (runs,) = world.listed()

    assert (waits.state, runs.state) == (BatchState.WAITING, BatchState.RUNNING)


def test_one_batch_tells_what_failed_and_what_was_sent_again() -> None:
    world = World()
    world.submit("b", jobs=3)
    world.leave("b-00001", JobState.FAILED, reason="no such\x1b[2J model")
    item, error = "b\N{LATIN SMALL LETTER O WITH DIAERESIS}se\x1b", "boom\nat"
    row = {"job_id": "b-00002", "index": 3, "item": item, "status": "failed", "error": error}
    data = json.dumps(row).encode()
    part = Part(
        key="k",
        first=0,
        last=3,
        bytes=len(data),
        failed=1,
        sha256=hashlib.sha256(data).hexdigest(),
    )
    world.store.put("k", data)
    world.leave("b-00002", DONE, parts=(part,))

    detail = world.detail("b")
    assert [record["index"] for record in detail.failed] == [3]
    assert [job.job_id for job in detail.given_up] == ["b-00001"]
    assert detail.again == ""
    world.submit("b-again")
    assert world.detail("b").again == "b-again"
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render_batch(detail, NOW, " --local"))
    assert "boom" in captured.get()
    assert '"b\N{LATIN SMALL LETTER O WITH DIAERESIS}se\\u001b"' in captured.get()
    assert " b-00001 --local" in captured.get()
    assert "\nat" not in captured.get()


@pytest.mark.parametrize("state", [DONE, HALF])
def test_failed_items_are_sent_again_once_a_batch_is_over(state: JobState) -> None:
    world = World()
    world.submit("b", jobs=1)
    part = Part(key="k", first=0, last=3, bytes=0, failed=1, sha256=hashlib.sha256(b"").hexdigest())
    world.store.put("k", b"")
    world.leave("b-00000", state, parts=(part,))

    (line,) = [x for x in screen_of(world.detail("b")).splitlines() if "redrive ocr --items" in x]

    assert ("once" in line) is (state is HALF)
    assert "redrive ocr --items b" in screen_of(world.detail("b-00000", "b-00000"))


def test_what_fails_again_unless_changed_is_sent_back_apart() -> None:
    world = World()
    world.submit("b", jobs=2)
    world.leave("b-00000", JobState.FAILED, reason="too often")
    world.leave("b-00001", JobState.FAILED, reason="too large", code=ReasonCode.NO_SUCH_SIZE.value)

    lines = [line for line in screen_of(world.detail("b")).splitlines() if "redrive" in line]

    assert ["b-00000" in line for line in lines] == [True, False]
    assert ["b-00001" in line for line in lines] == [False, True]
    assert ["changed" in line for line in lines] == [False, True]


def test_a_job_by_its_own_name_is_shown_as_well() -> None:
    world = World()
    world.leave("alone", HALF)

    found = world.detail("alone", "alone").batch

    assert (found.state, found.submitted_at, found.jobs) == (BatchState.RUNNING, None, 1)


@pytest.mark.parametrize(
    ("dispatch", "is_live"),
    [(Dispatch.DEDICATED, True), (Dispatch.DEDICATED, False), (Dispatch.POOL, True)],
)
def test_a_job_tells_what_its_own_machine_has_cost(dispatch: Dispatch, *, is_live: bool) -> None:
    world = World()
    world.submit("b", jobs=1)
    world.leave("b-00000", DONE)
    worker = replace(
        a_worker(),
        launched_at=NOW - timedelta(minutes=10),
        checked_in_at=NOW - timedelta(minutes=8),
        idle_since=NOW - timedelta(minutes=1),
        accrued_until=NOW - timedelta(minutes=4),
        charged_usd=0.5,
        price_per_hour=6.0,
    )
    view = LedgerView(workers={"i-1": worker} if is_live else {})
    policy = replace(Policy(), dispatch=dispatch)
    world.outlook = replace(world.outlook, view=view, policy=policy)
    ended = {"i-1": worker}

    detail = read_detail("b", ("b-00000",), "ocr", world.store, world.outlook, ended.get)

    if dispatch is Dispatch.POOL:
        assert detail.machine is None
        return
    assert detail.machine is not None
    assert detail.machine.dollars == pytest.approx(0.5 + 4 * 6.0 / 60)
    seconds = detail.machine
    assert (seconds.boot_seconds, seconds.busy_seconds, seconds.idle_seconds) == (120, 420, 60)
    assert "all in $0.9" in screen_of(detail)


def test_jobs_come_to_the_shape_that_their_batch_asks_for() -> None:
    world = World()
    types = (JobType(name="big", needs=JobNeeds(memory_gib=64)),)
    typed = replace(world.outlook, policy=Policy(types=types))
    world.submit("typed", type="big")

    found = [
        expect_shape_of(jobs, world.store, typed)
        for jobs in (["typed-00000", "typed-00001"], ["alone"], [])
    ]

    assert found == ["c0m64", "", ""]
    assert expect_shape_of(["typed-00000"], world.store, world.outlook) == ""
