"""What is finished is cleared away as fast as it comes, of whatever kind it is."""

from dataclasses import replace
from datetime import timedelta

from spindown.contract.codec import encode
from spindown.contract.row import launch_sort_key, machine_sort_key, worker_sort_key
from spindown.domain.fleet import Launch, LaunchState, Worker, WorkerState
from tests.builders import AT_ONCE
from tests.control import ControlWorld

MINUTE = timedelta(minutes=1)


def _end_many(world: ControlWorld, first: Worker, known: Launch, numbers: range) -> None:
    """Have workers end now that were launched ten minutes ago, each by a launch of its own."""
    begun = world.now - 10 * MINUTE
    for n in numbers:
        instance_id, launch_id = f"i-{n:017x}", f"classify-9{n}-1"
        ended = replace(
            first,
            instance_id=instance_id,
            launch_id=launch_id,
            state=WorkerState.ENDED,
            launched_at=begun,
            ended_at=world.now,
        )
        launch = replace(
            known,
            launch_id=launch_id,
            state=LaunchState.LAUNCHED,
            intended_at=begun,
            instance_ids=(instance_id,),
            reserved_usd=0.0,
        )
        world.put(worker_sort_key(instance_id), **encode(ended))
        world.put(machine_sort_key(instance_id), **encode(ended))
        world.put(launch_sort_key(launch_id), **encode(launch))


def test_rows_are_cleared_as_fast_as_a_large_fleet_ends() -> None:
    world = ControlWorld(policy=replace(AT_ONCE, max_workers=1_000))
    first = world.launched()
    (known,) = world.view().launches.values()

    rows = []
    for minute in range(24):
        _end_many(world, first, known, range(100 * minute, 100 * (minute + 1)))
        world.tick(MINUTE)
        rows.append(len(world.partition()))

    # Each stays in sight for a quarter of an hour.
    assert rows[-1] <= rows[18] < 17 * 300 + 50


def test_many_ended_workers_keep_no_other_row_in_sight() -> None:
    world = ControlWorld(policy=replace(AT_ONCE, max_workers=1_000))
    first = world.launched()
    (known,) = world.view().launches.values()
    _end_many(world, first, known, range(1_000))
    # Of one launch all that remains is its own row.
    for sort in (worker_sort_key(f"i-{7:017x}"), machine_sort_key(f"i-{7:017x}")):
        world.remove(sort)

    world.tick(20 * MINUTE)

    assert len(world.view().machines) > 300
    assert "classify-97-1" not in world.view().launches
