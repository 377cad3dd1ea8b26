"""``spindown simulate``: a small week, in the terminal, as JSON and as a page."""

import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from spindown.cli.history.arrival import Traffic
from spindown.cli.history.gather import Gathered
from spindown.cli.history.price import Prices
from spindown.cli.history.subject import default_subject
from spindown.cli.init.command import init
from spindown.cli.main import main
from spindown.cli.simulate.contest import (
    Contestant,
    Outcome,
    Role,
    baselines,
    frontier,
    ours,
    run_contest,
)
from spindown.cli.simulate.page.page import write_page
from spindown.cli.simulate.page.series import bin_samples, busiest_day
from spindown.cli.simulate.story import Story, at_their_speed, story_to_json, tell
from spindown.cli.simulate.table import (
    floor_sentence,
    format_days,
    format_wait,
    render_story,
    speed_sentence,
    unfinished_sentences,
)
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.simulator import BASELINES, Arrival, Sample, simulate
from spindown.simulator.result import CAUSES
from tests.simulator.scene import DAY, HOUR, a_scenario, an_arrival
from tests.unit.cli.guide import not_in_guide

TRAFFIC = """timestamp,items,item_seconds
2026-06-01T09:00:10Z,50,6
2026-06-01T09:00:20Z,40,6
2026-06-01T09:40:00Z,30,6
2026-06-01T11:20:00Z,80,6
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory that has traffic and no spindown.toml."""
    (tmp_path / "traffic.csv").write_text(TRAFFIC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--arrivals", "traffic.csv", "--processes", "1", *arguments])
    assert not ended.value.code
    said = capsys.readouterr()
    return said.out, said.err


def test_a_table_tells_what_each_way_costs(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "--against", "warm,classic")

    assert "4 jobs, 200 items" in out
    assert re.search(r"^spindown +\d+\.\d\d ", out, re.MULTILINE)
    assert re.search(r"^warm +\d+\.\d\d ", out, re.MULTILINE)
    assert re.search(r"^classic-alarm ", out, re.MULTILINE)
    assert "No policy that starts every job within" in out
    # Standard error is no terminal here, so that the bar is not drawn into a file.
    assert err == ""


def test_json_has_every_figure_and_is_the_same_for_the_same_seed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, _ = run(capsys, "--against", "warm", "--json", "--seed", "7")
    again, _ = run(capsys, "--against", "warm", "--json", "--seed", "7")
    told = json.loads(first)

    assert first == again
    assert (told["seed"], told["arrivals"]) == (7, "traffic.csv")
    assert not_in_guide(told) == set()
    ours_, warm = told["results"]
    assert (ours_["role"], warm["role"]) == ("ours", "baseline")
    assert ours_["jobs_done"] == warm["jobs_done"] == 4
    assert sum(ours_["bill"].values()) == pytest.approx(ours_["dollars"])
    assert 0 < told["bound_at_our_delay"] <= ours_["dollars"] < warm["dollars"]
    assert told["over_bound"] == pytest.approx(ours_["dollars"] / told["bound_at_our_delay"])


def test_the_policy_of_the_file_is_the_one_that_is_simulated(
    capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    (directory / "spindown.toml").write_text(
        '[deployment]\nname = "here"\nregion = "us-east-1"\nzones = ["us-east-1a"]\n'
        '[workload.ocr.run]\nentrypoint = "ocr:run"\ncode = "code"\n'
        '[workload.ocr.requirements]\ngpu_names = ["L4"]\n'
        "[workload.ocr.policy]\nwarm_workers = 0\nthroughput_estimate = 500.0\n",
        encoding="utf-8",
    )
    out, _ = run(capsys, "--against", "none", "--json")
    told = json.loads(out)

    assert (told["workload"], told["policy"]) == ("ocr", "spindown.toml")
    assert set(told["results"][0]["types"]) == {"g6.xlarge"}


def test_a_first_draft_is_simulated_before_it_knows_its_zones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    init()
    capsys.readouterr()

    out, _ = run(capsys, "--against", "none", "--json")

    assert json.loads(out)["workload"] == "main"


def test_of_any_traffic_the_last_days_are_used_if_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _ = run(capsys, "--against", "none", "--days", "0.1")

    assert "2 jobs, 110 items" in out
    assert "of 0.125 days of history the last 0.1 are used" in out


def test_a_page_loads_nothing_and_shows_every_plot(
    capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    run(capsys, "--against", "warm,batch", "--html", "page.html")
    first = (directory / "page.html").read_bytes()
    run(capsys, "--against", "warm,batch", "--html", "page.html")
    page = (directory / "page.html").read_text(encoding="utf-8")

    assert page.encode() == first
    assert not re.search(r"<script|<link|<img|@import|url\((?!#)|src=", page)
    assert set(re.findall(r'(?:href|xlink:href)="(.)', page)) <= {"#"}
    plots = re.findall(r"<figure>(<svg .*?</svg>)\s*</figure>", page, re.DOTALL)
    assert len(plots) == 4
    seen: set[str] = set()
    for plot in plots:
        root = ET.fromstring(plot)  # noqa: S314 - we have just written it
        assert root.get("role") == "img"
        assert root.get("aria-label")
        ids = [one for each in root.iter() if (one := each.get("id")) and "clip" in each.tag]
        assert seen.isdisjoint(ids)
        seen.update(ids)
    words = re.sub(r"<[^>]+>", " ", page)
    for name in ("spindown", "warm", "batch", "USD per 1,000 items", "share of the bill"):
        assert name in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--arrivals", "absent.csv"], "--arrivals is 'absent.csv': give a", id="file"),
        pytest.param(["--prices", "absent.csv"], "--prices is 'absent.csv': give a", id="prices"),
        pytest.param(["--against", "nobody"], "--against is 'nobody': name some of", id="baseline"),
        pytest.param(["--boot", "soon"], "--boot is 'soon': write a duration", id="a boot"),
        pytest.param(["--boot", "0s"], "--boot is '0s': give at least 1s", id="no boot"),
        pytest.param(["--policy", "no.toml"], "spindown.toml is 'no.toml': give a", id="policy"),
        pytest.param(["--seed", "x"], "Invalid value for '--seed'", id="a seed"),
        pytest.param(
            ["--workload", "ocr"], "--workload is 'ocr': name its file with", id="no file"
        ),
        pytest.param(["--prices", "live"], "--prices is 'live': go where spindown.toml", id="live"),
        pytest.param(
            ["--arrivals", "office", "--days", "0.1"],
            "--days is 0.1: take more of them: no job came",
            id="no job",
        ),
        pytest.param(["--html", "no/page.html"], "--html is 'no/page.html': name a", id="folder"),
    ],
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--arrivals", "traffic.csv", "--against", "none", *arguments])
    told = capsys.readouterr()

    assert (ended.value.code, told.out) == (1, "")
    assert told.err.startswith(f"spindown: {said}")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("all", list(BASELINES)),
        ("none", []),
        ("asg", ["asg-cpu", "asg-backlog"]),
        (" classic-alarm, warm ", ["warm", "classic-alarm"]),
    ],
)
def test_baselines_are_named_by_name_or_begin(asked: str, names: list[str]) -> None:
    assert [one.name for one in baselines(asked, Policy())] == names


