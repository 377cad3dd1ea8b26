"""A drain ends a fleet without losing work, and says truly when nothing runs any more."""

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from spindown.cli.drain import DrainUndone, _looks, begin_each, render_remainder
from spindown.contract import tag
from spindown.contract.decision import Outcome
from spindown.control.policy_edit import edit_policy
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, SpindownError, Throttled, Unreachable
from spindown.memory import PortCall
from spindown.operate.drain import begin_drain, end_drain, read_remainder, terminate_all
from spindown.reason_text import say_outcome
from tests.control import AWAY, DEPLOYMENT, REGION, WORKLOAD, ControlWorld
from tests.failure import failing, only_in, refuse
from tests.reading import only_reading
from tests.unit.control.abroad import CHEAP_AWAY

MINUTE = timedelta(minutes=1)


def power_off(world: ControlWorld, instance_id: str) -> None:
    """Let a worker end as it does by itself."""
    world.change(instance_id, state=WorkerState.DRAINED, reason=Reason(ReasonCode.NO_ROOM))
    world.compute.power_off(instance_id)


def two_regions() -> ControlWorld:
    """Return a workload with an instance in each of two regions."""
    world = ControlWorld(away=CHEAP_AWAY)
    world.send()
    world.tick()
    world.launch_astray(**{tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: WORKLOAD})
    return world


def states(world: ControlWorld, region: str) -> set[str]:
    """Return the states of the instances of a region."""
    return {each.state for each in world.compute.instances(region=region, tags={})}


@pytest.mark.parametrize("error", [Throttled("slow down"), Unreachable("no route")])
def test_a_drain_goes_on_after_a_look_without_an_answer(error: SpindownError) -> None:
    world = ControlWorld()
    begin_drain(WORKLOAD, world.ports)
    world.run(1)
    world.interfere = failing(error, "instances", times=2)

    *looks, (left,) = _looks([WORKLOAD], world.ports, now=True, every=0.0)

    assert [list(seen.unread) for (seen,) in looks] == [[REGION]] * 2
    assert left.is_empty


@pytest.mark.parametrize(
    "without", ["instances", "terminate"], ids=["not described", "not terminated"]
)
def test_a_region_without_an_answer_keeps_no_other_from_its_end(without: str) -> None:
    world = two_regions()
    begin_drain(WORKLOAD, world.ports)
    refusing = only_in(AWAY, refuse(Unreachable("no route")))

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return refusing(call, proceed) if call.method == without else proceed()

    world.interfere = interfere
    looks = _looks([WORKLOAD], world.ports, now=True, every=0.0)
    *_, (left,) = islice(looks, 3)

    assert states(world, REGION) == {"terminated"}
    assert states(world, AWAY) == {"running"}
    assert not left.is_empty
    world.interfere = None
    list(islice(looks, 2))
    assert states(world, AWAY) == {"terminated"}


@pytest.mark.parametrize("now", [False, True], ids=["gently", "at once"])
def test_a_drain_that_was_taken_back_is_over(*, now: bool) -> None:
    world = ControlWorld()
    worker = world.launched()
    begin_drain(WORKLOAD, world.ports)
    looks = _looks([WORKLOAD], world.ports, now=False, every=0.0)
    next(looks)
    end_drain(WORKLOAD, world.ports)

    with pytest.raises(DrainUndone, match=WORKLOAD):
        next(_looks([WORKLOAD], world.ports, now=now, every=0.0))
    with pytest.raises(DrainUndone):
        next(looks)

    left = read_remainder(WORKLOAD, world.ports).instances
    assert [one.instance_id for one in left] == [worker.instance_id]


def test_a_drain_ends_where_nobody_can_answer_any_more() -> None:
    world = ControlWorld()
    begin_drain(WORKLOAD, world.ports)

    def check() -> None:
        raise AccessDenied("it has ended")

    with pytest.raises(AccessDenied):
        list(_looks([WORKLOAD], world.ports, now=False, every=0.0, check=check))


def test_ends_all_that_it_may_before_it_says_what_it_may_not() -> None:
    world = two_regions()
    begin_drain(WORKLOAD, world.ports)
    world.interfere = failing(AccessDenied("not yours"), "terminate", times=1)

    with pytest.raises(AccessDenied):
        list(_looks([WORKLOAD, WORKLOAD], world.ports, now=True, every=0.0))

    assert states(world, REGION) | states(world, AWAY) == {"terminated"}


@pytest.mark.parametrize(
    "methods", [("partition_pages", "query", "select"), ("backlog",)], ids=["ledger", "queue"]
)
def test_machines_end_whatever_else_cannot_be_read(methods: tuple[str, ...]) -> None:
    world = two_regions()
    begin_drain(WORKLOAD, world.ports)
    world.interfere = failing(Unreachable("no route"), *methods)

    list(islice(_looks([WORKLOAD], world.ports, now=True, every=0.0), 2))

    assert states(world, REGION) | states(world, AWAY) == {"terminated"}


def test_nothing_is_launched_however_much_waits() -> None:
    world = ControlWorld()
    begin_drain(WORKLOAD, world.ports)
    world.send(50)

    decisions = world.run(30)

    left = read_remainder(WORKLOAD, world.ports)
    assert {decision.outcome for decision in decisions} == {Outcome.BLOCKED}
    assert (left.is_empty, left.waiting) == (True, 50)
    assert "50 jobs wait" in render_remainder(left).plain
    # The ceiling that stops it is told once.
    last = decisions[-1]
    assert say_outcome(last.outcome, last.summary).count("max_workers is 0") == 1


