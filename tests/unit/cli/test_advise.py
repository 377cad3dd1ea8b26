"""``spindown advise``: the cheapest settings within a promise, and the figures behind them."""

import io
import json
import re
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from spindown.cli.advise.advice import Advice, advise, long_jobs
from spindown.cli.advise.report import advice_to_json, policy_command, render_advice
from spindown.cli.history.gather import Gathered, gather
from spindown.cli.history.option import SimulationOptions
from spindown.cli.main import main
from spindown.cli.option import GIVEN
from spindown.cli.simulate.alternative import Alternative, ours, simulate_all
from spindown.config import parse_duration
from spindown.domain.advice import Answer
from spindown.domain.boot import BootPhase
from spindown.domain.offer import CapacityType, extra_price_per_hour
from spindown.domain.policy import Policy, Rung
from spindown.domain.reason import ReasonCode
from spindown.reason_text import say
from spindown.simulator import SimResult, Zone
from tests.page import form, shown
from tests.unit.cli.guide import not_in_guide
from tests.unit.cli.trial import a_present

pytestmark = pytest.mark.long

TRAFFIC = "timestamp,items,item_seconds\n" + "".join(
    f"2026-06-01T{hour:02}:{minute:02}:00Z,30,8\n" for hour in (9, 11) for minute in (0, 4, 20)
)


