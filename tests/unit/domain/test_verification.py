"""What `spindown verify` has seen -> what has passed: each row of the table has one fault."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.verification import (
    Interruption,
    ItemCount,
    VerifiedMachine,
    VerifyCheck,
    VerifyRun,
    has_passed,
    judge_run,
)
from spindown.reason_text import say_check
from tests.builders import NOW, minutes

#: An hour at 0.60 USD is 0.01 USD a minute. The first machine ran 8 min, the second 10.
FIRST = VerifiedMachine(
    instance_id="i-1",
    offer="g6.xlarge/us-west-2a/spot",
    price_per_hour=0.60,
    launched_at=NOW + minutes(1),
    checked_in_at=NOW + minutes(4),
    ended_at=NOW + minutes(9),
    charged_usd=0.01,
    refunded_usd=0.07,
)
SECOND = VerifiedMachine(
    instance_id="i-2",
    offer="g6.xlarge/us-west-2b/spot",
    price_per_hour=0.60,
    launched_at=NOW + minutes(8),
    checked_in_at=NOW + minutes(11),
    ended_at=NOW + minutes(18),
    charged_usd=0.10,
)
GOOD = VerifyRun(
    sent_at=NOW,
    items=ItemCount(sent=60, right=60),
    first_item_at=NOW + minutes(5),
    interruption=Interruption.FAULT_INJECTION,
    interrupted_at=NOW + minutes(5),
    noticed_at=NOW + minutes(6),
    resumed_at=NOW + minutes(12),
    completed_at=NOW + minutes(15),
    emptied_at=NOW + minutes(18),
    machines=(FIRST, SECOND),
    requeues=1,
    alarms={"demo--verify--idle": "OK", "demo--untold": "INSUFFICIENT_DATA"},
    max_usd=1.0,
    every=timedelta(seconds=5),
)


def failed(run: VerifyRun) -> list[VerifyCheck]:
    return [one.check for one in judge_run(run) if one.passed is False]


def test_a_good_run_passes_every_check() -> None:
    results = judge_run(GOOD)

    assert [one.check for one in results] == list(VerifyCheck)
    assert all(one.passed for one in results)
    assert has_passed(results)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        pytest.param({"first_item_at": None}, VerifyCheck.FIRST_ITEM, id="no item"),
        pytest.param({"interrupted_at": None}, VerifyCheck.INTERRUPTED, id="no interruption"),
        pytest.param({"noticed_at": None}, VerifyCheck.INTERRUPTED, id="no notice by FIS"),
        pytest.param({"resumed_at": None}, VerifyCheck.REQUEUED, id="never resumed"),
        pytest.param({"requeues": 0}, VerifyCheck.REQUEUED, id="an interruption not counted"),
        pytest.param(
            {"items": ItemCount(sent=60, right=59)}, VerifyCheck.RESULTS, id="an item missing"
        ),
        pytest.param(
            {"items": ItemCount(sent=60, right=60, repeated=1)}, VerifyCheck.RESULTS, id="twice"
        ),
        pytest.param(
            {"items": ItemCount(sent=60, right=59, wrong=1)}, VerifyCheck.RESULTS, id="wrong"
        ),
        pytest.param(
            {"items": ItemCount(sent=60, right=59, failed=1)}, VerifyCheck.RESULTS, id="failed"
        ),
        pytest.param({"items": ItemCount(sent=0)}, VerifyCheck.RESULTS, id="nothing sent"),
        pytest.param({"messages_left": 1}, VerifyCheck.NOTHING_LEFT, id="a message left"),
        pytest.param({"dead_letters": 1}, VerifyCheck.NOTHING_LEFT, id="a dead letter"),
        pytest.param(
            {"alarms": {"demo--verify--idle": "ALARM"}}, VerifyCheck.ALARMS, id="an alarm rings"
        ),
        pytest.param({"max_usd": 0.10}, VerifyCheck.WITHIN_AMOUNT, id="too dear"),
        pytest.param({"fault_usd": 0.99}, VerifyCheck.WITHIN_AMOUNT, id="a dear experiment"),
        pytest.param(
            {"machines": (FIRST, replace(SECOND, charged_usd=0.30))},
            VerifyCheck.CHARGED,
            id="charged for what did not run",
        ),
        pytest.param(
            {"machines": (FIRST, replace(SECOND, charged_usd=0.0))},
            VerifyCheck.CHARGED,
            id="a machine not charged",
        ),
        pytest.param(
            {"machines": (replace(FIRST, checked_in_at=None), SECOND)},
            VerifyCheck.LAUNCHED,
            id="the first never checked in",
        ),
    ],
)
def test_each_fault_fails_its_own_check(change: dict[str, Any], check: VerifyCheck) -> None:
    run = replace(GOOD, **change)

    assert failed(run) == [check]
    assert not has_passed(judge_run(run))


def test_without_fis_no_notice_is_asked_for() -> None:
    by_hand = replace(GOOD, interruption=Interruption.BY_HAND, noticed_at=None)

    assert failed(by_hand) == []


def test_alarms_that_nobody_may_see_fail_nothing() -> None:
    results = {one.check: one.passed for one in judge_run(replace(GOOD, alarms=None))}

    assert results[VerifyCheck.ALARMS] is None
    assert failed(replace(GOOD, alarms=None)) == []


def test_an_alarm_that_only_wakes_a_function_may_ring() -> None:
    quiet = frozenset({"demo--verify--backlog"})
    run = replace(GOOD, alarms={"demo--verify--backlog": "ALARM"}, quiet_alarms=quiet)

    assert failed(run) == []


def test_a_machine_that_runs_on_fails_what_depends_on_its_end() -> None:
    left = replace(GOOD, machines=(FIRST, replace(SECOND, ended_at=None)), emptied_at=None)

    assert failed(left) == [VerifyCheck.IDLE_END, VerifyCheck.NOTHING_LEFT, VerifyCheck.CHARGED]


def test_what_was_never_launched_fails_all_but_the_amount() -> None:
    nothing = VerifyRun(
        sent_at=NOW, items=ItemCount(sent=60), max_usd=1.0, every=timedelta(seconds=5)
    )

    passed = [one.check for one in judge_run(nothing) if one.passed is not False]
    assert passed == [VerifyCheck.ALARMS, VerifyCheck.WITHIN_AMOUNT]


@pytest.mark.parametrize(
    "run", [GOOD, VerifyRun(sent_at=NOW, items=ItemCount(sent=1), max_usd=1.0, every=minutes(1))]
)
def test_every_check_has_words(run: VerifyRun) -> None:
    said = [say_check(one) for one in judge_run(run)]

    assert all(said)
    assert len(set(said)) == len(VerifyCheck)
