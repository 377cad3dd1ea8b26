"""A launch waits for more work within the promise, by the clock of waiting work."""

from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.decision import Outcome
from spindown.contract.row import BacklogRow
from spindown.control.plan.backlog import next_backlog
from spindown.domain.fleet import Backlog
from spindown.domain.reason import ReasonCode
from tests.builders import NOW, a_lease, minutes
from tests.control import ControlWorld, with_policy


def test_holds_a_launch_for_more_work_until_the_promise_is_due() -> None:
    world = with_policy(scale_up_threshold=10, start_within=minutes(36))
    world.send(2)

    decisions = [world.tick(), *world.run(30)]

    launched_at = next(d.at for d in decisions if d.outcome is Outcome.LAUNCHED)
    held = [d for d in decisions if d.outcome is Outcome.HELD and d.at < launched_at]
    # 36 min less a margin of 9 while nothing is learned, a boot of 3, a tick and a retry, and
    # 6 min of the first job for the second.
    assert launched_at == NOW + minutes(16)
    assert {d.held_until for d in held} == {NOW + minutes(16)}
    assert held[0].summary.sizing.code is ReasonCode.HELD_FOR_MORE
    assert world.metrics.values("Held")[0] == 1


def test_the_first_launch_of_all_waits_for_no_more_work() -> None:
    world = with_policy(scale_up_threshold=None, start_within=minutes(30))
    world.send(2)

    first, second = world.tick(), world.tick(minutes(1))

    assert first.outcome is Outcome.LAUNCHED
    assert first.summary.sizing.code is ReasonCode.TO_MEASURE
    assert len(world.workers()) == 1
    assert second.outcome is Outcome.ENOUGH


def test_launches_at_once_when_a_hold_reaches_its_threshold() -> None:
    world = with_policy(scale_up_threshold=3, start_within=minutes(30))
    world.send(2)
    held = world.tick()
    world.send(1)

    assert held.outcome is Outcome.HELD
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED


@pytest.mark.parametrize(
    ("before", "backlog", "since"),
    [
        pytest.param(BacklogRow(), Backlog(visible=0, in_flight=0), None, id="nothing-waits"),
        pytest.param(BacklogRow(), Backlog(visible=2, in_flight=0), NOW, id="work-has-come"),
        pytest.param(
            BacklogRow(backlog_since=NOW - minutes(4), claims=3, claims_seen=3),
            Backlog(visible=2, in_flight=0),
            NOW - minutes(4),
            id="still-nobody-has-claimed",
        ),
        pytest.param(
            BacklogRow(backlog_since=NOW - minutes(4), claims=4, claims_seen=3),
            Backlog(visible=2, in_flight=1),
            NOW,
            id="a-claim-starts-the-clock-anew",
        ),
        pytest.param(
            BacklogRow(backlog_since=NOW - minutes(4)),
            Backlog(visible=0, in_flight=2),
            None,
            id="all-of-it-is-in-flight",
        ),
    ],
)
def test_the_clock_of_waiting_work(before: BacklogRow, backlog: Backlog, since: Any) -> None:
    assert next_backlog(before, backlog, NOW).backlog_since == since


@pytest.mark.parametrize(
    ("leases", "left"),
    [
        pytest.param([], (1, 2), id="nobody-knows-which-so-the-oldest"),
        pytest.param([(-4.5, -0.5)], (2, 1), id="sent-before-the-second-look"),
        pytest.param([(-9, -0.5)], (1, 2), id="sent-before-the-first"),
        pytest.param([(-4, -0.5)], (2, 1), id="sent-as-the-second-looked"),
        pytest.param([(-0.7, -0.5)], (2, 2, 0), id="sent-since-the-last"),
        pytest.param([(-4.5, -1)], (1, 2), id="claimed-before-the-last-look"),
        pytest.param([(-4.5, -0.5), (-4.5, -0.4)], (2, 1), id="no-more-than-were-claimed"),
    ],
)
def test_a_claim_takes_what_was_sent_when_its_lease_says(
    leases: list[tuple[float, float]], left: tuple[int, ...]
) -> None:
    before = BacklogRow(
        claims=8,
        claims_seen=7,
        seen_at=NOW - minutes(1),
        waiting_since=(NOW - minutes(8), NOW - minutes(4)),
        waiting_jobs=(2, 2),
    )
    held = [
        a_lease(sent_at=NOW + minutes(sent), claimed_at=NOW + minutes(claimed))
        for sent, claimed in leases
    ]
    visible = 4 if len(left) > 2 else 3

    found = next_backlog(before, Backlog(visible=visible, in_flight=1), NOW, held)

    assert found.waiting_jobs == left[:2]


def test_learns_the_gap_between_no_work_and_new_work() -> None:
    world = ControlWorld()
    world.run(3)
    world.send()
    world.tick(minutes(1))

    assert world.view().rates[rows.GAP_RATE].samples == (180.0,)
