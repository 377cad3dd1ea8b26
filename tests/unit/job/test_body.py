"""A job is what its first claim read: no other message under its id changes or loses anything."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import (
    MESSAGE_BYTES_MAX,
    JobMessage,
    body_digest,
    encode_job,
    encode_stored,
    items_key,
    parse_job,
    stored_key,
)
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.error import LeaseLost
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob, Finished
from spindown.job.commit import Portion, commit, complete
from spindown.job.item import settle_items
from spindown.job.message import copy_message
from spindown.job.redrive import RedriveOutcome, redrive
from spindown.job.release import release, settle_release
from tests.work import BUCKET, WORKLOAD, WorkWorld, a_portion, a_record, a_slot_id, items

JOB: dict[str, Any] = {"job_id": "j", "items": items(6)}
OTHERS: list[dict[str, Any]] = [
    {**JOB, "items": items(10)},
    {**JOB, "items": items(6)[::-1]},
    {**JOB, "params": {"size": 2}},
    {"job_id": "j", "items_uri": f"{BUCKET}list.jsonl"},
    {"job_id": "j", "prefix_uri": f"{BUCKET}images/"},
]


def refused(world: WorkWorld, body: dict[str, Any], code: ReasonCode) -> None:
    """Send a body and see it become a dead letter with this code."""
    world.send(body)
    declined = world.claim(a_slot_id("i-2"))
    assert isinstance(declined, Declined)
    assert (declined.outcome, declined.code) == (ClaimOutcome.OTHER_BODY, code)
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(0))
    assert letter is not None
    assert (letter.attributes["code"], letter.attributes["job_id"]) == (code.value, "j")
    assert parse_job(letter.body) == parse_job(encode_job(parse_job(letter.body)))
    assert world.queue.backlog().visible == 0


@pytest.mark.parametrize("other", OTHERS)
def test_another_body_never_mixes_with_a_job_at_work(other: dict[str, Any]) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    refused(world, other, ReasonCode.OTHER_BODY)

    commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    assert len(world.records("j")) == 6


@pytest.mark.parametrize("other", OTHERS)
def test_another_body_does_not_go_on_with_a_job(other: dict[str, Any]) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = settle_release(
        held,
        a_portion(held, 3),
        interrupted=True,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )
    world.queue.delete(held.message.receipt_handle)
    refused(world, other, ReasonCode.OTHER_BODY)
    assert (world.manifest("j").epoch, world.manifest("j").next_item) == (1, 3)


def test_an_id_that_is_used_again_is_not_a_job_done() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    refused(world, OTHERS[0], ReasonCode.JOB_ID_REUSED)
    # The same job, sent twice, is done.
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.OVER


def test_a_dead_letter_of_another_body_stays() -> None:
    world = WorkWorld()
    world.hold(JOB)
    refused(world, OTHERS[0], ReasonCode.OTHER_BODY)

    outcomes = [one.outcome for one in redrive(WORKLOAD, world.ports)]

    assert outcomes == [RedriveOutcome.OTHER_BODY]
    assert world.dead_letters.backlog().visible == 1
    assert world.queue.backlog().visible == 0


def test_a_large_other_body_leaves_the_stored_list_alone() -> None:
    world = WorkWorld(sources={f"{BUCKET}list.jsonl": b"1\n2\n"})
    held = world.hold({"job_id": "j", "items_uri": f"{BUCKET}list.jsonl"})
    before = world.objects.get(items_key("j")).data
    # A copy, in which a number is longer, does not fit into a message: its items would lie stored.
    world.send(f'{{"job_id": "j", "items": [{",".join(["1e9"] * 200_000)}]}}')
    for _ in range(60):
        message = world.receive()
        assert message is not None
        world.queue.extend(message.receipt_handle, timedelta(0))

    outcomes = []
    for _ in range(2):
        declined = world.claim(a_slot_id("i-2"))
        assert isinstance(declined, Declined)
        outcomes.append(declined.outcome)

    assert outcomes == [ClaimOutcome.SENT_ANEW, ClaimOutcome.OTHER_BODY]
    assert world.objects.get(items_key("j")).data == before
    assert held.manifest.items == 2


def test_a_copy_with_stored_items_is_the_same_job() -> None:
    world = WorkWorld()
    # With attributes, as a dead letter has, a copy of this does not fit into a message.
    body = {"job_id": "j", "items": ["x" * (MESSAGE_BYTES_MAX - 34)]}
    held = world.hold(body)
    copy = copy_message(held.message, held.job, world.objects, {"a": "x" * 100})
    assert parse_job(copy.body).stored
    release(
        held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports, policy=Policy()
    )
    message = world.receive()
    assert message is not None
    world.queue.delete(message.receipt_handle)
    world.send(copy.body)
    world.clock.advance(timedelta(minutes=6))

    assert world.hold(slot_id=a_slot_id("i-2")).manifest.items == 1


def begun(world: WorkWorld) -> Manifest:
    """Let a worker do half of the job, and leave it."""
    held = world.hold(JOB)
    settle_release(
        held,
        a_portion(held, 3),
        interrupted=True,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )
    world.queue.delete(held.message.receipt_handle)
    return world.manifest("j")


@pytest.mark.parametrize(
    "more",
    [{}, {"params": {"evil": 1}}, {"parent": "i"}, {"body_digest": "0" * 64}, {"stored": True}],
    ids=["alone", "params", "parent", "digest", "flag"],
)
def test_a_sender_s_digest_touches_nothing_of_a_job(more: dict[str, Any]) -> None:
    world = WorkWorld()
    before = begun(world)
    digest = body_digest(parse_job(json.dumps(JOB)))
    world.send({"job_id": "j", "stored": digest, **more})

    declined = world.claim(a_slot_id("i-2"))

    assert isinstance(declined, Declined)
    refused = ClaimOutcome.MALFORMED if more else ClaimOutcome.OTHER_BODY
    code = ReasonCode.NONE if more else ReasonCode.BODY_NOT_STORED
    assert (declined.outcome, declined.code) == (refused, code)
    assert world.manifest("j") == before
    assert world.dead_letters.backlog().visible == 1


def test_the_digest_of_another_body_is_another_body() -> None:
    world = WorkWorld()
    before = begun(world)
    data, other = encode_stored(parse_job(json.dumps(OTHERS[2])))
    world.objects.put(stored_key("j", other.stored or ""), data)

    refused(world, json.loads(encode_job(other)), ReasonCode.OTHER_BODY)

    assert world.manifest("j") == before


def test_a_body_that_is_gone_costs_a_job_only_its_message() -> None:
    world = WorkWorld()
    before = begun(world)
    data, copy = encode_stored(parse_job(json.dumps(JOB)))
    world.send(encode_job(copy))
    declined = world.claim(a_slot_id("i-2"))
    assert isinstance(declined, Declined)
    assert declined.code is ReasonCode.BODY_NOT_STORED
    assert world.manifest("j") == before

    outcomes = [one.outcome for one in redrive(WORKLOAD, world.ports)]
    assert outcomes == [RedriveOutcome.UNREADABLE]

    world.objects.put(stored_key("j", copy.stored or ""), data)
    outcomes = [one.outcome for one in redrive(WORKLOAD, world.ports)]
    assert outcomes == [RedriveOutcome.SENT]
    world.clock.advance(timedelta(minutes=6))
    assert world.hold(slot_id=a_slot_id("i-2")).manifest.next_item == 3


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.lists(values, max_size=4), st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_a_digest_survives_every_copy(values: list[Any], params: dict[str, Any]) -> None:
    job = JobMessage(items=tuple(values), params=params, job_id="j", tenant="t")
    turned = JobMessage(items=tuple(values), params=dict(reversed(params.items())), job_id="k")
    assert body_digest(parse_job(encode_job(job))) == body_digest(job) == body_digest(turned)
    assert body_digest(JobMessage(items=(*values, 0), params=params)) != body_digest(job)


def test_a_job_cancelled_before_its_first_claim_stays_so() -> None:
    world = WorkWorld()
    world.put_manifest(epoch=0, owner="", state=JobState.CANCELLED)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.OVER


BODIES = {
    "a": [f"a{number}" for number in range(6)],
    "b": [f"b{number}" for number in range(6)],
    "c": [f"c{number}" for number in range(9)],
}
#: Nobody gives the job up, however often its worker vanishes.
PATIENT = replace(Policy(), max_losses=10_000, max_failures=10_000, max_failures_on_two=10_000)


class Story:
    """One id under which bodies are sent, while workers come and go."""

    def __init__(self) -> None:
        self.world = WorkWorld(policy=PATIENT)
        self.held: ClaimedJob | None = None
        self.sent: set[str] = set()
        self._workers = 0

    def tell(self, event: str) -> None:
        if event in BODIES:
            self.world.send({"job_id": "j", "items": BODIES[event]})
            self.sent.add(event)
        elif event == "vanish":
            self.held = None
            self.world.clock.advance(timedelta(minutes=10))
        elif event == "claim":
            self.claim()
        elif self.held is not None:
            (self.commit if event == "commit" else self.give_back)(self.held)

    def claim(self) -> None:
        if self.held is None and (message := self.world.receive()):
            self._workers += 1
            claimed = self.world.claim_message(message, a_slot_id(f"i-{self._workers}"))
            self.held = claimed if isinstance(claimed, ClaimedJob) else None

    def commit(self, held: ClaimedJob, count: int = 2) -> None:
        values = settle_items(held.job, self.world.ports)
        first = held.manifest.next_item
        numbers = range(first, min(first + count, len(values)))
        records = [replace(a_record("j", number), item=values[number]) for number in numbers]
        portion = Portion(finished=tuple(Finished(record=record) for record in records))
        slot_id = a_slot_id(held.lease.instance_id)
        with suppress(LeaseLost):
            self.held = commit(
                held.with_items(len(values)), portion, slot_id=slot_id, ports=self.world.ports
            )

    def give_back(self, held: ClaimedJob) -> None:
        slot_id = a_slot_id(held.lease.instance_id)
        worker_row = self.world.worker_row(slot_id.instance_id)
        release(
            held, slot_id=slot_id, worker_row=worker_row, ports=self.world.ports, policy=Policy()
        )
        self.held = None

    def finish(self) -> None:
        """Let whoever is left work everything off."""
        for _ in range(100):
            self.tell("vanish")
            self.claim()
            if self.held is not None:
                self.commit(self.held, 100)


@given(
    st.sampled_from(sorted(BODIES)),
    st.lists(st.sampled_from([*BODIES, "claim", "commit", "give back", "vanish"]), max_size=25),
)
def test_no_order_of_events_mixes_two_bodies(first: str, events: list[str]) -> None:
    story = Story()
    for event in [first, *events]:
        story.tell(event)
    story.finish()

    found = [record.item for record in story.world.records("j")]
    owner = str(found[0])[0]
    assert found == BODIES[owner]
    assert story.world.manifest("j").state is JobState.COMPLETED
    assert story.world.queue.bodies() == []
    letters = {json.loads(body)["items"][0][0] for body in story.world.dead_letters.bodies()}
    assert letters == story.sent - {owner}
