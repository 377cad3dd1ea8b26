"""A plan is a value: what it says is what the next tick does, and making it touches nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from spindown.contract.decision import ActionRecord, Decision
from spindown.control.plan import ActionKind, LaunchWorkers
from spindown.control.size import size_fleet
from spindown.control.tick import make_plan, observe
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.operate.preview import Preview, preview
from tests.control import WORKLOAD, ControlWorld, every_spot_pool
from tests.reading import only_reading

_MINUTE = timedelta(minutes=1)


def _nth(world: ControlWorld, number: int, *states: WorkerState) -> str | None:
    found = sorted(worker.instance_id for worker in world.workers(*states))
    return found[number % len(found)] if found else None


def _boot(world: ControlWorld, number: int) -> None:
    instance_id = _nth(world, number, WorkerState.BOOTING)
    if instance_id is not None:
        world.check_in(instance_id)


def _work(world: ControlWorld, number: int) -> None:
    instance_id = _nth(world, number, WorkerState.IDLE)
    if instance_id is not None and world.queue.backlog().visible:
        world.claim(instance_id, f"job-{instance_id}-{number}")


def _die(world: ControlWorld, number: int) -> None:
    running = [w for w in world.workers() if w.state is not WorkerState.ENDED]
    alive = {i.instance_id for i in world.compute.instances(region="us-west-2", tags={})}
    if running and running[number % len(running)].instance_id in alive:
        world.compute.power_off(running[number % len(running)].instance_id)


def _lose_an_answer(world: ControlWorld, number: int) -> None:
    world.compute.lose_next_answer(is_carried_out=number % 2 == 0)


#: What may happen between two ticks, by name.
ACTS: dict[str, Callable[[ControlWorld, int], object]] = {
    "send": lambda world, number: world.send(1 + number),
    "boot": _boot,
    "work": _work,
    "die": _die,
    "beat": lambda world, number: world.beat(),
    "wait": lambda world, number: world.clock.advance((1 + number) * 7 * _MINUTE),
    "dry": lambda world, number: world.dry(*every_spot_pool()[: number + 1]),
    "lost": _lose_an_answer,
    "tick": lambda world, number: world.tick(_MINUTE),
}

_STORIES = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 5)), max_size=14)
_WORLDS = st.builds(
    lambda most, warm: ControlWorld(
        policy=replace(Policy(), max_workers=most, warm_workers=min(warm, most)), budget=100.0
    ),
    st.integers(1, 4),
    st.integers(0, 1),
)


#: What comes of these is for EC2 to say.
_ANSWERED = frozenset({ActionKind.LAUNCH, ActionKind.REPLAY})


def told(made: Preview) -> list[ActionRecord]:
    return [action for action in made.actions if action.kind not in _ANSWERED]


def done(decision: Decision) -> list[ActionRecord]:
    return [action for action in decision.actions if action.kind not in _ANSWERED]


@settings(max_examples=40, deadline=None)
@given(world=_WORLDS, story=_STORIES)
def test_the_next_tick_does_what_the_plan_says(
    world: ControlWorld, story: list[tuple[str, int]]
) -> None:
    for act, number in story:
        ACTS[act](world, number)

    made = preview(WORKLOAD, only_reading(world.ports))
    decision = world.tick()

    assert told(made) == done(decision)
    launches = [each for each in made.plan.actions if isinstance(each, LaunchWorkers)]
    fresh = [each for each in decision.requests if each.outcome != "adopted"]
    first = next((each for each in fresh if each.launch_id.split("-")[-1] == "1"), None)
    if not launches:
        assert not [each for each in fresh if each.outcome == "launched"]
    elif first is not None and first.outcome == "launched":
        best = made.candidates.best
        assert best is not None
        assert str(best.offer.pool) in first.pools
        # The first band is asked for as many as are wanted, until EC2 refuses something.
        assert len(first.instances) <= launches[0].choice.sizing.wanted


@settings(max_examples=20, deadline=None)
@given(world=_WORLDS, story=_STORIES)
def test_one_observation_gives_one_plan_and_no_call(
    world: ControlWorld, story: list[tuple[str, int]]
) -> None:
    for act, number in story:
        ACTS[act](world, number)
    settled, seen = observe(WORKLOAD, world.ports, now=world.now, source="test")
    before = world.calls.copy()

    first = make_plan(seen, settled)
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

    settled, _ = observe(WORKLOAD, world.ports, now=world.now, source="test")

    assert settled.need == size_fleet(settled.draft)


def replace_choice(action: object) -> object:
    """Return an action so that two lists of the same candidates compare as equal."""
    if not isinstance(action, LaunchWorkers) or action.choice.candidates is None:
        return action
    listed = action.choice.candidates.top(50)
    return (replace(action, choice=replace(action.choice, candidates=None)), listed)
