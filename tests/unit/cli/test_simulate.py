"""``spindown simulate``: a small week, in the terminal, as JSON and as a page."""

import json
import re
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from spindown.cli.history.gather import gather
from spindown.cli.history.option import SimulationOptions
from spindown.cli.init import init
from spindown.cli.main import main
from spindown.cli.render.canvas import check_page
from spindown.cli.render.screen import format_wait
from spindown.cli.simulate.alternative import (
    Role,
    baselines,
    frontier,
    ours,
    simulate_all,
)
from spindown.cli.simulate.page.timeline import bin_samples, busiest_day
from spindown.cli.simulate.table import (
    ceiling_sentence,
    format_days,
)
from spindown.domain.offer import extra_price_per_hour
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.simulator import BASELINES, OURS_ON_DEMAND, Arrival, Sample
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


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.proof)])
def test_what_init_writes_keeps_its_own_promise(seed: int) -> None:
    init()
    gathered = gather(
        SimulationOptions(arrivals="office", prices="sample", last_days=2.0, seed=seed)
    )
    policy = gathered.subject.policy
    (outcome,) = simulate_all(
        gathered.scenario, [ours(policy)], seed=seed, processes=1, report=lambda *_: None
    )

    assert outcome.is_whole
    assert ceiling_sentence(outcome.result, policy) == ""
    assert outcome.result.wait.p95 <= policy.start_within.total_seconds()


def test_a_table_tells_what_each_way_costs(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "--against", "warm,classic")

    assert "4 jobs, 200 items" in out
    assert re.search(r"^spindown +\d+\.\d\d ", out, re.MULTILINE)
    assert re.search(r"^warm +\d+\.\d\d ", out, re.MULTILINE)
    assert re.search(r"^classic-alarm ", out, re.MULTILINE)
    assert "The work alone" in out
    # Standard error is no terminal here, so that the bar is not drawn into a file.
    # Lines of progress, where no terminal is: what is read, and each way that is done.
    assert err.count("\n") == 5