@pytest.mark.parametrize("asked", ["", "wrm", "warm,,x"])
def test_a_baseline_that_there_is_not_is_refused(asked: str) -> None:
    with pytest.raises(BadInput, match="name some of warm, "):
        baselines(asked, Policy())


def test_a_contest_does_not_depend_on_how_many_run_at_a_time() -> None:
    scenario = a_scenario(an_arrival(), an_arrival(at=HOUR), length=2 * HOUR)
    contestants = [ours(Policy()), *baselines("warm,batch", Policy()), frontier(Policy())[0]]
    heard: dict[int, float] = {}
    alone = run_contest(scenario, contestants, seed=1, processes=1, report=lambda *_: None)
    together = run_contest(
        scenario,
        contestants,
        seed=1,
        processes=2,
        report=heard.__setitem__,
    )

    assert [one.result.digest for one in alone] == [one.result.digest for one in together]
    assert [one.contestant.role for one in alone] == [
        Role.OURS,
        Role.BASELINE,
        Role.BASELINE,
        Role.FRONTIER,
    ]
    assert heard == dict.fromkeys(range(4), 1.0)


def a_story(*points: tuple[Role, float, float]) -> Story:
    """Return a story of (role, dollars, 95 % wait); the first is ours."""
    scenario = a_scenario(length=HOUR)
    result = simulate(scenario, Policy(), 1)
    traffic = Traffic(
        source="here",
        arrivals=scenario.arrivals,
        start=scenario.start,
        length=HOUR,
        is_dated=False,
    )
    return tell(
        Gathered(
            subject=replace(default_subject(), budget_per_month=5.0),
            traffic=traffic,
            prices=Prices(source="here", listings=scenario.listings),
            seed=1,
        ),
        [
            Outcome(
                contestant=Contestant(
                    name=f"{role}-{number}", title="", role=role, policy=Policy()
                ),
                result=replace(
                    result,
                    dollars=dollars,
                    wait=replace(result.wait, p95=wait),
                    jobs_done=result.jobs - (dollars < 1.0),
                ),
            )
            for number, (role, dollars, wait) in enumerate(points)
        ],
    )


