"""A plan is a value: what it says is what the next tick does, and making it touches nothing."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spindown.contract import tag
from spindown.contract.codec import encode
from spindown.contract.decision import ActionRecord, Decision
from spindown.contract.row import (
    CALLS_PER_MINUTE,
    DEPLOYMENT_PARTITION,
    budget_sort_key,
    calls_sort_key,
    lease_sort_key,
    minute_of,
    requeued_sort_key,
    throughput_sort_key,
)
from spindown.control.plan.action import ActionKind, Replay
from spindown.control.plan.launch_need import launch_need_of
from spindown.control.plan.launch_outcome import pools_of
from spindown.control.plan.launch_request import LaunchWorkers
from spindown.control.policy_edit import edit_policy
from spindown.control.tick import make_plan, observe
from spindown.domain.fleet import RequeuedJob, WorkerState
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import JobNeeds, JobType, WhenSpent
from spindown.domain.reason import ReasonCode
from spindown.error import SpindownError, StaleHandle
from spindown.job.shape_queue import backlogs
from spindown.memory import PortCall
from spindown.operate.plan import PlannedTick, plan_next_tick
from spindown.port import Key, LaunchRequest, Write
from tests.builders import AT_ONCE, a_type
from tests.control import PRICES, REGION, WORKLOAD, ZONES, ControlWorld, every_spot_pool
from tests.reading import only_reading

_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


def a_world(
    *,
    budget: float | None = None,
    away: tuple[tuple[str, float], ...] = (),
    is_measured: bool = False,
    **policy: Any,
) -> ControlWorld:
    """Return a world; a measured one knows how many items an hour each GPU does."""
    world = ControlWorld(policy=replace(AT_ONCE, **policy), budget=budget, away=away)
    for gpu in ("T4", "L4", "A10G") if is_measured else ():
        samples = {"count": 10_000.0, "hours": 100.0, "reports": 100, "lives": 100}
        world.put(throughput_sort_key(gpu, 1.0), **samples)
    return world


def _nth(world: ControlWorld, number: int, *states: WorkerState) -> str | None:
    found = sorted(worker.instance_id for worker in world.workers(*states))
    return found[number % len(found)] if found else None


def _boot(world: ControlWorld, number: int) -> None:
    instance_id = _nth(world, number, WorkerState.BOOTING)
    if instance_id is not None:
        world.check_in(instance_id)


def _work(world: ControlWorld, number: int) -> None:
    """Let a worker take a job that was sent some hours ago."""
    instance_id = _nth(world, number, WorkerState.IDLE)
    if instance_id is None:
        return
    queue = world.queue_of(world.view().workers[instance_id].shape)
    if any(waits.visible for waits in backlogs([queue])):
        world.claim(instance_id, f"job-{instance_id}-{number}")
        sent_at = world.now - (0, 0.5, 3, 9, 9, 20)[number] * _HOUR
        items = {"sent_at": sent_at, "items": 1000, "items_done": (0, 100, 900)[number % 3]}
        world.put(lease_sort_key(instance_id, 0), **encode(items))


def _run_a_job(world: ControlWorld, number: int) -> None:
    """Let a job arrive, a worker come up for it if none is there, and take it."""
    world.send()
    if _nth(world, number, WorkerState.IDLE) is None:
        world.tick()
        world.clock.advance(2 * _MINUTE)
        _boot(world, number)
    _work(world, number)


def _beat(world: ControlWorld, _: int) -> None:
    with suppress(StaleHandle):
        world.beat()


def _finish(world: ControlWorld, number: int) -> None:
    leases = world.view().leases
    with suppress(SpindownError):
        if leases:
            world.finish(leases[number % len(leases)])


def _drain(world: ControlWorld, number: int) -> None:
    instance_id = _nth(world, number, WorkerState.IDLE)
    if instance_id is not None:
        world.change(instance_id, state=WorkerState.DRAINED)


def _alive(world: ControlWorld) -> list[str]:
    return sorted(x.instance_id for x in world.compute.instances(region=REGION, tags={}))


def _die(world: ControlWorld, number: int) -> None:
    if alive := _alive(world):
        world.compute.power_off(alive[number % len(alive)])


def _reclaim(world: ControlWorld, number: int) -> None:
    spot = {w.instance_id for w in world.workers() if w.capacity_type is CapacityType.SPOT}
    if alive := sorted(spot.intersection(_alive(world))):
        world.compute.reclaim(alive[number % len(alive)])


def _edit(world: ControlWorld, number: int) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"max_workers": 1},
        {"max_workers": 5},
        {"warm_workers": 1},
        {"finish_within": "1h"},
        {"max_lifetime": "10m"},
        {"max_price_per_hour": 0.3},
    )
    with suppress(SpindownError):
        edit_policy(WORKLOAD, changes[number], settings=world.settings, table=world.table)


def _requeue(world: ControlWorld, number: int) -> None:
    sent_at = world.now - (0, 2, 9)[number % 3] * _HOUR
    job = RequeuedJob(
        job_id=f"q{number}", sent_at=sent_at, items=100, items_done=15 * number, at=world.now
    )
    world.put(requeued_sort_key(job.job_id), **encode(job))


def _spend(world: ControlWorld, number: int) -> None:
    """Let other workloads reserve some of the month."""
    key = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now))
    world.table.write(Write(key=key, add={"committed": (0.1, 0.2, 0.5, 1.0, 3.0, 90.0)[number]}))


def _call(world: ControlWorld, number: int) -> None:
    """Let other workloads use up EC2's calls of this minute, but for a few."""
    key = Key(partition=DEPLOYMENT_PARTITION, sort=calls_sort_key(REGION))
    made = {"minute": minute_of(world.now), "count": CALLS_PER_MINUTE - number}
    world.table.write(Write(key=key, set=made))


