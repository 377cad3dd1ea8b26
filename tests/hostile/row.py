"""Rows that lie: each field of each stored row, and values that nobody honest would write."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from itertools import combinations
from random import Random
from typing import Any

from spindown.cli.demo.bill import read_bill
from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.row import (
    BacklogRow,
    BreakerRow,
    ClaimsRow,
    DecisionRow,
    DoneRow,
    NewerMessage,
    PolicyRow,
    RateRow,
    SpendRow,
)
from spindown.domain.fleet import Launch, LaunchState, Lease, RequeuedJob, Worker
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.wasted_work import WastedWork
from spindown.error import ContractError
from spindown.ledger import Ledger
from spindown.memory import MemoryJobQueue
from spindown.operate.plan import plan_next_tick
from spindown.operate.status import read_status
from spindown.operate.why import explain
from spindown.reason_text import say
from tests.builders import NOW, a_pool, minutes
from tests.control import LAUNCH_VERSION, REGION, WORKLOAD, ZONES, ControlWorld, a_pool_of

FAR = "2099-01-01T00:00:00.000000Z"
PAST = "1970-01-01T00:00:00.000000Z"

#: Values of every kind, and what each kind of field takes for itself in part.
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    5e-324,
    10**9,
    10**15,
    10**30,
    1e308,
    "",
    "{0}[/red]\x1b[31m\n\ud7ff" + "e" * 3000,
    "2026-11-20T00:00:00",
    "1970-01-01T00:00:00.000000Z",
    "2099-01-01T00:00:00.000000Z",
    "9999-12-31T23:59:59.999999Z",
    [],
    [None],
    {"a": "b"},
    {"code": "strikes-silent", "about": {}},
    "[" * 5000,
    "ended",
    "drained",
)

_KINDS: dict[str, type[Any]] = {
    "worker": Worker,
    "lease": Lease,
    "requeued": RequeuedJob,
    "newer": NewerMessage,
    "launch": Launch,
    "pool_cooldowns": PoolCooldown,
    "rate": RateRow,
    "spend": SpendRow,
    "done": DoneRow,
    "backlog": BacklogRow,
    "claims": ClaimsRow,
    "breaker": BreakerRow,
    "policy": PolicyRow,
    "decision": DecisionRow,
}


def a_full_world() -> ControlWorld:
    """Return a world with a row of each kind: one worker at work, 60 jobs that wait."""
    world = ControlWorld(budget=100.0)
    worker = world.launched(3)
    lease = world.claim(worker.instance_id)
    world.dry(*(a_pool_of("g4dn.xlarge", zone) for zone in ZONES))
    world.send(60)
    world.tick(minutes(1))
    world.beat()
    world.put("lease#i-gone#0", **encode(replace(lease, instance_id="i-gone", job_id="job-9")))
    left = replace(lease, job_id="job-7", items=10).requeued(3, world.now)
    left = replace(left, wasted_work=WastedWork(attempts=2, hours=4.0, boot=0.1, dollars=2.0))
    world.put(rows.requeued_sort_key("job-7"), **encode(left))
    newer = NewerMessage(
        message_id="m-1",
        field="message.schema",
        schema=2,
        receipt_handle="none",
        receives=1,
        sent_at=world.now,
        until=world.now + timedelta(hours=11),
    )
    world.put(rows.newer_message_sort_key(newer.message_id), **encode(newer))
    world.put(rows.BREAKER, silent=1, launch_version=LAUNCH_VERSION)
    world.put(rows.throughput_sort_key("T4", 1), count=10.0, hours=1.0, reports=3, lives=2)
    world.put(rows.pool_sort_key(a_pool("g6.xlarge")), count=1.0, hours=10.0)
    for sort in (rows.BOOT_RATE, rows.GAP_RATE, rows.JOB_RATE, rows.CHECKPOINT_RATE):
        world.put(sort, samples=[100.0] * 5)
    launch = next(iter(world.view().launches.values()))
    intent = replace(
        launch, launch_id=f"{WORKLOAD}-9-9", state=LaunchState.INTENDED, instance_ids=()
    )
    world.put(
        rows.launch_sort_key(intent.launch_id), **encode(replace(intent, intended_at=world.now))
    )
    return world


#: A field of a row: the row's sort key, the field's name.
Place = tuple[str, str]


def all_fields() -> list[Place]:
    """Return each field of each live row."""
    partition = a_full_world().partition()
    return [
        (sort, each.name)
        for sort in sorted(partition)
        if (kind := _KINDS.get(sort.partition("#")[0])) is not None
        for each in fields(kind)
    ]


def pairs() -> Iterator[tuple[Place, Place]]:
    """Yield any two fields of one row, for one row of each kind, and each with one of another."""
    fields_of: dict[str, list[Place]] = {}
    for place in all_fields():
        fields_of.setdefault(place[0], []).append(place)
    one_of_each = {sort.partition("#")[0]: found for sort, found in fields_of.items()}
    others = Random(5)
    for found in one_of_each.values():
        yield from combinations(found, 2)
        elsewhere = [place for rows in fields_of.values() if rows != found for place in rows]
        for place in found:
            for other in others.sample(elsewhere, 5):
                yield place, other


def views(world: ControlWorld) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what reads the rows besides the tick."""
    ledger, dead_letters = Ledger(world.table, WORKLOAD), MemoryJobQueue(world.clock, Random(2))
    yield (
        "status",
        lambda: encode(
            read_status(
                WORKLOAD,
                ledger=ledger,
                queues={"": world.queue},
                dead_letters=dead_letters,
                budget_usd=100.0,
                refusal="",
                now=world.now,
            )
        ),
    )
    yield "why", lambda: explain(WORKLOAD, world.ports, last=3)
    yield "plan", lambda: [say(x) for x in plan_next_tick(WORKLOAD, world.ports).plan.notes]
    yield (
        "bill",
        lambda: read_bill(
            WORKLOAD,
            ledger=ledger,
            store=world.objects,
            start=NOW - timedelta(days=1),
            end=world.now,
        ),
    )


def running(world: ControlWorld) -> int:
    """Return how many instances run, whatever rows say."""
    found = world.compute.instances(region=REGION, tags={})
    return sum(instance.state in {"pending", "running"} for instance in found)


def check(*lies: tuple[Place, object]) -> None:
    """Let rows lie, then tick three times and look: nothing raises, nothing runs that may not."""
    world = a_full_world()
    for (sort, name), value in lies:
        # What fails here DynamoDB does not take either: the index is by this field.
        with suppress(ContractError):
            world.put(sort, **{name: value})
    for _ in range(3):
        world.tick(minutes(1))
    for _, look in views(world):
        look()
    # A worker that says it ends is replaced, and that is all that one lie can do.
    assert running(world) <= world.policy.max_workers + len(lies)
