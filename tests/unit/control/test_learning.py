"""What workers report and ticks see changes what is bought next, and how long workers stay."""

from datetime import timedelta
from random import Random

import pytest

from spindown.contract.row import (
    BOOT_PHASE,
    BOOT_RATE,
    CHECK_IN_RATE,
    GAP_RATE,
    pool_sort_key,
    worker_sort_key,
)
from spindown.control.policy_edit import edit_policy
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import Pool
from spindown.job.policy_in_force import read_standing
from spindown.job.work_done import Progress, Reporter
from spindown.ledger.knowledge import read_interruption_rate
from spindown.memory import MemoryInputSource
from spindown.operate.plan import plan_next_tick
from spindown.port import WorkPorts
from tests.builders import a_worker, minutes
from tests.control import DEPLOYMENT, WORKLOAD, ControlWorld, a_pool_of, with_policy

T4, A10G = a_worker("i-t4"), a_worker("i-a10g", gpu_name="A10G")


def reports(world: ControlWorld, worker_index: int, *, items: int, busy: timedelta) -> None:
    """Let a worker report a job, as it does when it commits."""
    worker = (T4, A10G)[worker_index]
    ports = WorkPorts(
        clock=world.clock,
        random=Random(1),
        pause=lambda _: None,
        queue=world.queue,
        dead_letters=world.queue,
        objects=world.objects,
        inputs=MemoryInputSource({}, []),
        table=world.table,
        metrics=world.metrics,
    )
    reporter = Reporter(deployment=DEPLOYMENT, workload=WORKLOAD, worker=worker, ports=ports)
    reporter.report(Progress(items_ok=items, busy=busy, job_items=items, job_busy=busy))
    world.clock.advance(minutes(2))


def first(world: ControlWorld) -> tuple[str, bool]:
    best = plan_next_tick(WORKLOAD, world.ports, jobs=20).candidates.best
    assert best is not None
    return best.offer.instance_type.gpu_name, best.measured


def test_after_3_workers_on_each_of_2_gpus_ranking_follows_them() -> None:
    world = ControlWorld()
    before = first(world)
    for _ in range(3):
        reports(world, 0, items=100, busy=minutes(10))
        reports(world, 1, items=100, busy=minutes(1))

    # At 0.20 an hour a T4 does 600 items, at 0.45 an A10G 6,000.
    assert before == ("T4", False)
    assert first(world) == ("A10G", True)


def test_an_unreadable_pool_row_keeps_no_worker_from_work() -> None:
    world = ControlWorld()
    unknown = read_interruption_rate(world.table, WORKLOAD, T4)
    world.put(pool_sort_key(T4.pool), count="many", hours=1.0)

    assert read_interruption_rate(world.table, WORKLOAD, T4) == unknown > 0.0

    world.put(pool_sort_key(T4.pool), count=1.0, hours=1.0)
    assert read_interruption_rate(world.table, WORKLOAD, T4) > unknown


def test_one_job_that_hung_does_not_turn_the_ranking_around() -> None:
    world = ControlWorld()
    for _ in range(5):
        reports(world, 0, items=100, busy=minutes(10))
        reports(world, 1, items=100, busy=minutes(1))
    reports(world, 1, items=100, busy=timedelta(hours=3))

    assert first(world) == ("A10G", True)


def test_a_pool_that_takes_a_worker_back_sinks_in_the_list() -> None:
    world = with_policy(pool_cooldown=timedelta(seconds=1), pool_cooldown_at_most=minutes(1))
    worker = world.launched()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(3)

    def cost(pool: Pool) -> float:
        listed = plan_next_tick(WORKLOAD, world.ports, jobs=20).candidates
        return next(c.cost_per_item for c in listed if c.offer.pool == pool)

    assert cost(a_pool_of("g4dn.xlarge", "us-west-2a")) > cost(
        a_pool_of("g4dn.xlarge", "us-west-2b")
    )


def test_the_idle_timeout_follows_learned_boots_and_gaps() -> None:
    world = with_policy(idle_timeout=None)
    worker = world.launched()
    world.tick(minutes(1))
    (boot,) = world.view().rates[BOOT_RATE].samples
    # Work comes again a minute after there is none, six times over.
    for _ in range(6):
        lease = world.claim(worker.instance_id)
        world.beat()
        world.tick(minutes(1))
        world.finish(lease)
        world.tick(minutes(1))
        world.beat()
        world.send()
        world.tick(minutes(1))
    gaps = world.view().rates[GAP_RATE].samples

    assert boot == 120.0
    assert gaps[-5:] == (60.0,) * 5
    # A gap of a minute is cheaper to wait for than a boot of two.
    standing = read_standing(world.table, WORKLOAD)
    assert standing.idle_timeout == pytest.approx(minutes(1), abs=timedelta(seconds=1))