def _price(world: ControlWorld, number: int) -> None:
    name = sorted(PRICES)[number % 3]
    world.market.move_spot_price(name, ZONES[number % 2], PRICES[name][1] * (1.0 + 0.04 * number))


def _damage(world: ControlWorld, number: int) -> None:
    rows = sorted(sort for sort in world.partition() if sort != "lock")
    if rows:
        row = rows[number * len(rows) // 6]
        names = sorted(world.partition()[row])
        world.put(row, **{names[number % len(names)]: ("bad", -1, [], {}, "bad", None)[number]})


#: What may happen between two ticks, by name.
ACTS: dict[str, Callable[[ControlWorld, int], object]] = {
    "send": lambda world, number: world.send((1, 2, 5, 20, 60, 400)[number]),
    "boot": _boot,
    "work": _work,
    "finish": _finish,
    "drain": _drain,
    "die": _die,
    "reclaim": _reclaim,
    "job": _run_a_job,
    "beat": _beat,
    "wait": lambda world, number: world.clock.advance((1, 3, 7, 20, 45, 90)[number] * _MINUTE),
    "dry": lambda world, number: world.dry(*every_spot_pool()[: number + 1]),
    "lost": lambda world, n: world.compute.lose_next_answer(is_carried_out=n % 2 == 0),
    "edit": _edit,
    "requeue": _requeue,
    "spend": _spend,
    "call": _call,
    "price": _price,
    "damage": _damage,
    "tick": lambda world, _: world.tick(_MINUTE),
}
#: Asked for by jobs of a world with types, in turn; the last one for more than a machine has.
_ASKS: tuple[dict[str, Any], ...] = (
    {"type": "small"},
    {"type": "large"},
    {},
    {"type": "small", "requirements": {"vcpus": 8}},
    {"requirements": {"memory_gib": 48}},
    {"requirements": {"memory_gib": 900}},
)
_TYPES = (
    JobType(name="small", needs=JobNeeds(memory_gib=8)),
    JobType(name="large", needs=JobNeeds(memory_gib=48)),
)


def _ask(world: ControlWorld, number: int) -> None:
    """Send some jobs that state what they need, and have them routed."""
    for count in range(1 + 7 * (number % 2)):
        world.ask(f"t{number}-{count}-{world.ticks}", **_ASKS[number])
    world.route()


def _retype(world: ControlWorld, number: int) -> None:
    """Let people declare other types."""
    types = (_TYPES, _TYPES[:1], (replace(_TYPES[0], needs=JobNeeds(memory_gib=48)), _TYPES[1]))
    world.change_policy(types=types[number % 3])


#: What may happen in a world with types besides.
TYPED_ACTS = {**ACTS, "ask": _ask, "retype": _retype}
#: A story is mostly of a queue, its workers and ticks.
_OFTEN = ("send", "send", "boot", "work", *4 * ("job",), *3 * ("beat",), *4 * ("tick",))

_STORIES = st.lists(
    st.tuples(st.sampled_from([*sorted(ACTS), *_OFTEN]), st.integers(0, 5)), max_size=20
)
_WORLDS = st.builds(
    lambda most, warm, hours, **world: a_world(
        max_workers=most,
        warm_workers=min(warm, most),
        is_measured=hours is not None,
        **({} if hours is None else {"finish_within": hours * _HOUR}),
        **world,
    ),
    most=st.integers(1, 10),
    warm=st.integers(0, 1),
    hours=st.sampled_from([None, None, 3, 10, 10, 20]),
    budget=st.sampled_from([None, None, 100.0, 8.0, 1.0, 0.3]),
    when_spent=st.sampled_from(WhenSpent),
    away=st.sampled_from([(), (), (("g4dn.xlarge", 0.10),), (("g5.xlarge", 0.2),)]),
    max_dollars_per_hour=st.sampled_from([None, None, None, 0.5, 0.88, 1.5, 2.5]),
    start_within=st.sampled_from([_MINUTE, 6 * _MINUTE, 30 * _MINUTE]),
    band=st.sampled_from([0.0, 0.05, 0.05, 0.5, 3.0]),
    scale_up_threshold=st.sampled_from([1, 1, 5]),
    max_requests_per_tick=st.sampled_from([1, 10, 10]),
    mib_per_item_estimate=st.just(0.01),
)


@dataclass(frozen=True)
class Ec2Call:
    """A launch that EC2 was asked for, and whether it gave all of it."""

    request: LaunchRequest
    is_given: bool

    @property
    def launch_id(self) -> str:
        return self.request.tags[tag.LAUNCH]


def watch(world: ControlWorld) -> list[Ec2Call]:
    """Return a list to which every launch is added that EC2 is asked for."""
    calls: list[Ec2Call] = []

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method != "launch":
            return proceed()
        request = call.args[0] if call.args else call.kwargs["request"]
        try:
            answer = proceed()
        except SpindownError:
            calls.append(Ec2Call(request, is_given=False))
            raise
        is_given = len(answer.instances) == request.count and not answer.refusals
        calls.append(Ec2Call(request, is_given=is_given))
        return answer

    world.interfere = listen
    return calls


#: What comes of these is for EC2 to say.
_ANSWERED = frozenset({ActionKind.LAUNCH, ActionKind.REPLAY})
_Requests = list[tuple[str, int, tuple[Pool, ...]]]


def planned(made: PlannedTick) -> _Requests:
    """Return the requests of a plan in their order: what is asked again, then the launches."""
    again = [action for action in made.plan.actions if isinstance(action, Replay)]
    return [
        *((action.subject, action.request.count, pools_of(action.request)) for action in again),
        *(("new", each.count, each.pools) for launch in made.launches for each in launch.requests),
    ]


def asked(made: PlannedTick, calls: list[Ec2Call]) -> _Requests:
    """Return what EC2 was asked for, in the same words."""
    again = {action.subject for action in made.plan.actions if isinstance(action, Replay)}
    return [
        (
            call.launch_id if call.launch_id in again else "new",
            call.request.count,
            pools_of(call.request),
        )
        for call in calls
    ]


def surely(actions: Iterable[ActionRecord]) -> list[ActionRecord]:
    return [action for action in actions if action.kind not in _ANSWERED]


def check(world: ControlWorld) -> tuple[PlannedTick, Decision]:
    """Plan, then tick: assert that the tick does what the plan says, until EC2 refuses."""
    made = plan_next_tick(WORKLOAD, only_reading(world.ports))
    calls = watch(world)
    decision = world.tick()

    assert [note for note in made.plan.notes if note not in decision.notes] == []
    refused = next((number for number, call in enumerate(calls) if not call.is_given), None)
    if refused is None:
        assert list(made.actions) == list(decision.actions)
        assert planned(made) == asked(made, calls)
    else:
        assert surely(made.actions) == surely(decision.actions)
        assert planned(made)[: refused + 1] == asked(made, calls)[: refused + 1]
    return made, decision


@settings(max_examples=60, deadline=None)
@given(world=_WORLDS, story=_STORIES)
def test_the_next_tick_does_what_the_plan_says(
    world: ControlWorld, story: list[tuple[str, int]]
) -> None:
    for act, number in story:
        ACTS[act](world, number)

    check(world)


@settings(max_examples=60, deadline=None)
@given(
    world=_WORLDS,
    story=st.lists(
        st.tuples(
            st.sampled_from([*sorted(TYPED_ACTS), *8 * ("ask",), *_OFTEN]), st.integers(0, 5)
        ),
        max_size=20,
    ),
)
def test_with_shapes_too_a_tick_does_what_the_plan_says(
    world: ControlWorld, story: list[tuple[str, int]]
) -> None:
    most = JobNeeds(memory_gib=1000, vcpus=64)
    world.market.offer(
        a_type("g4dn.2xlarge", memory_mib=64 * 1024),
        region=REGION,
        zones=ZONES,
        on_demand=0.9,
        spot=0.4,
    )
    world.change_policy(types=_TYPES, requirements_at_most=most)
    for act, number in story:
        TYPED_ACTS[act](world, number)

    check(world)


def counts(made: PlannedTick) -> list[int]:
    return [launch.count for launch in made.launches]


def test_the_dearest_offer_of_the_band_decides_the_count() -> None:
    world = a_world(max_dollars_per_hour=0.88, max_workers=10)
    for name, (_, spot) in PRICES.items():
        world.market.move_spot_price(name, ZONES[1], spot * 1.04)
    world.send(400)

    made, _ = check(world)

    # 0.88 USD/h have room for four at the first price of the band, and for three at its dearest.
    (launch,) = made.launches
    assert (launch.choice.sizing.allowed, launch.requests[0].count) == (4, 3)


def test_the_charges_of_the_same_tick_leave_the_budget_first() -> None:
    world = a_world(warm_workers=1, max_workers=1, budget=0.5)
    world.tick()
    (worker,) = world.workers()
    world.clock.advance(timedelta(minutes=150))
    world.compute.power_off(worker.instance_id)

    made, decision = check(world)

    assert counts(made) == []
    assert made.plan.choice.blocked_by.code is ReasonCode.BUDGET_USED_UP
    assert not decision.requests


def an_urgent_job_and_others(**policy: Any) -> ControlWorld:
    """Return a world in which a job must leave spot, and other jobs wait."""
    world = a_world(
        is_measured=True, finish_within=10.1 * _HOUR, start_within=6 * _MINUTE, **policy
    )
    world.send()
    world.tick()
    (worker,) = world.workers()
    world.clock.advance(2 * _MINUTE)
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id)
    sent_at = world.now - 0.1 * _HOUR
    items = {"sent_at": sent_at, "items": 1000, "items_done": 0, "first_item": 0}
    world.put(lease_sort_key(worker.instance_id, 0), **encode(items))
    world.send(5)
    return world


