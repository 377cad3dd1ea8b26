"""Images of ``image.mode = "auto"``: baked when they are earned, used, and given up."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.rehearsal import RehearsalRequest, RehearsedPool
from spindown.contract.row import (
    BAKED_PHASE,
    BAKED_RATE,
    BOOT_PHASE,
    BOOT_RATE,
    SpendRow,
    image_sort_key,
)
from spindown.control.bake import keep_images
from spindown.control.observe.observation import TickFacts, read_rows
from spindown.control.rehearse import rehearse
from spindown.domain.bake_or_bootstrap import USED_FOR, ImageHistory
from spindown.domain.boot import BootPhase
from spindown.domain.learning import boot_p50
from spindown.domain.offer import CapacityType
from spindown.domain.reason import ReasonCode
from spindown.memory import PortCall
from spindown.port import LaunchAnswer, Refusal, RefusalKind
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld, codes

STAMP, IMAGE = "with this", "ami-1"
DAY = timedelta(days=1)
SORT = image_sort_key("x86_64")


def a_world(*, boots: int = 400) -> ControlWorld:
    """Return a world with so many boots yesterday, each of 2 minutes of installs at 1 USD/h."""
    world = ControlWorld(stamp=STAMP)
    world.put(f"{BOOT_PHASE}{BootPhase.INSTALL}", samples=[120.0])
    hours = boots / 30
    day = SpendRow(instances=boots, dollars=hours, boot_seconds=hours * 3600)
    world.put_day(world.now - DAY, day)
    return world


def keep(world: ControlWorld) -> ImageHistory:
    """Run the hourly function's part; return what is known then."""
    keep_images(WORKLOAD, world.ports)
    return world.view().images.get("x86_64", ImageHistory())


def baked(world: ControlWorld) -> ControlWorld:
    """Let an image be baked, and a later boot be known to install nothing."""
    world.builder.finish(keep(world).build, {REGION: IMAGE}, stamp=STAMP)
    keep(world)
    return world


def images_asked_for(world: ControlWorld) -> list[str]:
    """Let a job arrive, tick; return the image of each launch request."""
    asked: list[str] = []

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            asked.append(call.args[0].image)
        return proceed()

    world.send()
    world.interfere = listen
    world.tick()
    world.interfere = None
    return asked


GONE = Refusal(kind=RefusalKind.ACCOUNT, code="InvalidAMIID.NotFound", message="gone")
DENIED = Refusal(
    kind=RefusalKind.ACCOUNT,
    code="UnauthorizedOperation",
    message="lab--scaler is not authorized to perform: ec2:RunInstances on resource: "
    f"arn:aws:ec2:{REGION}::image/{IMAGE} because no identity-based policy allows it",
)


@pytest.mark.parametrize(("boots", "is_begun"), [(180, False), (190, True)])
def test_an_image_is_baked_once_it_is_earned(boots: int, is_begun: bool) -> None:
    # 100 GiB for 37 days and a build: 6.17 USD, 185 installs of 2 minutes at 1 USD an hour.
    assert bool(keep(a_world(boots=boots)).build) is is_begun


def test_first_jobs_run_by_bootstrap_later_ones_by_image() -> None:
    first, baking = a_world(), a_world()
    keep(baking)

    assert images_asked_for(first) == [""]
    assert images_asked_for(baking) == [""]
    assert images_asked_for(baked(a_world())) == [IMAGE]


def test_a_build_is_begun_once() -> None:
    world = a_world()
    first = keep(world)

    assert (keep(world), len(world.builder.builds)) == (first, 1)


def test_a_build_that_was_begun_unnoticed_is_found_again() -> None:
    world = a_world()

    def crash(call: PortCall, proceed: Callable[[], Any]) -> Any:
        done = proceed()
        if call.method == "start":
            raise KeyboardInterrupt
        return done

    world.interfere = crash
    with pytest.raises(KeyboardInterrupt):
        keep(world)
    world.interfere = None

    assert keep(world).build in world.builder.builds
    assert len(world.builder.builds) == 1


def test_a_deploy_of_code_alone_keeps_the_image() -> None:
    world = baked(a_world())
    world.change_policy(max_workers=7)

    assert images_asked_for(world) == [IMAGE]


def test_with_other_requirements_the_base_image_serves() -> None:
    world = baked(a_world())
    world.stamp = "with more"
    world.change_policy()

    assert images_asked_for(world) == [""]
    assert ReasonCode.IMAGE_STALE in codes(world.tick())
    # What was spent before has paid for the image that is lost.
    assert not keep(world).build
    world.put_day(world.now, SpendRow(instances=400, dollars=400 / 30, boot_seconds=48_000.0))
    world.clock.advance(DAY)
    world.put_day(world.now, SpendRow(instances=400, dollars=400 / 30, boot_seconds=48_000.0))
    world.clock.advance(DAY)
    assert keep(world).build


def test_an_image_baked_meanwhile_with_other_things_is_stale() -> None:
    world = a_world()
    world.builder.finish(keep(world).build, {REGION: IMAGE}, stamp="with more")
    keep(world)

    assert images_asked_for(world) == [""]


