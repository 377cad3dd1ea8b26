"""A dear item is told of once a day, with its cause and the setting to change."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.row import COST_RISE, SpendRow
from spindown.control.alert.cost_rise import judge
from spindown.domain.cost_rise_cause import Cause
from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import Policy
from spindown.error import Unreachable
from spindown.reason_text import say
from tests.control import ControlWorld
from tests.failure import failing
from tests.wording import strangers

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

#: 3 launches, 0.3 h of boot, 1.5 h of work, 0.2 h idle at 1 USD/h; 900 items, 100 redone.
USUAL = SpendRow(
    dollars=2.0,
    boot_seconds=1080.0,
    busy_seconds=5400.0,
    idle_seconds=720.0,
    items=900,
    items_redone=100,
    jobs=9,
    launches=3,
    instances=3,
)

#: Cause -> how the day differs from a usual one, and the setting that must be named.
DEAR: dict[Cause, tuple[dict[str, Any], str]] = {
    Cause.PRICE: ({"dollars": 6.0}, "`max_price_per_hour`"),
    Cause.BOOT: ({"dollars": 5.0, "boot_seconds": 11_880.0}, "`mode`"),
    Cause.IDLE: ({"dollars": 5.0, "idle_seconds": 11_520.0}, "`idle_timeout`"),
    Cause.REDO: ({"dollars": 6.0, "busy_seconds": 19_800.0, "items_redone": 2700}, "`min_reli"),
    Cause.THROUGHPUT: ({"dollars": 6.0, "busy_seconds": 19_800.0}, "`batch_size`"),
    Cause.SPARSE_QUEUE: (
        {"dollars": 7.0, "launches": 30, "boot_seconds": 10_800.0, "idle_seconds": 9000.0},
        "`start_within`",
    ),
    Cause.OVERKILL: (
        {
            "dollars": 3.2,
            "gpu_seconds": 5400.0,
            "gpu_percent_seconds": 5400.0 * 12,
            "vram_percent_seconds": 5400.0 * 20,
            "vram_gib_max": 4.0,
        },
        "`gpu_memory_gib_min`",
    ),
}


def a_world(today: SpendRow, **world: Any) -> ControlWorld:
    """Return a workload that works one day a week, as usual four times, and then this day."""
    made = ControlWorld(**world)
    for ago in range(7, 35, 7):
        made.put_day(made.now - ago * DAY, USUAL)
    made.put_day(made.now, today)
    return made


@pytest.mark.parametrize("cause", Cause)
def test_names_the_cause_and_the_setting_to_change(cause: Cause) -> None:
    changes, setting = DEAR[cause]
    world = a_world(replace(USUAL, **changes))

    (judgement,) = judge(world.ports)

    assert judgement.diagnosis is not None
    assert judgement.diagnosis.cause is cause
    ((subject, text),) = world.topic.said
    assert subject == f"demo--classify: cost-{cause.value.replace(' ', '-')}"
    assert say(judgement.diagnosis.reason) in text
    assert setting in text
    assert re.search(r"\. To do: [a-z].*\.$", text)
    assert strangers(text) == []
    (rise,) = [datum for datum in world.metrics.data if datum.name == "CostRise"]
    assert rise.dimensions["Cause"] == cause.value
    assert rise.value == pytest.approx(judgement.diagnosis.dollars)


def test_says_nothing_of_a_usual_day() -> None:
    world = a_world(USUAL)

    (judgement,) = judge(world.ports)

    assert (judgement.diagnosis, judgement.failure) == (None, "")
    assert world.topic.said == ()
    assert world.metrics.values("CostRise") == []


def test_a_cause_is_told_once_a_day_and_its_metric_every_hour() -> None:
    world = a_world(replace(USUAL, dollars=6.0))

    for _ in range(12):
        judge(world.ports)
        world.clock.advance(HOUR)
    assert len(world.topic.said) == 1
    assert len(world.metrics.values("CostRise")) == 12

    world.put_day(world.now, replace(USUAL, **DEAR[Cause.IDLE][0]))
    judge(world.ports)
    assert [subject.partition("cost-")[2] for subject, _ in world.topic.said] == ["price", "idle"]


def test_a_rise_is_remembered_until_it_is_over() -> None:
    world = a_world(replace(USUAL, dollars=6.0))

    judge(world.ports)
    first = world.row(COST_RISE)
    world.clock.advance(HOUR)
    judge(world.ports)
    assert first is not None
    assert world.row(COST_RISE) == first
    assert world.metrics.values("CostRaised") == [1, 1]

    world.put_day(world.now, USUAL)
    judge(world.ports)
    assert world.row(COST_RISE) is None
    assert world.metrics.values("CostRaised") == [1, 1]


@pytest.mark.parametrize(
    ("times", "rings"), [pytest.param(2.9, True, id="above"), pytest.param(3.1, False, id="below")]
)
def test_the_policy_says_from_where_a_cost_rises(times: float, *, rings: bool) -> None:
    world = a_world(replace(USUAL, dollars=6.0), policy=Policy(alarm_cost_rise=times))

    (judgement,) = judge(world.ports)

    assert bool(judgement.diagnosis) is rings


def test_a_tick_does_not_forget_what_the_judgement_has_told() -> None:
    world = a_world(replace(USUAL, dollars=6.0))
    judge(world.ports)

    for _ in range(20):
        world.tick(HOUR)
        judge(world.ports)

    assert len(world.topic.said) == 1


@pytest.mark.parametrize(
    ("changes", "requirements"),
    [
        pytest.param(
            {"gpu_percent_seconds": 5400.0 * 60}, InstanceRequirements(), id="the GPU is used"
        ),
        pytest.param(
            {"vram_percent_seconds": 5400.0 * 80}, InstanceRequirements(), id="VRAM is used"
        ),
        pytest.param(
            {"vram_gib_max": 20.0}, InstanceRequirements(), id="nothing else would hold it"
        ),
        pytest.param({"gpu_seconds": 0.0}, InstanceRequirements(), id="no GPU was seen"),
        pytest.param(
            {}, InstanceRequirements(vcpus_min=64), id="nothing cheaper has what else it needs"
        ),
    ],
)
def test_a_machine_that_is_needed_is_no_overkill(
    changes: dict[str, Any], requirements: InstanceRequirements
) -> None:
    today = replace(USUAL, **(DEAR[Cause.OVERKILL][0] | changes))
    world = a_world(today, requirements=requirements)

    (judgement,) = judge(world.ports)

    assert judgement.diagnosis is not None
    assert judgement.diagnosis.cause is Cause.PRICE


def test_overkill_names_a_cheaper_machine_that_fits_the_usage() -> None:
    # A10G and L4 are asked for; a T4 would do.
    today = replace(USUAL, **DEAR[Cause.OVERKILL][0])
    world = a_world(today, requirements=InstanceRequirements(gpu_names=frozenset({"A10G", "L4"})))

    (judgement,) = judge(world.ports)

    assert judgement.diagnosis is not None
    assert judgement.diagnosis.reason.about["offer"] == "g4dn.xlarge"
    assert "g4dn.xlarge" in world.topic.said[0][1]


def test_tells_what_an_hour_of_one_warm_machine_would_cost() -> None:
    world = ControlWorld()

    judge(world.ports)

    # g4dn.xlarge on demand, with volume and public address.
    assert world.metric("WarmDollars") == pytest.approx(0.526, abs=0.03)


@pytest.mark.parametrize("fault", [Unreachable("no answer"), ValueError("no answer")])
def test_a_workload_that_cannot_be_judged_is_said(fault: Exception) -> None:
    world = a_world(replace(USUAL, dollars=6.0))

    world.interfere = failing(fault, "query_each")
    (judgement,) = judge(world.ports)

    assert (judgement.diagnosis, judgement.failure) == (None, "no answer")
