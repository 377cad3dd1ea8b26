"""The alternatives are compared fairly, in the terminal, in JSON and on the page."""

import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from rich.console import Console

from spindown.cli.history.arrival import ArrivalHistory
from spindown.cli.history.gather import Gathered, default_subject
from spindown.cli.history.price import MarketHistory
from spindown.cli.simulate.alternative import Alternative, AlternativeResult, Role
from spindown.cli.simulate.comparison import (
    Comparison,
    at_their_speed,
    compare,
    comparison_to_json,
    say_obstacle,
)
from spindown.cli.simulate.page.page import write_page
from spindown.cli.simulate.table import (
    render_comparison,
    speed_sentence,
    unfinished_sentences,
    work_alone_sentence,
)
from spindown.domain.offer import extra_price_per_hour
from spindown.domain.policy import Policy
from spindown.simulator import Listing
from spindown.simulator.result import CAUSES
from spindown.simulator.scenario import Steps
from tests.simulator.scene import DAY, HOUR, a_listing, a_scenario, a_zone, an_arrival
from tests.unit.cli.trial import RESULT


def a_story(*points: tuple[Role, float, float]) -> Comparison:
    """Return a comparison of (role, dollars, 95 % wait); the first is ours."""
    scenario = a_scenario(length=HOUR)
    traffic = ArrivalHistory(
        source="here",
        arrivals=scenario.arrivals,
        start=scenario.start,
        length=HOUR,
        is_dated=False,
    )
    return compare(
        Gathered(
            subject=replace(default_subject(), budget_per_month=5.0),
            traffic=traffic,
            prices=MarketHistory(source="here", listings=scenario.listings),
            seed=1,
        ),
        [
            AlternativeResult(
                alternative=Alternative(
                    name=f"{role}-{number}", title="", role=role, policy=Policy()
                ),
                result=replace(
                    RESULT,
                    dollars=dollars,
                    wait=replace(RESULT.wait, p95=wait),
                    jobs_done=RESULT.jobs - (dollars < 1.0),
                ),
            )
            for number, (role, dollars, wait) in enumerate(points)
        ],
    )


def test_others_are_compared_under_the_promise_of_their_speed() -> None:
    comparison = a_story(
        (Role.OURS, 10.0, 600.0),
        (Role.BASELINE, 40.0, 700.0),
        (Role.BASELINE, 40.0, 100.0),
        (Role.BASELINE, 90.0, 5.0),
        (Role.FRONTIER, 16.0, 90.0),
    )

    assert at_their_speed(comparison) == (
        [("baseline-1", 4.0), ("baseline-2", 2.5)],
        ["baseline-3"],
    )
    assert "by a factor of: baseline-1 4.0, baseline-2 2.5." in speed_sentence(comparison)
    assert "as fast as baseline-3: that takes warm_workers" in speed_sentence(comparison)
    assert [row.times_ours for row in comparison.rows] == [1.0, 4.0, 4.0, 9.0]
    assert list(unfinished_sentences(comparison)) == []


def test_says_work_left_and_the_budget_that_may_have_stopped_it() -> None:
    comparison = a_story((Role.OURS, 0.5, 600.0), (Role.BASELINE, 0.4, 700.0))

    mine, theirs = unfinished_sentences(comparison)
    left = "left 1 job undone; its cost is that of the rest."
    assert mine == f"ours-0 {left} Launches stop at the budget of $5.00 a month."
    assert theirs == f"baseline-1 {left}"
    # What was left is not cheap: neither the work alone nor another way is held against it.
    assert comparison.ratio is None
    assert comparison_to_json(comparison)["over_work_alone"] is None
    assert work_alone_sentence(comparison) == ""
    assert [row.times_ours for row in comparison.rows] == [None, None]
    assert at_their_speed(comparison) == ([], [])
    assert speed_sentence(comparison) == ""


@pytest.mark.parametrize(
    ("alone", "said"), [(36.884, "$36.88 "), (1234.5, "$1,234.50 "), (0.00093, "$0.00093 ")]
)
def test_less_than_a_cent_is_not_said_to_be_nothing(alone: float, said: str) -> None:
    comparison = replace(a_story((Role.OURS, 5.0, 60.0)), work_alone=alone)

    assert f"costs {said}" in work_alone_sentence(comparison)


