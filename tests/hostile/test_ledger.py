"""A hostile worker and the ledger: its role reaches no other row, and what it forges is none."""

from dataclasses import replace

import pytest

from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.event import InterruptionWarning
from spindown.control.instance_event import react
from spindown.domain.policy import Policy
from spindown.infra.iam.statement import CHANGE_ROWS, READ_EACH
from spindown.port import Key, Write
from tests.builders import minutes
from tests.control import REGION, WORKLOAD, ControlWorld, live_key
from tests.hostile.row import a_full_world, running
from tests.infra.assembly import Assembly, synthesise_once, write_project
from tests.infra.call.resource import TABLE
from tests.infra.policy import Call, read_statements

FAR = "2099-01-01T00:00:00.000000Z"
#: All by which DynamoDB changes rows (Service Authorization Reference, Amazon DynamoDB).
CHANGES = [
    *CHANGE_ROWS,
    "dynamodb:BatchWriteItem",
    "dynamodb:PutItem",
    "dynamodb:PartiQLDelete",
    "dynamodb:PartiQLInsert",
    "dynamodb:PartiQLUpdate",
]
READS = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:BatchGetItem", READ_EACH, "dynamodb:Scan"]
OTHERS = ("w#plain", "c#plain", "h#plain", "d#", "w#richer", "w#", "w#rich#")


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "plain-and-rich", write_project)


def allowed(assembly: Assembly, actions: list[str], partition: str, resource: str) -> set[str]:
    """Return which of the actions a worker of ``rich`` may do to rows of a partition."""
    statements = read_statements(assembly, "WorkloadrichFleetRole")
    calls = [Call(name, resource, {"dynamodb:LeadingKeys": [partition]}) for name in actions]
    return {call.action for call in calls if any(one.allows(call) for one in statements)}


@pytest.mark.parametrize("resource", [TABLE, f"{TABLE}/index/instance"])
def test_a_worker_changes_no_row_but_its_workload_s(assembly: Assembly, resource: str) -> None:
    for partition in (*OTHERS, "c#rich", "h#rich"):
        assert allowed(assembly, CHANGES, partition, resource) == set()
    for partition in OTHERS:
        assert allowed(assembly, READS, partition, resource) == set()


def test_a_worker_role_writes_the_kinds_that_workers_tell(assembly: Assembly) -> None:
    """Each kind of row that a running deployment has, by where it lies."""
    world = a_full_world()
    world.do_items(1)
    writable = {
        sort.partition("#")[0]
        for sort in world.partition()
        if allowed(assembly, CHANGES, live_key(sort).partition.replace(WORKLOAD, "rich"), TABLE)
    }

    assert writable == {"worker", "lease", "requeued", "newer", "done", "claims", "rate"}
    learned = [
        rows.BOOT_RATE,
        rows.GAP_RATE,
        rows.pool_sort_key(next(iter(world.view().pool_cooldowns))),
    ]
    assert not any(rows.is_of_workers(sort) for sort in learned)


def test_rows_forged_among_the_workers_are_none() -> None:
    """A copy of all that is decided, each with a lie: it lies where it is not looked for."""
    worlds = [a_full_world(), a_full_world()]
    honest, attacked = worlds
    lies = {
        "until": FAR,
        "open_until": FAR,
        "dollars": -1e6,
        "state": "intended",
        "count": 50,
        "effective": encode(replace(Policy(), max_workers=1000)),
        "claims_seen": 10**6,
    }
    for sort, row in attacked.partition().items():
        if not rows.is_of_workers(sort):
            place = Key(partition=rows.worker_partition(WORKLOAD), sort=sort)
            attacked.table.write(Write(key=place, set={**row, **lies}))

    decisions = [[world.tick(minutes(1)) for _ in range(5)] for world in worlds]

    assert [d.outcome for d in decisions[1]] == [d.outcome for d in decisions[0]]
    assert [d.requests for d in decisions[1]] == [d.requests for d in decisions[0]]
    assert attacked.view() == honest.view()
    assert running(attacked) == running(honest)


@pytest.mark.parametrize("sort", sorted(filter(rows.is_of_workers, a_full_world().partition())))
def test_no_row_that_workers_delete_buys_more(sort: str) -> None:
    world = a_full_world()
    world.remove(sort)

    for _ in range(20):
        world.tick(minutes(1))

    assert running(world) <= world.policy.max_workers


def test_a_row_of_another_workload_hides_no_notice() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    sort = rows.machine_sort_key(worker.instance_id)
    forged, mine = Key(partition=rows.worker_partition("a-first"), sort=sort), live_key(sort)
    row = world.row(sort) or {}
    assert row
    # Whichever the index tells first.
    for key in (mine, forged, mine):
        world.table.write(Write(key=key, delete=True))
        world.table.write(Write(key=key, set=row))
        notice = InterruptionWarning(instance_id=worker.instance_id, region=REGION, at=world.now)
        reaction = react(notice, world.ports, holder="event")
        assert reaction.workload == WORKLOAD
        world.put(rows.worker_sort_key(worker.instance_id), interrupted_at=None)
    assert world.tick(minutes(1)).outcome in set(Outcome) - {Outcome.LOCKED}


def test_a_worker_s_own_notice_hides_none_of_ec2_s() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.put(rows.worker_sort_key(worker.instance_id), interrupted_at="2100-01-01T00:00:00Z")

    notice = InterruptionWarning(instance_id=worker.instance_id, region=REGION, at=world.now)
    react(notice, world.ports, holder="event")
    world.tick(minutes(1))

    row = world.row(rows.machine_sort_key(worker.instance_id)) or {}
    assert row["noticed_at"]
    assert row["interruption_counted"]