def test_json_has_every_figure_and_repeats_with_its_seed(
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
    assert 0 < told["work_alone_dollars"] <= ours_["dollars"] < warm["dollars"]
    assert told["over_work_alone"] == pytest.approx(ours_["dollars"] / told["work_alone_dollars"])


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


def test_the_last_days_of_any_traffic_are_used_on_request(
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


def test_the_name_of_a_page_is_told_as_it_is(
    capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    # Both what opens a style for Rich and what closes one.
    name = "a[/page][draft].html"
    (directory / "a[").mkdir()

    out, _ = run(capsys, "--against", "none", "--html", name)

    assert out.endswith(f"The page is {name}.\n")


def test_figures_are_told_though_the_page_cannot_be_written(
    capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    (directory / "page.html").symlink_to(directory / "gone" / "page.html")
    asked = ["--arrivals", "traffic.csv", "--against", "none", "--processes", "1"]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *asked, "--html", "page.html"])
    told = capsys.readouterr()

    assert ended.value.code == 1
    assert re.search(r"^spindown +\d+\.\d\d ", told.out, re.MULTILINE)
    assert "The page is" not in told.out
    assert "page.html" in told.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--arrivals", "absent.csv"], "--arrivals is 'absent.csv': give a", id="file"),
        pytest.param(["--prices", "absent.csv"], "--prices is 'absent.csv': give a", id="prices"),
        pytest.param(["--against", "nobody"], "--against is 'nobody': name some of", id="baseline"),
        pytest.param(["--boot", "soon"], "--boot is 'soon': write a duration", id="a boot"),
        pytest.param(["--boot", "0s"], "--boot is '0s': give at least 1s", id="no boot"),
        pytest.param(["--policy", "no.toml"], "--policy is 'no.toml': give a", id="policy"),
        pytest.param(["--config", "no.toml"], "--policy is 'no.toml': give a", id="config"),
        pytest.param(
            ["--arrivals", "cloudwatch", "--policy", "no.toml"],
            "--policy is 'no.toml': give a",
            id="policy of a deployment",
        ),
        pytest.param(["--seed", "x"], "--seed is 'x': write a whole number", id="a seed"),
        pytest.param(
            ["--workload", "ocr"], "--workload is 'ocr': name its file with", id="no file"
        ),
        pytest.param(["--prices", "live"], "--prices is 'live': go where spindown.toml", id="live"),
        pytest.param(
            ["--arrivals", "office", "--days", "0.1"],
            "--days is 0.1: take more of them: no job came",
            id="no job",
        ),
        pytest.param(["--html", "."], "--html is '.': name a file in this folder", id="a folder"),
        pytest.param(["--html", "no/page.html"], "--html is 'no/page.html': name a", id="folder"),
        pytest.param(
            ["--html", "/proc/page.html"],
            "--html is '/proc/page.html': name a file that can be written (No such file",
            id="a folder that takes no file",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--arrivals", "traffic.csv", "--against", "none", *arguments])
    told = capsys.readouterr()

    assert (ended.value.code, told.out) == (1, "")
    *progress, mistake = told.err.splitlines()
    assert mistake.startswith(f"spindown: {said}")
    assert len(progress) <= 1


def test_a_look_whether_a_page_can_be_written_leaves_nothing(directory: Path) -> None:
    before = sorted(directory.iterdir())
    check_page(directory / "page.html")

    assert sorted(directory.iterdir()) == before


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("all", [OURS_ON_DEMAND, *BASELINES]),
        ("none", []),
        ("asg", ["asg-backlog"]),
        ("ours", [OURS_ON_DEMAND]),
        ("vm,warm", ["warm", "vm-per-job"]),
        (" classic-alarm, warm ", ["warm", "classic-alarm"]),
    ],
)
def test_baselines_are_named_by_name_or_begin(asked: str, names: list[str]) -> None:
    assert [one.name for one in baselines(asked, Policy())] == names


@pytest.mark.parametrize("asked", ["", "wrm", "warm,,x"])
def test_a_baseline_that_there_is_not_is_refused(asked: str) -> None:
    with pytest.raises(BadInput, match="name some of ours-on-demand, warm, asg-backlog, "):
        baselines(asked, Policy())


def test_a_contest_does_not_depend_on_how_many_run_at_a_time() -> None:
    scenario = a_scenario(an_arrival(), an_arrival(at=HOUR), length=2 * HOUR)
    alternatives = [ours(Policy()), *baselines("warm,batch", Policy()), frontier(Policy())[0]]
    heard: dict[int, float] = {}
    alone = simulate_all(scenario, alternatives, seed=1, processes=1, report=lambda *_: None)
    together = simulate_all(
        scenario,
        alternatives,
        seed=1,
        processes=2,
        report=heard.__setitem__,
    )

    assert [one.result.digest for one in alone] == [one.result.digest for one in together]
    assert [one.alternative.role for one in alone] == [
        Role.OURS,
        Role.BASELINE,
        Role.BASELINE,
        Role.FRONTIER,
    ]
    assert heard == dict.fromkeys(range(4), 1.0)


def test_our_policy_on_demand_pays_the_list_price_and_no_spot() -> None:
    scenario = a_scenario(an_arrival(), an_arrival(at=HOUR), length=2 * HOUR)
    policy = Policy(idle_timeout=timedelta(minutes=2))
    alternatives = [ours(policy), *baselines(OURS_ON_DEMAND, policy)]
    spot, on_demand = (
        one.result
        for one in simulate_all(scenario, alternatives, seed=1, processes=1, report=lambda *_: None)
    )

    assert (spot.on_demand_dollars, spot.jobs_done) == (0.0, 2)
    assert on_demand.on_demand_dollars == on_demand.dollars
    # The same course of events, each hour at 0.50 in place of 0.20.
    assert (on_demand.launches, on_demand.wait) == (spot.launches, spot.wait)
    extra = extra_price_per_hour(100)
    assert on_demand.dollars / spot.dollars == pytest.approx((0.50 + extra) / (0.20 + extra))


def a_sample(seconds: float, *, visible: int = 0, busy: int = 0, idle: int = 0) -> Sample:
    return Sample(seconds=seconds, visible=visible, in_flight=0, booting=0, idle=idle, busy=busy)


def test_what_was_seen_holds_until_the_next_look_or_the_end() -> None:
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
