"""Rivals at their best: rules with a size, boots made of phases, and who counts as in time."""

import json
from pathlib import Path

import pytest

from research.baseline import simulate_any
from research.rival.__main__ import DOCS, shipped
from research.rival.boot import CASES, composed, p95, share_of
from research.rival.family import FAMILIES
from research.rival.page import AT_ONCE, OURS, best_in_time, page
from research.rival.rule import BacklogSize, TrackFromZero
from spindown.simulator import BOOTS
from spindown.simulator.baseline.scaling_rule import BacklogTarget, FleetLook
from tests.simulator.scene import a_scenario, an_arrival


def a_look(**changes: float) -> FleetLook:
    base: dict[str, float] = {
        "at": 600.0,
        "waiting": 0,
        "waited": 0.0,
        "busy": 0,
        "idle": 0,
        "booting": 0,
        "running": 0,
        "slots": 1,
        "desired": 0,
        "since_change": 600.0,
    }
    return FleetLook(**(base | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("look", "machines"),
    [
        pytest.param(a_look(waiting=40, waited=80.0), 0, id="it has not waited long enough"),
        pytest.param(a_look(waiting=40, waited=90.0), 9, id="40 x 100 s in 450 s"),
        pytest.param(a_look(waiting=40, waited=90.0, booting=9), 9, id="they are on their way"),
        pytest.param(a_look(waiting=1, waited=90.0, busy=3), 3, id="no machine is ended"),
        pytest.param(a_look(busy=2), 2, id="nothing waits"),
    ],
)
def test_a_size_is_what_works_off_all_that_waits(look: FleetLook, machines: int) -> None:
    assert BacklogSize(job=100.0, wait=90.0, target=450.0)([look]) == machines


def test_tracking_from_zero_begins_with_the_first_message() -> None:
    rule = TrackFromZero(tracking=BacklogTarget(per_machine=10.0))

    assert rule([a_look(waiting=1, waited=30.0)]) == 0
    assert rule([a_look(waiting=1, waited=90.0)]) == 1
    assert rule([a_look()] * 15) == 0


def a_file(folder: Path) -> Path:
    rows = "\n".join(f"15,{20 + n},{50 + 2 * n}" for n in range(20))
    text = f"api_end_s,user_data_start_s,user_data_end_s\n{rows}\n15,,\n563,570,1650\n"
    (folder / "aws_boot_timing_2026.csv").write_text(text, encoding="utf-8")
    return folder


def test_a_boot_has_the_measured_median_and_95th_percentile(tmp_path: Path) -> None:
    boot = composed("baked", a_file(tmp_path))

    then = CASES["baked"].then
    assert boot.at_least == pytest.approx(20.0 + then)
    assert boot.at_least + boot.median == pytest.approx(29.0 + then)
    assert p95(boot) == pytest.approx(38.0 + then)


def test_each_case_of_boots_takes_longer_than_the_one_before(tmp_path: Path) -> None:
    boots = [composed(name, a_file(tmp_path)) for name in CASES]

    medians = [boot.at_least + boot.median for boot in boots]
    assert medians == sorted(medians)


@pytest.mark.parametrize("name", CASES)
def test_the_product_has_the_boots_that_were_composed(name: str) -> None:
    told = json.loads((DOCS / "rivals.json").read_text(encoding="utf-8"))["boots"][name]

    boot = BOOTS[name]
    assert [boot.at_least, boot.at_least + boot.median, p95(boot)] == pytest.approx(told, abs=0.01)


def test_a_share_of_few_times_is_one_of_them() -> None:
    assert share_of([3.0, 1.0, 2.0], 0.5) == 2.0
    assert share_of([3.0, 1.0, 2.0], 0.0) == 1.0
    assert share_of([3.0, 1.0, 2.0], 0.95) == 3.0


def test_the_best_setting_is_the_cheapest_that_is_in_time() -> None:
    late = {"dollars": 1.0, "p95_min": 10.1, "lost": 0}
    lossy = {"dollars": 2.0, "p95_min": 1.0, "lost": 1}
    kept = {"dollars": 4.0, "p95_min": 10.0, "lost": 0}
    dear = {"dollars": 5.0, "p95_min": 3.0, "lost": 0}

    assert best_in_time({"late": late, "lossy": lossy, "dear": dear, "kept": kept}) == "kept"
    assert best_in_time({"late": late}) is None


def test_all_settings_do_all_work() -> None:
    scenario = a_scenario(*(an_arrival(at=30.0 + 40.0 * n) for n in range(5)))
    for family in FAMILIES.values():
        for baseline in (family.customary, *family.searched.values()):
            assert simulate_any(scenario, baseline, 1, max_workers=9).jobs_done == 5


def test_ours_is_what_init_writes_but_for_promise_and_room() -> None:
    policy = shipped()

    assert policy.scale_up_threshold is None
    assert policy.idle_timeout is None
    assert policy.start_within.total_seconds() == 600.0


def told(dollars: float, p95_min: float = 9.0) -> dict[str, float]:
    return {"dollars": dollars, "p95_min": p95_min, "lost": 0, "jobs": 1200}


def test_the_page_names_who_is_cheaper_and_in_time() -> None:
    search = {name: {"one": told(3.0)} for name in FAMILIES}
    seed = {OURS: told(40.0), AT_ONCE: told(38.0)}
    seed |= {f"{name}, customary": told(80.0) for name in FAMILIES}
    seed |= {f"{name}: one": told(60.0) for name in FAMILIES}
    seed |= {"Batch: one": told(36.0), "wait, then size: one": told(20.0, p95_min=11.0)}
    cell = {"search": search, "seeds": {"1": seed}}
    cells = {"S1": {"baked": cell, "bootstrap": cell}}

    written = page({"cells": cells, "cpu_seconds": 60.0}, {"S1": 2.19})

    assert "| S1, baked | 1200 | 40.00 | 9.0 | Batch 0.900 (0.900-0.900) |" in written
    assert " 0.50~ |" in written
    # Batch costs 0.9 of ours, and ours 2.19 of the bound; 1.095 of it pays who is told each job.
    assert " |  | 1.97 |" in written
    assert " |  | 1.80 |" in written