def test_is_not_over_before_a_tick_has_heard_of_it() -> None:
    world = ControlWorld()
    world.tick()
    begin_drain(WORKLOAD, world.ports)
    before = read_remainder(WORKLOAD, world.ports)
    world.tick(MINUTE)

    assert not before.is_empty
    assert read_remainder(WORKLOAD, world.ports).is_empty


def test_waits_for_the_job_in_hand_and_its_instance_s_end() -> None:
    world = ControlWorld()
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    begin_drain(WORKLOAD, world.ports)
    world.tick(MINUTE)
    at_work = read_remainder(WORKLOAD, world.ports)

    world.finish(lease)
    world.change(worker.instance_id, state=WorkerState.DRAINED)
    ending = read_remainder(WORKLOAD, world.ports)
    world.compute.power_off(worker.instance_id)

    assert "1 ending; working on: job-1" in render_remainder(at_work).plain
    assert "1 powering off" in render_remainder(ending).plain
    assert not ending.is_empty
    assert read_remainder(WORKLOAD, world.ports).is_empty


def test_a_busy_worker_is_never_terminated_by_it() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    begin_drain(WORKLOAD, world.ports)

    for _ in range(60):
        world.beat()
        world.tick(MINUTE)

    assert world.compute.instance(region=REGION, instance_id=worker.instance_id).state == "running"


def test_an_instance_no_row_knows_counts_as_long_as_it_bills() -> None:
    world = ControlWorld()
    begin_drain(WORKLOAD, world.ports)
    world.tick()
    world.launch_astray(**{tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: WORKLOAD})

    assert len(read_remainder(WORKLOAD, world.ports).instances) == 1


def test_what_belongs_to_another_workload_is_left_alone() -> None:
    world = ControlWorld()
    begin_drain(WORKLOAD, world.ports)
    world.tick()
    world.launch_astray(**{tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: "other"})

    assert read_remainder(WORKLOAD, world.ports).is_empty


def test_terminates_all_at_once_when_asked_to() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    begin_drain(WORKLOAD, world.ports)

    terminate_all(read_remainder(WORKLOAD, world.ports), world.ports)
    world.tick(MINUTE)

    assert read_remainder(WORKLOAD, world.ports).is_empty
    assert world.queue.backlog().visible == 1


def test_to_look_changes_nothing() -> None:
    world = ControlWorld()
    world.launched()

    assert len(read_remainder(WORKLOAD, only_reading(world.ports)).instances) == 1


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"max_workers": 9, "warm_workers": 2}, None, id="both"),
        pytest.param({"max_workers": 9, "idle_timeout": "2m"}, None, id="one"),
        pytest.param({"warm_workers": 0}, None, id="nobody kept warm"),
        pytest.param({"max_workers": 0, "warm_workers": 0}, {}, id="drained before, by this"),
        pytest.param({"max_workers": 0}, {}, id="drained before"),
    ],
)
def test_takes_a_drain_back(edit: dict[str, object], left: dict[str, object] | None) -> None:
    world = ControlWorld()
    if edit:
        edit_policy(WORKLOAD, edit, settings=world.settings, table=world.table)
    begin_drain(WORKLOAD, world.ports)
    begin_drain(WORKLOAD, world.ports)

    assert end_drain(WORKLOAD, world.ports)

    _, stored = world.settings.workload(WORKLOAD)
    assert json.loads(stored.text if stored else "{}") == (edit if left is None else left)


def test_what_changed_since_a_drain_stays_when_it_is_taken_back() -> None:
    world = ControlWorld()
    begin_drain(WORKLOAD, world.ports)
    later = {"idle_timeout": "3m"}
    edit_policy(WORKLOAD, later, settings=world.settings, table=world.table)

    end_drain(WORKLOAD, world.ports)

    _, stored = world.settings.workload(WORKLOAD)
    assert stored is not None
    assert json.loads(stored.text) == later


def test_no_drain_is_none_to_take_back() -> None:
    world = ControlWorld()
    edit_policy(WORKLOAD, {"max_workers": 3}, settings=world.settings, table=world.table)

    assert not end_drain(WORKLOAD, world.ports)


def test_a_broken_live_edit_is_no_obstacle() -> None:
    world = ControlWorld()
    world.settings.put_live(WORKLOAD, "{")

    begin_drain(WORKLOAD, world.ports)
    world.tick()

    assert read_remainder(WORKLOAD, world.ports).is_empty


def test_one_refused_workload_holds_up_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    world = ControlWorld()
    nudged: list[str] = []

    refused = begin_each(["other", WORKLOAD], world.ports, nudged.append, is_told=False)

    assert list(refused) == ["other"]
    assert nudged == [WORKLOAD]
    assert "other" in capsys.readouterr().err


def test_machines_end_at_once_though_a_drain_was_refused() -> None:
    world = two_regions()
    assert states(world, REGION) == {"running"}

    looks = _looks([WORKLOAD], world.ports, now=True, every=0.0, refused=[WORKLOAD])

    assert len(list(looks)) == 1
    assert states(world, REGION) == states(world, AWAY) == {"terminated"}


def test_a_refused_drain_is_tried_until_an_answer_comes() -> None:
    world = two_regions()
    world.interfere = failing(Throttled("slow down"), "terminate", times=1)

    looks = _looks([WORKLOAD], world.ports, now=True, every=0.0, refused=[WORKLOAD])

    assert len(list(looks)) == 2
    assert states(world, REGION) == states(world, AWAY) == {"terminated"}