def test_others_are_held_against_the_promise_that_is_as_fast_as_they_are() -> None:
    story = a_story(
        (Role.OURS, 10.0, 600.0),
        (Role.BASELINE, 40.0, 700.0),
        (Role.BASELINE, 40.0, 100.0),
        (Role.BASELINE, 90.0, 5.0),
        (Role.FRONTIER, 16.0, 90.0),
    )

    assert at_their_speed(story) == ([("baseline-1", 4.0), ("baseline-2", 2.5)], ["baseline-3"])
    assert "by a factor of: baseline-1 4.0, baseline-2 2.5." in speed_sentence(story)
    assert "as fast as baseline-3: that takes warm_workers" in speed_sentence(story)
    assert [row.times_ours for row in story.rows] == [1.0, 4.0, 4.0, 9.0]
    assert list(unfinished_sentences(story)) == []


def test_work_that_was_left_is_said_and_the_budget_that_may_have_stopped_it() -> None:
    story = a_story((Role.OURS, 0.5, 600.0), (Role.BASELINE, 0.4, 700.0))

    mine, theirs = unfinished_sentences(story)
    left = "left 1 job undone; its cost is that of the rest."
    assert mine == f"ours-0 {left} Launches stop at the budget of $5.00 a month."
    assert theirs == f"baseline-1 {left}"
    # What was left is not cheap: neither a bound nor another way is held against it.
    assert story.ratio is None
    assert story_to_json(story)["over_bound"] is None
    assert "did not do all of the work" in floor_sentence(story)
    assert [row.times_ours for row in story.rows] == [None, None]
    assert at_their_speed(story) == ([], [])
    assert speed_sentence(story) == ""


def test_those_who_left_as_much_undone_are_named_together() -> None:
    story = a_story(
        (Role.OURS, 10.0, 600.0),
        (Role.BASELINE, 0.4, 700.0),
        (Role.BASELINE, 0.5, 700.0),
        (Role.BASELINE, 9.0, 700.0),
        (Role.FRONTIER, 0.6, 700.0),
    )

    theirs, mine = unfinished_sentences(story)
    assert theirs == (
        "baseline-1, baseline-2 left 1 job undone each; their cost is that of the rest."
    )
    assert mine.startswith("frontier-4 left 1 job undone; its cost is that of the rest. Launches")
    assert [row.times_ours for row in story.rows] == [1.0, None, None, 0.9]
    assert at_their_speed(story) == ([("baseline-3", 0.9)], [])
    assert speed_sentence(story).endswith("is no cheaper; they cost, over it: baseline-3 0.9.")
    page = write_page(story)
    assert "<b>0.9 x</b><span>is what baseline-3 costs, the cheapest other way</span>" in page
    # What did nothing is not the cheapest and fastest of all.
    plot = page[page.index("Cost against delay") : page.index("The bill by cause")]
    assert "baseline-3" in plot
    assert "baseline-1" not in plot


