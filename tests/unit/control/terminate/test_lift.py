"""What lifts the stop of a launch version, and what does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.decision import Outcome
from spindown.contract.row import BreakerRow
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.memory import PortCall
from spindown.port import RefusalKind
from tests.builders import account_refused, ec2_said, minutes
from tests.control import AWAY, LAUNCH_VERSION, REGION, ControlWorld, with_policy


def test_a_check_in_makes_the_strikes_start_anew() -> None:
    world = ControlWorld()
    world.put(
        rows.BREAKER, silent=2, launch_version=LAUNCH_VERSION, reason=NO_REASON, open_until=None
    )

    world.launched()
    world.tick(minutes(1))

    assert world.view().breaker.silent == 0
    assert world.view().rates[rows.BOOT_RATE].samples == (120.0,)


def test_a_claimed_job_does_not_lift_a_stop_by_missed_check_ins() -> None:
    world = with_policy(max_workers=2)
    worker = world.launched()
    world.tick(minutes(1))
    until = world.now + minutes(60)
    world.put(
        rows.BREAKER,
        silent=3,
        unclaimed=1,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=until,
    )
    world.claim(worker.instance_id)

    world.tick(minutes(1))

    breaker = world.view().breaker
    assert (breaker.silent, breaker.unclaimed, breaker.open_until) == (3, 0, until)


@pytest.mark.parametrize(
    ("unclaimed", "closes"),
    [
        pytest.param(2, True, id="nothing else stops launches"),
        pytest.param(3, False, id="others ended without a job"),
    ],
)
def test_a_done_item_lifts_a_stop_by_failing_jobs_alone(unclaimed: int, closes: bool) -> None:
    world = ControlWorld()
    until = world.now + minutes(60)
    counts = {"silent": 2, "unclaimed": unclaimed, "failed": 3}
    about: dict[str, str | int | float] = {"count": 3, "instance_id": "i-3", "fault_code": ""}
    reason = Reason(ReasonCode.STRIKES_FAILED, about)
    world.put(
        rows.BREAKER, **counts, launch_version=LAUNCH_VERSION, reason=reason, open_until=until
    )
    world.do_items(1)

    world.tick()

    breaker = world.view().breaker
    assert breaker.failed == 0
    assert (breaker.open_until, breaker.reason) == (
        (None, NO_REASON) if closes else (until, reason)
    )


def test_a_spend_day_moved_to_history_is_no_done_item() -> None:
    world = ControlWorld()
    for ago in range(1, 65):
        world.put_day(world.now - minutes(ago * 24 * 60), items=100)
    until = world.now + minutes(60)
    world.put(
        rows.BREAKER,
        failed=3,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=until,
        items_done=64 * 100,
    )
    # The day of today is the 65th.
    world.put(rows.spend_sort_key(world.now), launches=1)

    world.run(3)

    assert len(world.view().spend) == 64
    assert world.view().breaker.open_until == until
    world.do_items(1)
    world.tick(minutes(1))
    assert world.view().breaker.failed == 0


def test_a_tick_without_done_items_does_not_rewrite_a_stop() -> None:
    world = ControlWorld()
    world.do_items(5)
    until = world.now + minutes(60)
    world.put(
        rows.BREAKER,
        failed=3,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=until,
        items_done=5,
    )
    written: set[str] = set()

    def note(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "transact":
            written.update(write.key.sort for write in call.args[0] if not write.is_check)
        return proceed()

    world.interfere = note
    world.tick()

    assert rows.DECISION in written
    assert rows.BREAKER not in written


def test_an_account_error_forgets_no_useless_instance() -> None:
    world = with_policy(max_workers=9)
    counts = {"silent": 1, "unclaimed": 2, "failed": 3, "items_done": 0}
    world.put(
        rows.BREAKER,
        **counts,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=world.now,
    )
    world.send(900)
    world.compute.refuse_next(RefusalKind.ACCOUNT, "UnauthorizedOperation")

    assert world.tick().outcome is not Outcome.LAUNCHED
    breaker = world.view().breaker

    assert breaker.open_until is not None
    assert breaker.reason.about["refusal"] == "UnauthorizedOperation"
    assert (breaker.silent, breaker.unclaimed, breaker.failed) == (1, 2, 3)
    # Once the account is fixed, one instance tests the launch version, as before.
    tried = world.tick(minutes(16))
    assert [len(a.instances) for a in tried.requests] == [1]


def test_a_done_item_does_not_lift_a_stop_by_an_account_error() -> None:
    world = ControlWorld()
    world.put(
        rows.BREAKER,
        failed=3,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=world.now,
    )
    world.send()
    world.compute.refuse_next(RefusalKind.ACCOUNT, "UnauthorizedOperation")
    world.tick()
    stopped = world.view().breaker
    world.do_items(1)

    world.tick(minutes(1))

    assert world.view().breaker == replace(stopped, failed=0)


def test_a_strike_does_not_lift_a_stop_by_an_account_error() -> None:
    world = with_policy(max_workers=1)
    world.send()
    (instance_id,) = [i for a in world.tick().requests for i in a.instances]
    until = world.now + minutes(15)
    world.put(
        rows.BREAKER, launch_version=LAUNCH_VERSION, reason=account_refused(), open_until=until
    )
    world.change(instance_id, reason=ec2_said("Client.InternalError"))
    world.end(instance_id)

    world.tick(minutes(1))

    breaker = world.view().breaker
    assert (breaker.silent, breaker.reason, breaker.open_until) == (1, account_refused(), until)


def test_a_check_in_does_not_lift_a_stop_by_an_account_error() -> None:
    world = with_policy(max_workers=2)
    world.launched()
    until = world.now + minutes(15)
    world.put(
        rows.BREAKER,
        silent=2,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=until,
    )

    world.tick(minutes(1))

    breaker = world.view().breaker
    assert (breaker.silent, breaker.reason, breaker.open_until) == (0, account_refused(), until)


def test_the_breaker_of_another_version_is_forgotten() -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.10),))
    until = world.now + minutes(60)
    for sort in (rows.BREAKER, rows.breaker_sort_key(AWAY)):
        world.put(
            sort,
            silent=3,
            launch_version="of yesterday",
            reason=account_refused(),
            open_until=until,
        )
    deployed = world.workload_settings()
    home = {REGION: deployed.regions[REGION]}
    world.settings.deploy(replace(deployed, regions=home, unread={AWAY: "no answer"}))

    world.tick()

    assert world.view().breaker == BreakerRow(launch_version=LAUNCH_VERSION)
    # What runs there now cannot be read.
    assert world.view().breakers[AWAY].open_until is not None