def test_a_takeover_has_what_the_other_launch_leaves() -> None:
    world = an_urgent_job_and_others(max_workers=2)

    made, _ = check(world)

    assert counts(made) == [1, 0]
    assert made.launches[1].ends_early.code is ReasonCode.MAX_WORKERS


def test_a_takeover_has_the_dollars_that_others_leave() -> None:
    world = an_urgent_job_and_others(max_workers=6, max_dollars_per_hour=0.9)

    made, _ = check(world)

    # A worker on spot at 0.22 USD/h, and one on demand at 0.54: no further one fits below 0.9.
    assert counts(made) == [1, 0]
    assert made.launches[1].ends_early.code is ReasonCode.FLEET_AT_CEILING


def test_a_refused_launch_starves_no_takeover() -> None:
    world = an_urgent_job_and_others(max_workers=2)
    world.dry(*every_spot_pool())

    made, decision = check(world)

    assert counts(made) == [1, 0]
    (taken,) = [pool for each in decision.requests for pool in each.instances.values()]
    assert taken.endswith("/on-demand")


def test_calls_that_are_used_up_in_one_region_are_told() -> None:
    world = a_world(away=(("g5.xlarge", 0.44),))
    _call(world, 0)
    world.send()

    made, decision = check(world)

    assert counts(made) == [0]
    assert made.launches[0].ends_early.code is ReasonCode.CALLS_USED_UP
    assert decision.summary.why.code is ReasonCode.CALLS_USED_UP