def _gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traffic: str = TRAFFIC) -> Gathered:
    (tmp_path / "traffic.csv").write_text(traffic, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return gather(SimulationOptions(arrivals="traffic.csv", prices="sample"))


def test_an_advice_is_printed_and_told_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traffic.csv").write_text(TRAFFIC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = {}
    for options in ((), ("--json",)):
        with pytest.raises(SystemExit) as ended:
            main(["advise", "--arrivals", "traffic.csv", "--processes", "1", *options])
        assert not ended.value.code
        said[options] = capsys.readouterr().out
    text, told = said[()], json.loads(said["--json",])

    assert told["advised"]["dollars_a_month"] <= told["now"]["dollars_a_month"]
    assert told["advised"]["keeps_promise"]
    # The smallest machine could do these two hours of work: no dearer one need be reserved.
    assert "One reserved g4dn.xlarge costs" in told["when_not"][1]["sentence"]
    assert [each["case"] for each in told["when_not"]] == [
        "latency-critical work",
        "constant load",
        "too small a bill",
        "long items without a checkpoint",
        "work that bears no interruption",
    ]
    assert all(each["sentence"] in " ".join(text.split()) for each in told["when_not"])
    assert told["command"] in text
    assert told["long_jobs"] is None
    assert not_in_guide(told) == set()
    assert "If jobs may be done later" not in text
    assert told["simulations"] <= 21
    (example,) = shown("spindown advise")
    assert keys_of(example) == keys_of(text)
    assert now_of(example) == now_of(text)


def now_of(text: str) -> list[str]:
    """Return the form of the line that tells what the present settings cost."""
    (line,) = (line for line in text.splitlines() if line.startswith("Now "))
    # A wait is told in seconds or in minutes.
    return [word for word in form(line) if word not in {"s", "min"}]


def keys_of(text: str) -> list[str]:
    """Return the first column of the table of settings."""
    table = text.partition("\nsetting ")[2].partition("\n\n")[0]
    return re.findall(r"^(\w+)", table, re.MULTILINE)[1:]


LONG = "timestamp,items,item_seconds\n" + "".join(
    f"2026-06-01T{hour:02}:00:00Z,{items},9\n" for hour, items in ((9, 900), (11, 1500), (13, 10))
)


def test_a_possible_deadline_for_long_jobs_is_said_not_advised(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traffic.csv").write_text(LONG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = SimulationOptions(arrivals="traffic.csv", prices="sample")
    advice = advise(gather(options), 60.0, run_alone)
    told = advice_to_json(advice)["long_jobs"]
    assert not_in_guide(told) == set()
    text = " ".join(on_a_screen(advice, 200).split())

    # A job of 1,500 items is split into a child of 1,000 and one of 500.
    assert told["longest_seconds"] <= 1000 * 9.0
    within = parse_duration(told["finish_within"])
    assert within >= 2 * timedelta(seconds=told["longest_seconds"])
    assert told["spared_a_month_at_most"] > told["spared_an_hour"] > 0.0
    assert told["finished_within_seconds"] <= within.total_seconds()
    assert f"finish_within={told['finish_within']} lets them wait for spot" in text
    assert f"the month costs ${told['dollars_a_month']:,.2f} with it" in text
    assert advice.best.settings.policy.finish_within is None


def test_a_narrow_screen_cuts_no_setting_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traffic.csv").write_text(TRAFFIC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    advice = advise(
        gather(SimulationOptions(arrivals="traffic.csv", prices="sample")), 60.0, run_alone
    )
    text = on_a_screen(advice, 44)

    assert "…" not in text
    for key in ("start_within", "scale_up_threshold", "max_price_per_hour", "families_denied"):
        assert re.search(rf"^{key}\b", text, re.MULTILINE)


def test_slow_installs_are_told_with_what_baking_spares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    phases = {BootPhase.IMAGE: (30.0,), BootPhase.INSTALL: (90.0,)}
    knowledge = replace(gathered.subject.knowledge, boot_phases=phases)
    slow = replace(gathered, subject=replace(gathered.subject, knowledge=knowledge))
    advice = advise(slow, 600.0, run_alone)
    told = advice_to_json(advice)["boot"]

    spared = 0.75 * advice.best.result.bill["boot"] / advice.months
    modes = told["modes_a_month"]
    assert modes["bootstrap"] == pytest.approx(spared)
    assert modes["auto"] <= modes["bootstrap"]
    assert told["slowest"] == "install"
    # 100 GiB, six images of one architecture, and 4.35 builds of 8.4 cents.
    assert modes["bake"] == pytest.approx(100 * 0.05 * 6 + 0.36, abs=0.01)
    assert not_in_guide(told) == set()
    assert f"${spared:,.2f}" in on_a_screen(advice, 200)


def test_the_slowest_phase_of_boots_is_always_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    phases = {BootPhase.IMAGE: (80.0,), BootPhase.INSTALL: (20.0,)}
    knowledge = replace(gathered.subject.knowledge, boot_phases=phases)
    subject = replace(gathered.subject, workload="ocr", knowledge=knowledge)
    text = " ".join(
        on_a_screen(advise(replace(gathered, subject=subject), 600.0, run_alone), 200).split()
    )

    assert "A boot takes 100 s, most of it image: image 80 s, install 20 s." in text
    assert "`spindown rightsize ocr` compares them" in text
    assert "image.mode" not in text


def test_who_keeps_workers_warm_is_told_the_price_of_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    policy = replace(gathered.subject.policy, warm_workers=3)
    gathered = replace(gathered, subject=replace(gathered.subject, policy=policy))
    tried: list[int] = []

    def run(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        tried.extend(one.policy.warm_workers for one in alternatives)
        return run_alone(alternatives, ())

    latency, *_ = advise(gathered, 600.0, run).verdicts

    assert set(tried) == {3}
    assert "and warm_workers = 3 the month costs" in say(latency.reason)


def test_the_command_names_the_deployment_that_was_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = advise(_gathered(tmp_path, monkeypatch), 600.0, run_alone)
    policy = replace(advice.best.settings.policy, max_workers=77)
    settings = replace(advice.best.settings, policy=policy)
    other = replace(advice, best=replace(advice.best, settings=settings))

    def command() -> str:
        GIVEN.set(" --local")
        return policy_command(other)

    said = copy_context().run(command)
    assert "max_workers=77" in said
    assert said.endswith(" --local")


def on_a_screen(advice: Advice, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_advice(advice), crop=False)
    return cast("io.StringIO", console.file).getvalue()


def run_alone(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
    """Give all of them the result of the first's policy, simulated once for all tests."""
    result = _simulated(Path("traffic.csv").read_text(encoding="utf-8"), alternatives[0].policy)
    return [result] * len(alternatives)


@cache
def _simulated(traffic: str, policy: Policy) -> SimResult:
    scenario = gather(SimulationOptions(arrivals="traffic.csv", prices="sample")).scenario
    (outcome,) = simulate_all(scenario, [ours(policy)], seed=1, processes=1, report=lambda *_: None)
    return outcome.result


@pytest.mark.parametrize(
    ("changes", "advised"),
    [
        pytest.param({"max_workers": 0}, None, id="no worker is allowed"),
        pytest.param({"max_price_per_hour": 0.15}, 0.3, id="nothing costs so little"),
    ],
)
def test_settings_that_leave_work_undone_are_no_yardstick(
    changes: dict[str, float],
    advised: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    policy = replace(gathered.subject.policy, **changes)  # type: ignore[arg-type]
    gathered = replace(gathered, subject=replace(gathered.subject, policy=policy))
    # Four days of vain tries would take minutes.
    brief = replace(gathered.scenario, overtime=1800.0)

    def run(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        outcomes = simulate_all(brief, alternatives, seed=1, processes=1, report=lambda *_: None)
        return [outcome.result for outcome in outcomes]

    advice = advise(gathered, None, run)
    text = on_a_screen(advice, 200)
    told = advice_to_json(advice)

    # What never starts waits for no time: the promise is the policy's own.
    assert told["promise_seconds"] == policy.start_within.total_seconds()
    assert "within 15.0 min, as start_within says." in text
    assert told["now"]["jobs_undone"] == 6
    assert told["now"]["wait_p95_seconds"] is None
    assert told["saving_a_month"] is None
    assert re.search(r"^Now +\$0\.00 a month, 6 of 6 jobs left undone$", text, re.MULTILINE)
    assert not re.search(r"inf|nan", text.replace("Nothing", ""))
    if advised is None:
        assert "does all of the work until 4 days after the traffic; see max_workers," in text
        assert told["when_not"] == []
    else:
        assert told["advised"]["settings"]["max_price_per_hour"] == advised
        assert told["advised"]["jobs_undone"] == 0
        assert "That does all of the work, and keeps the promise" in text
        assert len(told["when_not"]) == 5


def test_work_that_cannot_wait_is_told_what_that_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    tried: list[Policy] = []

    def run(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        tried.extend(one.policy for one in alternatives)
        return run_alone(alternatives, ())

    advice = advise(gathered, 3600.0, run)
    (warm,) = (policy for policy in tried if policy.warm_workers)

    # A warm worker beside the patience of an hour would be paid for, and nothing started sooner.
    assert warm.start_within == timedelta(minutes=1)
    assert warm.drain_within == timedelta(minutes=2)
    assert warm.scale_up_threshold == 1
    for name in ("start_within = 1m", "drain_within = 2m", "scale_up_threshold = 1"):
        assert name in say(advice.verdicts[0].reason)


def test_steady_work_that_starts_at_once_needs_no_warm_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)

    def run(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        return [replace(x, wait=replace(x.wait, p95=0.0)) for x in run_alone(alternatives, ())]

    latency, *_ = advise(gathered, None, run).verdicts
    warm = replace(gathered.subject, policy=replace(gathered.subject.policy, warm_workers=1))
    kept_warm, *_ = advise(replace(gathered, subject=warm), None, run).verdicts

    assert (latency.answer, kept_warm.answer) == (Answer.NO, Answer.YES)


@pytest.mark.parametrize(
    ("dollars", "said"),
    [
        pytest.param((10.0, 9.0), "With seed 2 the same change saves ", id="again"),
        pytest.param((10.0, 10.5), "With seed 2 the same change saves nothing: what", id="dearer"),
    ],
)
def test_a_saving_is_looked_at_again_under_another_seed(
    dollars: tuple[float, float], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)

    def run(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        """Return a cheaper result for whoever is more patient than the settings in force."""
        found = run_alone(alternatives, ())
        return [
            replace(each, dollars=each.dollars * (0.5 if one.name == "scale_up_threshold" else 1.0))
            for one, each in zip(alternatives, found, strict=True)
        ]

    def again(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        found = run_alone(alternatives, ())
        return [replace(x, dollars=each) for x, each in zip(found, dollars, strict=True)]

    advice = advise(gathered, 3600.0, run, again)
    told = advice_to_json(advice)

    assert said in " ".join(on_a_screen(advice, 200).split())
    assert told["saving_a_month_again"] == pytest.approx((dollars[0] - dollars[1]) / advice.months)
    assert not_in_guide(told) == set()
    unchecked = advise(gathered, 3600.0, run)
    assert unchecked.simulations == advice.simulations - 2
    assert advice_to_json(unchecked)["saving_a_month_again"] is None


def test_who_waits_for_want_of_workers_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    most = gathered.subject.policy.max_workers

    def run(alternatives: Sequence[Alternative], _: object) -> list[SimResult]:
        late = [replace(x, wait=replace(x.wait, p95=9999.0)) for x in run_alone(alternatives, ())]
        return [replace(x, peak=most) for x in late]

    text = " ".join(on_a_screen(advise(gathered, None, run), 200).split())

    assert f"since at times all of max_workers = {most} are busy: more of them would" in text


NARROW = 60


def test_the_line_to_copy_is_whole_however_long(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-workload-of-a-team-of-people"
    (tmp_path / "traffic.csv").write_text(TRAFFIC, encoding="utf-8")
    (tmp_path / "spindown.toml").write_text(
        '[deployment]\nname = "demo"\nregion = "us-west-2"\n'
        f'[workload.{name}.run]\nentrypoint = "a:run"\ncode = "a"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(NARROW))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["advise", "--arrivals", "traffic.csv", "--processes", "1", "--within", "1h"])
    assert not ended.value.code
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    (line,) = (x for x in text.splitlines() if "policy set" in x)

    assert re.search(rf"set {name}( [a-z_]+=[0-9a-z]+)+$", line)
    assert len(line) > NARROW


SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


@pytest.mark.parametrize(
    "ladder",
    [
        pytest.param((("0s", [ON_DEMAND]),), id="on demand alone"),
        pytest.param((("0s", [SPOT]),), id="spot alone"),
        pytest.param((("0s", [SPOT, ON_DEMAND]), ("5m", [ON_DEMAND])), id="on demand at once"),
    ],
)
def test_a_deadline_is_useless_where_no_rung_waits(
    ladder: tuple[tuple[str, list[CapacityType]], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered = _gathered(tmp_path, monkeypatch, LONG)
    rungs = tuple(
        Rung(after=parse_duration(after), capacity_types=frozenset(kinds))
        for after, kinds in ladder
    )
    present = a_present(g4dn_xlarge=3)
    settings = replace(present.settings, policy=Policy(ladder=rungs))

    assert long_jobs(present, gathered, 1.0) is not None
    assert long_jobs(replace(present, settings=settings), gathered, 1.0) is None
    due = replace(present.settings, policy=Policy(finish_within=timedelta(hours=9)))
    assert long_jobs(replace(present, settings=due), gathered, 1.0) is None


def test_long_items_are_judged_in_a_zone_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = _gathered(tmp_path, monkeypatch)
    steps = ((0.0, 0.3), (60.0, 0.01), (120.0, 0.3))
    zones = {
        "busy": Zone(spot=((0.0, 0.2),), reclaims_per_hour=0.5),
        "calm": Zone(spot=steps, reclaims_per_hour=0.02),
        "dear": Zone(spot=((0.0, 0.5),), reclaims_per_hour=0.01),
    }
    listings = tuple(replace(one, on_demand=0.55, zones=zones) for one in gathered.prices.listings)
    prices = replace(gathered.prices, listings=listings)
    verdicts = advise(replace(gathered, prices=prices), 600.0, run_alone).verdicts
    (judged,) = (x for x in verdicts if x.reason.code is ReasonCode.CASE_LONG_ITEMS)

    # Neither the least price of all time, nor the least rate of any zone.
    assert judged.reason.about["rate"] == 0.02
    extra = extra_price_per_hour(gathered.subject.root_volume_gib)
    assert judged.reason.about["spot"] == pytest.approx(0.3 + extra)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--within", "soon"], "--within is 'soon': write a duration", id="no time"),
        pytest.param(["--within", "0s"], "--within is '0s': make it longer", id="no wait"),
        pytest.param(["--arrivals", "absent.csv"], "--arrivals is 'absent.csv': give", id="file"),
        pytest.param(
            [], "--arrivals is 'cloudwatch': go where spindown.toml is, name a", id="none"
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["advise", *arguments])
    told = capsys.readouterr()

    assert (ended.value.code, told.out) == (1, "")
    *progress, mistake = told.err.splitlines()
    assert mistake.startswith(f"spindown: {said}")
    assert len(progress) <= 1
