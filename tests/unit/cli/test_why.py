"""What a person reads of decisions: outcome, sizing, candidates with their fate, the way out."""

import io
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from spindown.cli.explain.why import say_now, show
from spindown.cli.explain.why import to_json as why_to_json
from spindown.cli.option import GIVEN
from spindown.cli.render.decision import render_decision, say_same
from spindown.cli.render.screen import TextConsole
from spindown.contract.decision import (
    ActionRecord,
    CandidateRecord,
    DeadlineRecord,
    Decision,
    DecisionSummary,
    LaunchRequestRecord,
    Outcome,
    RefusalRecord,
    RequestOutcome,
)
from spindown.domain.reason import Reason, ReasonCode
from spindown.operate.drain import begin_drain
from spindown.operate.why import explain
from spindown.reason_text import say_outcome
from tests.builders import NOW
from tests.control import WORKLOAD, ZONES, ControlWorld, a_pool_of, with_policy


def screen_of(decision: Decision, *, top: int = 10) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render_decision(decision, confirmed=None, top=top))
    return captured.get()


def now_of(world: ControlWorld) -> str:
    return say_now(explain(WORKLOAD, world.ports, last=1))


def test_shows_outcome_sizing_candidates_and_what_came_of_them() -> None:
    world = with_policy(band=0.0)
    world.dry(a_pool_of("g4dn.xlarge", ZONES[0]))
    world.send(3)

    shown = screen_of(world.tick())

    for part in (
        "launched",
        "3 waiting",
        "wanted 3 more",
        "$/1000 items",
        "refused: InsufficientInstanceCapacity",
        "launched 3",
        "not reached",
        "left out by ladder",
    ):
        assert part in shown


def test_what_ec2_says_in_brackets_is_told_as_it_is() -> None:
    found = replace(
        explain(WORKLOAD, ControlWorld().ports, last=1), now=None, unknown="no [/x] for [bold]"
    )
    console = TextConsole(file=io.StringIO(), width=200)

    show(console, [found], 10)

    assert "cannot be said: no [/x] for [bold]." in console.file.getvalue()  # type: ignore[attr-defined]


#: What a row or a decision may hold: marks for a terminal, markup, a lone surrogate.
HOSTILE = "\x1b]0;owned\x07\x1b[2J[/red]\u202e\ud800\r\n"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="texts"),
        pytest.param({"work_seconds": math.nan, "slack_seconds": math.inf}, id="no length"),
        pytest.param({"work_seconds": 1e18, "slack_seconds": -1e18}, id="too long a length"),
        pytest.param({"mode": "of-another-version"}, id="unknown mode"),
    ],
)
def test_whatever_is_stored_is_shown(changes: dict[str, Any]) -> None:
    refusal = RefusalRecord(kind=HOSTILE, code=HOSTILE, message=HOSTILE, pool=HOSTILE)
    plain: dict[str, Any] = {
        "job_id": HOSTILE,
        "due_at": NOW,
        "work_seconds": 1.0,
        "slack_seconds": 1.0,
    }
    stored = Decision(
        workload=WORKLOAD,
        at=NOW,
        outcome=Outcome.REFUSED,
        summary=DecisionSummary(launched={HOSTILE: 1}),
        policy_refusal=HOSTILE,
        candidates=(CandidateRecord(offer=HOSTILE, region="", price_per_hour=1, cost_per_item=1),),
        requests=(
            LaunchRequestRecord(
                launch_id=HOSTILE,
                pools=(HOSTILE,),
                count=1,
                outcome=RequestOutcome.CAPACITY,
                refusals=(refusal,),
            ),
        ),
        actions=(ActionRecord(kind=HOSTILE, subject=HOSTILE),),
        deadlines=(DeadlineRecord(**{**plain, **changes}),),
        bad_rows=(HOSTILE,),
    )
    found = replace(
        explain(WORKLOAD, ControlWorld().ports, last=1),
        decisions=(stored,),
        unreadable=(HOSTILE,),
    )
    console = TextConsole(file=io.StringIO(), width=1000)

    show(console, [found], 10)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.replace("\n", "").isprintable()
    assert "due 2026-11-20" in shown
    assert r"[2J[/red]\u202e\ud800" in shown