@settings(max_examples=20, deadline=None)
@given(world=_WORLDS, story=_STORIES)
def test_one_observation_gives_one_plan_and_no_call(
    world: ControlWorld, story: list[tuple[str, int]]
) -> None:
    for act, number in story:
        ACTS[act](world, number)
    seen, early = observe(WORKLOAD, world.ports, now=world.now, source="test")
    before = world.calls.copy()

    first = make_plan(seen, early)
    second = make_plan(seen)

    assert [replace_choice(a) for a in first.actions] == [replace_choice(a) for a in second.actions]
    assert (first.fleet, first.notes) == (second.fleet, second.notes)
    assert first.choice.sizing == second.choice.sizing
    assert world.calls == before


@settings(max_examples=50, deadline=None)
@given(world=_WORLDS, story=_STORIES)
def test_the_fleet_is_sized_as_if_it_were_sized_anew(
    world: ControlWorld, story: list[tuple[str, int]]
) -> None:
    for act, number in story:
        ACTS[act](world, number)

    _, early = observe(WORKLOAD, world.ports, now=world.now, source="test")

    assert early.missing[0] == launch_need_of(early.draft)


def replace_choice(action: object) -> object:
    """Return an action so that two lists of the same candidates compare as equal."""
    if not isinstance(action, LaunchWorkers) or action.choice.candidates is None:
        return action
    listed = action.choice.candidates.top(50)
    return (replace(action, choice=replace(action.choice, candidates=None)), listed)