def test_an_image_with_an_old_base_is_left_alone() -> None:
    world = baked(a_world())
    world.clock.advance(USED_FOR)

    assert images_asked_for(world) == [""]
    assert ReasonCode.IMAGE_OLD in codes(world.tick())


def test_an_image_whose_instances_never_check_in_is_given_up() -> None:
    world = baked(a_world())
    found = []
    for _ in range(40):
        found += images_asked_for(world)
        world.clock.advance(timedelta(minutes=2))

    assert (found[0], found[-1]) == (IMAGE, "")
    known = world.view().images["x86_64"]
    assert (known.broken.code, known.failures) == (ReasonCode.IMAGE_SILENT, 1)
    assert any(IMAGE in text for _, text in world.topic.said)


@pytest.mark.parametrize("refusal", [GONE, DENIED], ids=["gone", "denied"])
def test_an_image_that_is_refused_costs_no_start(refusal: Refusal) -> None:
    world = baked(a_world())
    world.send()

    def refuse_images(call: PortCall, proceed: Callable[[], Any]) -> Any:
        is_asked_for = call.method == "launch" and call.args[0].image
        return LaunchAnswer(refusals=(refusal,)) if is_asked_for else proceed()

    world.interfere = refuse_images
    world.tick()
    world.tick(timedelta(minutes=1))

    assert world.view().images["x86_64"].broken.code is ReasonCode.IMAGE_REFUSED
    assert len(world.workers()) == 1
    assert all(row.open_until is None for row in world.view().breakers.values())


def test_a_rehearsal_is_of_the_image_that_a_launch_takes() -> None:
    pool = RehearsedPool(
        region=REGION,
        zone=ZONES[0],
        instance_type="g6.xlarge",
        architecture="x86_64",
        capacity_type=CapacityType.SPOT,
    )
    request = RehearsalRequest(workload=WORKLOAD, pools=(pool,))
    asked: list[str] = []

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "rehearse":
            asked.append(call.args[0].image)
        return proceed()

    for world in (a_world(), baked(a_world())):
        world.interfere = listen
        rehearse(request, world.ports)

    assert asked == ["", IMAGE]


def test_a_lost_answer_is_asked_for_with_the_same_image() -> None:
    world = baked(a_world())
    world.compute.lose_next_answer(is_carried_out=False)
    assert images_asked_for(world) == [IMAGE]

    world.tick(timedelta(minutes=1))

    assert len(world.workers()) == 1


def test_a_build_that_fails_is_told_and_waits() -> None:
    world = a_world()
    world.builder.fail(keep(world).build, "no wheel")
    keep(world)

    assert ReasonCode.IMAGE_BUILD_FAILED in codes(world.tick())
    later = [keep(world).builds]
    for _ in range(3):
        world.put_day(world.now, SpendRow(instances=400, dollars=400 / 30, boot_seconds=48_000.0))
        world.clock.advance(DAY)
        later.append(keep(world).builds)
    assert later == [1, 1, 2, 2]


def test_a_build_that_never_ends_has_failed() -> None:
    world = a_world()
    keep(world)
    world.clock.advance(timedelta(hours=7))

    assert keep(world).failure.code is ReasonCode.IMAGE_BUILD_FAILED


def test_boots_are_learned_for_each_image() -> None:
    world = a_world()
    world.launched()
    world.tick()
    baked(world)
    world.send(40)
    world.change_policy(max_workers=8)
    world.tick()
    world.clock.advance(timedelta(seconds=40))
    for worker in world.workers():
        if worker.checked_in_at is None:
            world.check_in(worker.instance_id)
            phases = encode({"install": 2.0})
            world.change(worker.instance_id, boot_phases=phases, first_item_at=world.now)
    world.tick()

    rates = world.view().rates
    assert (set(rates[BOOT_RATE].samples), set(rates[BAKED_RATE].samples)) == ({120.0}, {40.0})
    assert set(rates[f"{BAKED_PHASE}install"].samples) == {2.0}
    facts = _facts(world)
    assert boot_p50(facts.knowledge, facts.policy) == timedelta(seconds=40)


def _facts(world: ControlWorld) -> TickFacts:
    return read_rows(WORKLOAD, world.ports, source="", now=world.now)


def test_a_decision_says_what_each_mode_costs() -> None:
    world = baked(a_world())
    (told,) = [n for n in world.tick().notes if n.code is ReasonCode.IMAGE_MODES]

    dollars = {mode: float(told.about[mode]) for mode in ("bootstrap", "bake", "auto", "ami")}
    assert dollars["bootstrap"] > dollars["auto"] > dollars["ami"] == 0.0
    assert dollars["bake"] > dollars["auto"]


def test_without_auto_nothing_is_baked_or_told() -> None:
    world = a_world()
    world.stamp = ""
    world.change_policy()

    assert not keep_images(WORKLOAD, world.ports)
    assert not [c for c in codes(world.tick()) if c.value.startswith("image-")]