def test_a_boot_lasts_until_code_has_its_first_item() -> None:
    world = with_policy()
    worker = world.launched()
    world.put(worker_sort_key(worker.instance_id), first_item_at=None)
    world.tick(minutes(1))
    before = world.view().rates
    world.beat()
    world.put(worker_sort_key(worker.instance_id), first_item_at=world.now)
    world.tick(minutes(1))

    assert BOOT_RATE not in before
    assert before[CHECK_IN_RATE].samples == (120.0,)
    assert world.view().rates[BOOT_RATE].samples == (180.0,)


def test_the_phases_of_a_boot_are_learned_once() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.tick(minutes(1))
    told = {"install": 90.0, "first-item": 4.0, "dance": 5.0, "image": 1e12}
    sort = worker_sort_key(worker.instance_id)
    world.put(sort, first_item_at=world.now + minutes(0.5), boot_phases=told)
    for _ in range(3):
        world.beat()
        world.tick(minutes(1))

    rates = world.view().rates
    lifetime = with_policy().policy.max_lifetime.total_seconds()
    assert rates[f"{BOOT_PHASE}install"].samples == (90.0,)
    assert rates[f"{BOOT_PHASE}first-item"].samples == (4.0,)
    assert rates[f"{BOOT_PHASE}image"].samples == (lifetime,)
    assert not [sort for sort in rates if "dance" in sort]


@pytest.mark.parametrize("hours", [1, 6])
def test_a_worker_whose_clock_is_ahead_teaches_no_long_boot(hours: int) -> None:
    world = ControlWorld()
    worker = world.launched()
    ahead = world.now + timedelta(hours=hours)
    signs = dict.fromkeys(("checked_in_at", "first_item_at", "heartbeat_at"), ahead)
    world.put(worker_sort_key(worker.instance_id), **signs)
    world.claim(worker.instance_id)

    world.run(hours * 60 + 10, beats=True)

    assert world.workers(WorkerState.BUSY)
    assert BOOT_RATE not in world.view().rates


@pytest.mark.parametrize(("gap", "told"), [(63.0, 60.0), (70.0, 70.0)])
def test_workers_hear_a_new_idle_timeout_when_it_moves_a_tenth(gap: float, told: float) -> None:
    world = with_policy(idle_timeout=None)
    world.put(BOOT_RATE, samples=(120.0,) * 9)
    world.put(GAP_RATE, samples=(60.0,) * 9)
    world.tick()

    world.put(GAP_RATE, samples=(gap,) * 9)
    world.tick(minutes(1))

    assert read_standing(world.table, WORKLOAD).idle_timeout == timedelta(seconds=told)


def test_a_fixed_idle_timeout_is_told_as_it_is_edited() -> None:
    world = with_policy(idle_timeout=timedelta(seconds=60))
    world.tick()

    edit_policy(WORKLOAD, {"idle_timeout": "63s"}, settings=world.settings, table=world.table)
    world.tick(minutes(1))

    assert read_standing(world.table, WORKLOAD).idle_timeout == timedelta(seconds=63)


def test_nobody_ends_a_worker_that_waits_as_long_as_it_was_told() -> None:
    # Jobs of an hour: a boot is worth 30 min.
    world = with_policy(
        idle_timeout=None,
        scale_down_delay=timedelta(0),
        throughput_estimate=1.0,
        items_per_job_estimate=1.0,
    )
    world.put(BOOT_RATE, samples=(3600.0,) * 9)
    world.put(GAP_RATE, samples=(1200.0,) * 9)
    world.launched()
    world.empty_the_queue()

    # A tenth less has been learned since, at which nobody tells the worker anything.
    world.put(GAP_RATE, samples=(1090.0,) * 9)
    world.clock.advance(timedelta(seconds=1160))
    world.beat()
    decision = world.tick()
    told = read_standing(world.table, WORKLOAD).idle_timeout

    assert (told, decision.condemned) == (timedelta(seconds=1200), ())
    assert world.metric("IdleBeyondExpectation") == 0
