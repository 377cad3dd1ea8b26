"""A worker that writes as many rows as it likes stops no tick, and no other workload."""

from collections.abc import Callable
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.event import StateChange
from spindown.control.instance_event import react
from spindown.domain.reason import ReasonCode
from spindown.ledger import Ledger
from spindown.port import Key, Write
from tests.builders import a_lease, a_worker, minutes
from tests.control import REGION, WORKLOAD, ControlWorld

MOST = rows.ROWS_AT_MOST
#: What a flood is made of -> the row of a number.
FLOODS: dict[str, Callable[[int], tuple[str, dict[str, Any]]]] = {
    "of no kind": lambda n: (f"!{n}", {"a": "b"}),
    "of no kind, behind all": lambda n: (f"~{n}", {"a": "b"}),
    "workers": lambda n: (f"worker#i-a{n}", encode(a_worker(f"i-a{n}"))),
    "leases": lambda n: (f"lease#i-a{n}#0", encode(a_lease(f"i-a{n}", job_id=f"j-{n}"))),
    "requeued": lambda n: (
        f"requeued#j-{n}",
        encode(a_lease(job_id=f"j-{n}").left_behind(a_lease().sent_at)),
    ),
    "type-rates": lambda n: (f"rate#type-throughput#t{n}#T4#1", {"count": 1.0, "hours": 1.0}),
    "rates": lambda n: (f"rate#throughput#T4#{n}", {"count": 1.0, "hours": 1.0, "lives": 1}),
}


def flood(world: ControlWorld, kind: str, count: int) -> None:
    for number in range(count):
        sort, row = FLOODS[kind](number)
        place = Key(partition=rows.worker_partition(WORKLOAD), sort=sort)
        world.table.write(Write(key=place, set=row))


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("count", [2_000, MOST + 1], ids=["many", "too many"])
def test_a_flood_of_rows_stops_nobody_s_work(kind: str, count: int) -> None:
    calm, world = ControlWorld(), ControlWorld()
    for each in (calm, world):
        worker = each.launched(3)
        lease = each.claim(worker.instance_id)
    flood(world, kind, count)

    calm.run(3)
    decisions = world.run(3)

    view = world.view()
    assert lease in view.leases
    assert view.workers[worker.instance_id] == calm.view().workers[worker.instance_id]
    # Of the speeds and jobs of its own workload it may lie.
    assert len(view.workers) <= world.policy.max_workers
    assert {d.outcome for d in decisions} <= {Outcome.LAUNCHED, Outcome.ENOUGH}
    most = sum(rows.READ_AT_MOST.values())
    assert len(view.leases) <= 1 + rows.LOST_LEASES_READ
    assert len(view.requeued_jobs) + len(view.rates) <= most
    assert world.calls["table.transact"] < 150


def test_a_flood_is_told_and_removed() -> None:
    world = ControlWorld()
    world.launched()
    flood(world, "of no kind", 2_000)

    decisions = world.run(4)

    told = [[note.code for note in d.notes].count(ReasonCode.ROWS_FLOODED) for d in decisions]
    assert told == [1, 1, 1, 0]
    assert not any(sort.startswith("!") for sort in world.partition())
    assert world.topic.said


@pytest.mark.parametrize("kind", ["of no kind", "of no kind, behind all"])
def test_a_flood_too_large_to_read_is_removed_piece_by_piece(kind: str) -> None:
    world = ControlWorld()
    world.launched()
    flood(world, "requeued", 1_000)
    flood(world, kind, MOST + 1_000)

    decisions = world.run(2)

    assert all(ReasonCode.ROWS_FLOODED in {n.code for n in d.notes} for d in decisions)
    left = [sort for sort in world.partition() if sort.startswith(("!", "~"))]
    assert len(left) < MOST + 1_000 - 900


def test_leases_without_end_stop_no_event_of_their_instance() -> None:
    world = ControlWorld()
    worker = world.launched(3)
    lease = world.claim(worker.instance_id)
    for number in range(1, 1_000):
        forged = encode(a_lease(worker.instance_id, slot=number, job_id=f"j-{number}"))
        world.put(rows.lease_sort_key(worker.instance_id, number), **forged)
    before = world.calls["table.get_each"]
    world.compute.reclaim(worker.instance_id, notice=minutes(0))
    gone = StateChange(
        instance_id=worker.instance_id, region=REGION, at=world.now, state="terminated"
    )

    reaction = react(gone, world.ports, holder="event")

    assert reaction.acted
    assert world.calls["table.get_each"] == before + 1
    assert lease not in Ledger(world.table, WORKLOAD).read().leases


def test_a_flood_of_one_workload_is_not_another_s() -> None:
    world = ControlWorld()
    flood(world, "of no kind", MOST + 1)

    other = Ledger(world.table, "another").read()

    assert not other.is_flooded
    assert other.ignored_rows == ()