def test_decisions_that_look_the_same_are_shown_once() -> None:
    last = Decision(workload=WORKLOAD, at=NOW, outcome=Outcome.IDLE, visible=17)
    before = replace(last, at=NOW - timedelta(seconds=60), fence=1)
    other = replace(last, at=NOW - timedelta(seconds=120), visible=3)
    found = replace(
        explain(WORKLOAD, ControlWorld().ports, last=1), decisions=(last, before, other)
    )
    console = TextConsole(file=io.StringIO(), width=1000)

    show(console, [found], 10)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("17 waiting") == 1
    assert say_same(before.at) in shown
    assert "3 waiting" in shown


def test_a_decision_that_cannot_be_shown_hides_no_other() -> None:
    good = Decision(workload=WORKLOAD, at=NOW, outcome=Outcome.IDLE, visible=17)
    bad = replace(good, deadlines=(None,))  # type: ignore[arg-type]
    found = replace(explain(WORKLOAD, ControlWorld().ports, last=1), decisions=(bad, good))
    console = TextConsole(file=io.StringIO(), width=1000)

    show(console, [found], 10)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "cannot be shown" in shown
    assert "17 waiting" in shown


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_an_offer_is_told_whole_however_narrow_the_screen(columns: int) -> None:
    world = with_policy(band=0.0)
    world.send(3)
    decision = world.tick()
    console = Console(file=io.StringIO(), width=columns)

    console.print(render_decision(decision, confirmed=None, top=10))

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "g4dn.xlarge/us-west-2a/spot" in shown
    assert "…" not in shown
    assert "launched 3" in shown
    assert ("redo" in shown) is (columns == 200)


@pytest.mark.parametrize("columns", range(100, 161, 10))
def test_a_candidate_is_one_line_and_its_heads_are_whole(columns: int) -> None:
    world = with_policy()
    world.send(3)
    decision = world.tick()
    console = Console(file=io.StringIO(), width=columns)

    console.print(render_decision(decision, confirmed=None, top=10))

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in shown
    assert "asked for; EC2 chose another" in shown
    assert "what came of it" in shown


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "a job that nobody has begun: due 2026-11-20 18:00:00 UTC, 2h of work, 1h of slack"),
        ({"jobs": 3}, "3 jobs not begun: due"),
        (
            {"job_id": "j-1", "mode": "wait-for-spot", "waits_until": NOW},
            "2h of work, 1h of slack; wait for spot until 12:00:00 UTC",
        ),
        ({"on": "on-demand", "moves_to": "spot"}, "runs on on-demand, may move to spot"),
        ({"on": "spot"}, "1h of slack; runs on spot"),
        ({"slack_seconds": -3600.0}, "1h too little"),
    ],
)
def test_shows_the_tightest_deadlines(changes: dict[str, Any], line: str) -> None:
    plain: dict[str, Any] = {
        "job_id": "",
        "due_at": NOW + timedelta(hours=6),
        "work_seconds": 7200.0,
        "slack_seconds": 3600.0,
    }
    record = DeadlineRecord(**{**plain, **changes})
    decision = Decision(workload=WORKLOAD, at=NOW, outcome=Outcome.HELD, deadlines=(record,))

    assert line in screen_of(decision)


def test_a_requested_candidate_is_shown_in_a_short_list_too() -> None:
    world = ControlWorld()
    world.send()

    shown = screen_of(world.tick(), top=0)

    assert "launched 1" in shown
    assert "more candidates" in shown


def test_says_how_to_get_a_worker_when_no_offer_may_be_taken() -> None:
    world = with_policy(max_price_per_hour=0.15)
    world.send(3)
    world.tick()

    said = now_of(world)

    assert "3 jobs wait" in said
    assert "the nearest is g4dn.xlarge/us-west-2a/spot: 0.2160 USD/h is above 0.15" in said
    assert "The next launch is tried at 12:01:00 UTC, in 1m." in said


