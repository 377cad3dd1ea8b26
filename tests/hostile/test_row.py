"""Rows that workers may write, and hostile ones do: no lie launches or spends what may not be."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindown.contract import row as rows
from spindown.contract.codec import decode, encode
from spindown.contract.decision import Decision
from spindown.contract.row import BOOT_RATE, RateRow
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.memory import PortCall
from spindown.port import LaunchRequest
from tests.builders import a_pool, minutes
from tests.control import AWAY_TEMPLATE, ControlWorld
from tests.hostile.lie import FEW, NOW, live_with
from tests.hostile.row import FAR, PAST, VALUES, Place, all_fields, check, running


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(all_fields()), st.sampled_from(VALUES))
def test_no_value_of_a_row_stops_a_tick(place: Place, value: Any) -> None:
    check((place, value))


_AMOUNTS = st.sampled_from([0.0, 5e-324, 1e-9, 0.5, 1.0, 3.0, 1e9, 1e15])
_TALLIES = st.sampled_from([0, 1, 3, 10**15])
_SAMPLES = st.lists(st.sampled_from([0.0, 5e-324, 1.0, 3.2e9]), max_size=4)
_LEARNED = (
    rows.throughput_sort_key("T4", 1),
    rows.throughput_sort_key("Z", 1),
    rows.throughput_sort_key("Z", 0),
    rows.throughput_sort_key("c7i vCPU", 9999),
    rows.JOB_RATE,
    rows.BOOT_RATE,
    rows.GAP_RATE,
    rows.CHECKPOINT_RATE,
    rows.pool_sort_key(a_pool("g6.xlarge")),
)
_NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    each.name: _TALLIES if each.name in {"reports", "lives"} else _AMOUNTS
    for each in fields(RateRow)
    if each.default is not None
}
_RATE = st.fixed_dictionaries({}, optional=_NUMBERS | {"samples": _SAMPLES})


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(_LEARNED), _RATE, min_size=1, max_size=3))
def test_no_numbers_of_learned_rows_stop_a_tick(found: dict[str, dict[str, Any]]) -> None:
    check(*(((sort, name), value) for sort, row in found.items() for name, value in row.items()))


@pytest.mark.parametrize(
    ("launch", "request_"),
    [
        ({}, {"template": AWAY_TEMPLATE}),
        ({}, {"tags": {"spindown:workload": "another"}}),
        ({"client_token": "evil"}, {"client_token": "evil"}),
        ({"count": 50}, {"count": 50}),
        ({"launch_id": "another-1-1"}, {}),
        ({"intended_at": FAR}, {}),
        ({}, {"capacity_type": CapacityType.ON_DEMAND}),
        ({"request": "[" * 5000}, {}),
    ],
)
def test_only_a_request_of_our_own_is_made_again(
    launch: dict[str, Any], request_: dict[str, Any]
) -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.empty_the_queue()
    (intent,) = world.view().launches.values()
    request = decode(LaunchRequest, json.loads(intent.request))
    stored = encode(intent) | {"request": json.dumps(encode(replace(request, **request_)))}
    world.remove(rows.launch_sort_key(intent.launch_id))
    row = stored | encode(launch)
    world.put(rows.launch_sort_key(row["launch_id"]), **row)
    asked: list[PortCall] = []

    def watch(call: PortCall, proceed: Any) -> Any:
        asked.extend([call] if call.method == "launch" else [])
        return proceed()

    world.interfere = watch
    world.run(3)

    assert (asked, running(world)) == ([], 0)


@pytest.mark.parametrize(
    "lie",
    [
        {"interrupted_at": FAR},
        {"state": "ended"},
        {"state": "ended", "ended_at": "1970-01-02T00:00:00.000000Z"},
        {"state": "drained"},
        {"accrued_until": FAR},
        {"slots": "many"},
        {"region": "nowhere-1"},
        {"price_per_hour": 0.0},
        {"launched_at": FAR},
    ],
)
def test_workers_that_lie_are_not_replaced_without_end(lie: dict[str, Any]) -> None:
    world = ControlWorld(budget=20.0)
    world.send(200)
    lied: set[str] = set()
    most = 0
    for _ in range(60):
        world.tick(minutes(1))
        for sort in [x for x in world.partition() if x.startswith(rows.WORKER) and x not in lied]:
            lied.add(sort)
            world.put(sort, state=WorkerState.BUSY, checked_in_at=world.now, claimed_at=world.now)
            world.put(sort, **({"heartbeat_at": FAR} | lie))
        most = max(most, running(world))

    assert most <= world.policy.max_workers


@pytest.mark.parametrize("lie", FEW, ids=str)
def test_a_worker_that_lies_each_minute_is_charged(lie: dict[str, Any]) -> None:
    found = live_with(lie, hours=1)

    assert found.billed > 0
    assert found.booked >= 0.9 * found.billed
    assert found.most <= ControlWorld().policy.max_workers


@pytest.mark.parametrize(
    "lie",
    [
        {"noticed_at": NOW, "state": "drained"},
        {"interrupted_at": NOW, "state": "drained"},
        {"noticed_at": NOW, "accrued_until": NOW},
        {"gone_at": PAST, "state": "drained"},
        {"heartbeat_at": PAST, "checked_in_at": PAST, "state": "drained"},
    ],
    ids=str,
)
def test_a_worker_that_tells_two_lies_is_charged(lie: dict[str, Any]) -> None:
    found = live_with(lie, hours=1)

    assert found.booked >= 0.9 * found.billed > 0
    assert found.most <= ControlWorld().policy.max_workers


@pytest.mark.parametrize("ahead", [0, 3 * 60, 10**6])
def test_a_clock_ahead_teaches_no_longer_boot_than_there_was(ahead: int) -> None:
    world = ControlWorld()
    worker = world.launched(5)
    told = world.now + minutes(ahead)
    signs = {"checked_in_at": told, "first_item_at": told}
    world.put(rows.worker_sort_key(worker.instance_id), **signs)
    world.claim(worker.instance_id)

    decisions: list[Decision] = world.run(10, beats=True)

    samples = world.view().rates[BOOT_RATE].samples if BOOT_RATE in world.view().rates else ()
    assert list(samples) == ([120.0] if ahead == 0 else [])
    assert decisions[-1].bad_rows == ()