def on_a_screen(story: Story, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_story(story, width=width))
    return cast("io.StringIO", console.file).getvalue()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, 7),
        (80, 5),
        (60, 3),
    ],
)
def test_a_narrow_screen_leaves_columns_out_and_cuts_no_figure(width: int, columns: int) -> None:
    story = a_story((Role.OURS, 54.6, 600.0), (Role.FRONTIER, 41.0, 2200.0))
    last = story.outcomes[1]
    named = replace(last, contestant=replace(last.contestant, name="start 40 min, drain 80 min"))
    table = on_a_screen(replace(story, outcomes=(story.outcomes[0], named)), width)

    assert "…" not in table
    head = next(line for line in table.splitlines() if line.endswith(("wait p95", "launches")))
    assert len(re.split(r" {2,}", head.strip())) == columns
    assert re.search(r"^start 40 min, drain 80 min +41\.00 .*36\.7 min", table, re.MULTILINE)


def test_a_policy_that_did_nothing_is_shown_without_figures_of_what_it_did() -> None:
    (outcome,) = a_story((Role.OURS, 0.0, 0.0)).outcomes
    idle = replace(
        outcome.result,
        jobs_done=0,
        items_done=0,
        launches=0,
        busy_seconds=0.0,
        bill=dict.fromkeys(CAUSES, 0.0),
    )
    story = tell(a_story((Role.OURS, 0.0, 0.0)).gathered, [replace(outcome, result=idle)])
    table = on_a_screen(story, 120)

    assert re.search(r"^ours-0 +0\.00 +0\.00 +- +- +- +- +0$", table, re.MULTILINE)
    page = write_page(story)
    assert "the least possible" not in page
    assert "<td>0.00</td><td>-</td><td>-</td><td>-</td><td>-</td><td>0</td><td>-</td>" in page
    assert "Cost against delay" not in page
    told = story_to_json(story)
    assert not re.search(r"Infinity|NaN", json.dumps(told))
    nothing = dict.fromkeys(("mean", "p50", "p95", "most"))
    assert (told["results"][0]["wait"], told["results"][0]["sojourn"]) == (nothing, nothing)


def a_sample(seconds: float, *, visible: int = 0, busy: int = 0, idle: int = 0) -> Sample:
    return Sample(seconds=seconds, visible=visible, in_flight=0, booting=0, idle=idle, busy=busy)


def test_what_was_seen_holds_until_the_next_look_and_not_beyond_the_end() -> None:
    samples = [
        a_sample(0.0),
        a_sample(50.0, visible=3, busy=2),
        a_sample(150.0, visible=1, busy=1, idle=1),
    ]
    series = bin_samples(samples, begin=0.0, end=400.0, bins=4, over=300.0)

    assert series.edges == (0.0, 100.0, 200.0, 300.0, 400.0)
    assert series.backlog == (3.0, 3.0, 1.0, 0.0)
    assert series.busy == pytest.approx((1.0, 1.5, 1.0, 0.0))
    assert series.idle == pytest.approx((0.0, 0.5, 1.0, 0.0))


def test_the_busiest_day_is_the_one_that_brings_most_work() -> None:
    arrivals = [
        Arrival(at=HOUR, items=5, item_seconds=1.0),
        Arrival(at=2 * DAY, items=1, item_seconds=90.0),
        Arrival(at=3 * DAY - 1, items=1, item_seconds=9.0),
    ]

    assert busiest_day(arrivals, 5 * DAY) == (2 * DAY, 3 * DAY)
    assert busiest_day(arrivals, HOUR) == (0.0, HOUR)
    assert busiest_day([], 5 * DAY) == (0.0, DAY)


def test_spans_are_said_as_people_say_them() -> None:
    assert [format_wait(seconds) for seconds in (4.4, 90.0, 7300.0)] == ["4 s", "1.5 min", "2.0 h"]
    assert [format_days(seconds) for seconds in (HOUR, 7200.0, 30 * DAY)] == [
        "1 hour",
        "2 hours",
        "30 days",
    ]
    assert frontier(Policy())[0].policy.drain_within == timedelta(minutes=2)