def test_says_what_stops_a_launch_and_what_would_fit() -> None:
    world = with_policy(max_workers=0)
    world.send(3)

    said = now_of(world)

    assert "max_workers is 0" in said
    assert "g4dn.xlarge/us-west-2a/spot would fit" in said


def test_says_once_that_launches_are_stopped_and_no_setting() -> None:
    world = ControlWorld()
    world.send()
    assert world.run(34)[-1].summary.why.code is ReasonCode.BREAKER_OPEN

    said = now_of(world)

    assert said.count("launching is stopped") == 1
    assert "regions" not in said
    assert "The next launch is tried at" in said


def test_says_where_hidden_messages_are_while_nothing_runs() -> None:
    world = ControlWorld()
    world.send()
    world.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
    decision = world.tick(timedelta(minutes=1))

    said = now_of(world)

    assert decision.summary.sizing == Reason(ReasonCode.ALL_IN_FLIGHT, {"messages": 1})
    reason = say_outcome(decision.outcome, decision.summary)
    assert said.startswith(f"Nothing runs: 0 jobs wait; {reason}.")


def test_says_that_nothing_waits() -> None:
    world = ControlWorld()
    world.tick(timedelta(minutes=1))

    said = now_of(world)

    assert "nothing waits" in said
    assert "The next message is a reason to launch." in said


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        pytest.param({"max_workers": 0}, "max_workers is 0", id="drained"),
        pytest.param({"max_price_per_hour": 0.15}, "", id="a price that may come down"),
    ],
)
def test_without_work_it_says_what_would_stop_the_next_message(
    policy: dict[str, Any], why: str
) -> None:
    world = with_policy(**policy)
    world.tick(timedelta(minutes=1))

    said = now_of(world)

    assert said.startswith("Nothing runs: nothing waits.")
    assert (f"The next message would launch nothing: {why}" in said) is bool(why)
    assert ("The next message is a reason to launch." in said) is (not why)


def test_a_command_that_is_named_finds_the_same_deployment() -> None:
    console = TextConsole(file=io.StringIO(), width=200, place=" --config a.toml --local")

    console.print(Text("`spindown logs b-1` says why, `spindown docs stop` how to go on"))
    console.print("`spindown run -- make` runs it; `spindown status --help` helps")

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.splitlines() == [
        "`spindown logs b-1 --config a.toml --local` says why, `spindown docs stop` how to go on",
        "`spindown run --config a.toml --local -- make` runs it; `spindown status --help` helps",
    ]


def test_commands_in_json_find_the_same_deployment() -> None:
    found = replace(
        explain(WORKLOAD, ControlWorld().ports, last=1), failing=("see `spindown logs j`",)
    )
    given = GIVEN.set(" --local")
    try:
        row = why_to_json(found)
    finally:
        GIVEN.reset(given)

    assert row["failing"] == ["see `spindown logs j --local`"]


def test_no_try_is_promised_that_a_tick_cannot_make() -> None:
    world = with_policy()
    begin_drain(WORKLOAD, world.ports)
    world.send(1)
    found = explain(WORKLOAD, world.ports, last=1)

    assert found.now is not None
    assert found.now.next_try_at is not None
    assert f"{found.now.next_try_at:%H:%M:%S}" not in say_now(found)


def test_what_is_hidden_until_its_next_try_waits_for_no_tick() -> None:
    world = ControlWorld()
    world.send(1)
    world.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
    found = explain(WORKLOAD, world.ports, last=1)
    hidden = replace(found, next_tries={"j": NOW + timedelta(minutes=5)})

    assert found.now is not None
    assert found.now.next_try_at is not None
    at = f"{found.now.next_try_at:%H:%M:%S}"
    assert at in say_now(found)
    assert at not in say_now(hidden)


def test_a_drained_fleet_tells_the_command_that_undoes_it() -> None:
    world = with_policy()
    begin_drain(WORKLOAD, world.ports)
    world.send(1)
    console = TextConsole(file=io.StringIO(), width=500, place=" --local")

    show(console, [explain(WORKLOAD, world.ports, last=1)], 10)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"`spindown drain {WORKLOAD} --undo --local`" in shown