def test_the_work_alone_is_bought_where_it_is_cheapest() -> None:
    comparison = a_story((Role.OURS, 5.0, 60.0))
    gathered = comparison.gathered
    slow = a_listing(zones={"a": a_zone(spot=((0.0, 0.30), (HOUR, 0.20)))})
    fast = a_listing("g5.xlarge", zones={"a": a_zone(spot=((0.0, 0.45),))}, speed=3.0)
    late = a_listing("g6.xlarge", zones={"a": a_zone(spot=((9 * DAY, 0.01),))}, on_demand=0.90)

    def told(*listings: Listing) -> float:
        ten_hours = replace(gathered.traffic, arrivals=(an_arrival(items=3600),), length=DAY)
        market = replace(gathered.prices, listings=listings)
        other = replace(gathered, traffic=ten_hours, prices=market)
        return compare(other, comparison.outcomes).work_alone

    extra = extra_price_per_hour(gathered.scenario.root_volume_gib)
    assert told(slow) == pytest.approx(10 * (0.20 + extra))
    assert told(slow, fast) == pytest.approx(10 * (0.45 + extra) / 3)
    # A price that nobody lives to see counts for nothing.
    assert told(late) == pytest.approx(10 * (0.90 + extra))


def test_the_page_names_the_cheapest_way_of_those_as_fast_first() -> None:
    page = write_page(
        a_story(
            (Role.OURS, 10.0, 600.0),
            (Role.BASELINE, 9.0, 700.0),
            (Role.BASELINE, 30.0, 60.0),
            (Role.BASELINE, 20.0, 600.0),
        )
    )

    told = "is what baseline-3 costs, the cheapest other way as fast"
    assert f"<b>2.00 x</b><span>{told}</span>" in page


def test_those_who_left_as_much_undone_are_named_together() -> None:
    comparison = a_story(
        (Role.OURS, 10.0, 600.0),
        (Role.BASELINE, 0.4, 700.0),
        (Role.BASELINE, 0.5, 700.0),
        (Role.BASELINE, 9.0, 700.0),
        (Role.FRONTIER, 0.6, 700.0),
    )

    theirs, mine = unfinished_sentences(comparison)
    assert theirs == (
        "baseline-1, baseline-2 left 1 job undone each; their cost is that of the rest."
    )
    assert mine.startswith("frontier-4 left 1 job undone; its cost is that of the rest. Launches")
    assert [row.times_ours for row in comparison.rows] == [1.0, None, None, 0.9]
    assert at_their_speed(comparison) == ([("baseline-3", 0.9)], [])
    assert speed_sentence(comparison).endswith(
        "is no cheaper; they cost, over it: baseline-3 0.90."
    )
    page = write_page(comparison)
    told = "is what baseline-3 costs, the cheapest other way; none is as fast, it takes 11.7 min"
    assert f"<b>0.90 x</b><span>{told}</span>" in page
    # What did nothing is not the cheapest and fastest of all.
    plot = page[page.index("Cost against delay") : page.index("The bill by cause")]
    assert "baseline-3" in plot
    assert "baseline-1" not in plot


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({}, "", id="nothing that the settings tell"),
        pytest.param({"max_workers": 0}, "Nothing is launched with max_workers = 0.", id="nobody"),
        pytest.param(
            {"max_price_per_hour": 0.21},
            "Nothing on sale costs max_price_per_hour = $0.21 or less.",
            id="volume and address make it dearer",
        ),
        pytest.param({"max_price_per_hour": 0.25}, "", id="dear enough"),
    ],
)
def test_what_keeps_a_policy_from_its_work_is_said(changes: dict[str, float], said: str) -> None:
    comparison = a_story((Role.OURS, 0.5, 600.0))
    (outcome,) = comparison.outcomes
    policy = replace(outcome.alternative.policy, **changes)  # type: ignore[arg-type]
    kept = replace(outcome, alternative=replace(outcome.alternative, policy=policy))
    comparison = replace(comparison, outcomes=(kept,))

    assert say_obstacle(comparison) == said
    assert said in next(iter(unfinished_sentences(comparison)))


def test_a_job_longer_than_the_simulation_is_told() -> None:
    (outcome,) = a_story((Role.OURS, 0.5, 600.0)).outcomes
    cut_off = replace(outcome.result, seconds=HOUR + 4 * DAY)
    comparison = compare(
        a_story((Role.OURS, 0.5, 600.0)).gathered, [replace(outcome, result=cut_off)]
    )

    assert say_obstacle(comparison) == "The simulation ends 4 days after the traffic."
    (mine,) = unfinished_sentences(comparison)
    assert "that of the rest. The simulation ends 4 days after the traffic. Launches" in mine


def test_a_price_above_what_is_allowed_is_told_with_its_time() -> None:
    comparison = a_story((Role.OURS, 0.5, 600.0))
    zone = a_zone(spot=((0.0, 0.20), (1800.0, 3.0)))
    dear = a_listing(on_demand=None, zones={"us-west-2a": zone})
    gathered = replace(comparison.gathered, prices=MarketHistory(source="here", listings=(dear,)))

    said = say_obstacle(replace(comparison, gathered=gathered))
    assert said == "Nothing on sale costs max_price_per_hour = $2.00 or less from 05 Jan 00:30 on."


@pytest.mark.parametrize(
    ("on_demand", "spot", "since"),
    [
        pytest.param(None, ((0.0, 0.20), (600.0, 3.0), (1200.0, 0.20)), None, id="a peak"),
        pytest.param(None, ((0.0, 3.0), (1200.0, 0.20)), None, id="dear at first"),
        pytest.param(
            None, ((0.0, 3.0), (1200.0, 0.20), (1800.0, 3.0)), " from 05 Jan 00:30 on", id="again"
        ),
        pytest.param(3.0, (), "", id="no spot at all"),
    ],
)
def test_only_lasting_high_prices_keep_a_policy_from_its_work(
    on_demand: float | None, spot: Steps, since: str | None
) -> None:
    comparison = a_story((Role.OURS, 0.5, 600.0))
    listing = a_listing(on_demand=on_demand, zones={"us-west-2a": a_zone(spot=spot)})
    gathered = replace(
        comparison.gathered, prices=MarketHistory(source="here", listings=(listing,))
    )

    said = say_obstacle(replace(comparison, gathered=gathered))

    dear = f"Nothing on sale costs max_price_per_hour = $2.00 or less{since}."
    assert said == ("" if since is None else dear)


@pytest.mark.parametrize(
    ("peak", "wait", "changes", "is_said"),
    [
        pytest.param(4, 12_960.0, {}, True, id="all workers, hours late"),
        pytest.param(3, 12_960.0, {}, False, id="room for one more"),
        pytest.param(4, 310.0, {}, False, id="hardly late"),
        pytest.param(4, 12_960.0, {"finish_within": timedelta(days=1)}, False, id="a deadline"),
    ],
)
def test_jobs_late_for_want_of_workers_are_told(
    peak: int, wait: float, changes: dict[str, timedelta], *, is_said: bool
) -> None:
    comparison = a_story((Role.OURS, 5.0, wait))
    (outcome,) = comparison.outcomes
    result = replace(outcome.result, peak=peak)
    policy = replace(Policy(max_workers=4), **changes)  # type: ignore[arg-type]
    alternative = replace(outcome.alternative, policy=policy)
    comparison = replace(
        comparison, outcomes=(replace(outcome, alternative=alternative, result=result),)
    )

    told = (" ".join(on_a_screen(comparison, 200).split()), write_page(comparison))

    late = "Jobs start later than start_within = 5m asks for, since at times all of"
    said = f"{late} max_workers = 4 are busy: more of them would start jobs sooner."
    assert [said in each for each in told] == [is_said, is_said]


def on_a_screen(comparison: Comparison, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_comparison(comparison, width=width))
    return cast("io.StringIO", console.file).getvalue()


def test_each_row_is_explained() -> None:
    comparison = a_story((Role.OURS, 5.0, 60.0), (Role.BASELINE, 9.0, 60.0))
    shown = on_a_screen(comparison, 120).splitlines()
    for row in comparison.rows:
        assert f"{row.name}: {row.title}" in shown


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, 7),
        (80, 5),
        (60, 3),
    ],
)
def test_a_narrow_screen_leaves_columns_out_and_cuts_no_figure(width: int, columns: int) -> None:
    comparison = a_story((Role.OURS, 54.6, 600.0), (Role.FRONTIER, 41.0, 2200.0))
    last = comparison.outcomes[1]
    named = replace(last, alternative=replace(last.alternative, name="start 40 min, drain 80 min"))
    table = on_a_screen(replace(comparison, outcomes=(comparison.outcomes[0], named)), width)

    assert "…" not in table
    head = next(line for line in table.splitlines() if line.endswith(("wait p95", "launches")))
    assert len(re.split(r" {2,}", head.strip())) == columns
    assert re.search(r"^start 40 min, drain 80 min +41\.00 .*36\.7 min", table, re.MULTILINE)


def test_a_policy_that_did_nothing_is_shown_without_figures() -> None:
    (outcome,) = a_story((Role.OURS, 0.0, 0.0)).outcomes
    idle = replace(
        outcome.result,
        jobs_done=0,
        items_done=0,
        launches=0,
        busy_seconds=0.0,
        bill=dict.fromkeys(CAUSES, 0.0),
    )
    comparison = compare(a_story((Role.OURS, 0.0, 0.0)).gathered, [replace(outcome, result=idle)])
    table = on_a_screen(comparison, 120)

    assert re.search(r"^ours-0 +0\.00 +0\.00 +- +- +- +- +0$", table, re.MULTILINE)
    page = write_page(comparison)
    assert "the work alone" not in page.lower()
    assert "<b>1 of 1</b><span>jobs were left undone</span>" in page
    assert "<td>0.00</td><td>-</td><td>-</td><td>-</td><td>-</td><td>0</td><td>-</td>" in page
    assert "Cost against delay" not in page
    told = comparison_to_json(comparison)
    assert not re.search(r"Infinity|NaN", json.dumps(told))
    nothing = dict.fromkeys(("mean", "p50", "p95", "p99", "most"))
    assert (told["results"][0]["wait"], told["results"][0]["sojourn"]) == (nothing, nothing)
