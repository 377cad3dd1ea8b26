"""What the comparison claims beside the ratio to the bounds is reckoned as it says."""

from collections.abc import Mapping

import pytest

from research.baseline import ALL
from research.compare.claim.effort import efforts, redone
from research.compare.claim.rival import (
    AT_ITS_SPEED,
    MORE,
    ONLY,
    PEOPLE,
    against,
    cheapest,
    claims,
    in_time,
    rivals,
)
from research.compare.grid import Results
from spindown.simulator import OURS_ON_DEMAND

#: Of one way: dollars, p95 wait in minutes, jobs left undone.
Way = tuple[float, float, float]


def a_seed(**ways: Way) -> Mapping[str, Mapping[str, float]]:
    told = {
        name.replace("_", "-"): {"dollars": dollars, "wait_p95_min": wait, "lost_jobs": lost}
        for name, (dollars, wait, lost) in ways.items()
    }
    told["ours 10 min"] = {"dollars": 10.0, "wait_p95_min": 9.0, "lost_jobs": 0.0, "jobs": 999.0}
    told["ours 60 min"] = {"dollars": 8.0, "wait_p95_min": 59.0, "lost_jobs": 0.0}
    told["bound 10 min"] = {"bounded_wait": 9.0}
    return told


def of(name: str, **ways: Way) -> Results:
    return {name: {"1": a_seed(**ways)}}


def a_long(ours: float, greedy: float, greedy_done: float) -> Results:
    figures = {"ours": (ours, 50.0), "greedy": (greedy, greedy_done), "uniform-progress": (9.0, 80)}
    figures["on-demand"] = (99.0, 48.0)
    told = {
        who: {"dollars": dollars, "done_hours": done, "lost_jobs": 0.0}
        for who, (dollars, done) in figures.items()
    }
    return {"S10 52 h": {"1": told}}


def test_every_other_way_has_a_column_in_one_of_the_two_tables() -> None:
    assert sorted((*PEOPLE, *MORE)) == sorted((*ALL, OURS_ON_DEMAND))


def test_who_is_late_or_leaves_work_undone_is_no_rival() -> None:
    seed = a_seed(
        warm=(30.0, 10.0, 0.0),
        pool=(15.0, 10.1, 0.0),
        luna=(5.0, 1.0, 1.0),
        ours_on_demand=(20.0, 9.0, 0.0),
    )

    assert in_time([seed], 10) == {"warm": 3.0, "ours-on-demand": 2.0}
    assert in_time([seed], 60) == {"warm": 3.75, "pool": 1.875, "ours-on-demand": 2.5}


def test_tables_name_the_cheapest_in_time_of_what_ran() -> None:
    results = of("S1", warm=(30.0, 5.0, 0.0), pool=(9.0, 21.0, 0.0))

    assert "| S1 | 1 | warm 3.00 | 2 | pool 1.12 |  |" in rivals(results)
    assert "| S6 | 0 | nobody |  |  |  |" in rivals(of("S6", warm=(30.0, 50.0, 0.0)))
    (row,) = (line for line in against(results).splitlines() if line.startswith("| S1: "))
    assert [cell.strip() for cell in row.split("|")][2:-1] == [
        *("10.00 (10.00-10.00)", "9.00", "1.111 (1.111-1.111)"),
        *("3.00", "", "", "", "", "0.90~", "", ""),
    ]


def test_a_row_of_few_jobs_or_dollars_is_called_thin() -> None:
    one = a_seed(warm=(30.0, 5.0, 0.0))
    assert "(thin) |" in against({"S1": {"1": one}})
    assert "(thin) |" not in against({"S1": {"1": one, "2": one}})


def test_the_best_single_type_is_compared_with_the_ranking() -> None:
    seed = {
        **a_seed(),
        **{
            f"{ONLY}{name}": {"dollars": dollars, "wait_p95_min": 9.0, "lost_jobs": 0.0}
            for name, dollars in (("g4dn.xlarge", 15.0), ("g6.xlarge", 11.0), ("p5.48xlarge", 99.0))
        },
    }
    *_, line = claims({"S1": {"1": seed}}, {})

    assert "g4dn.xlarge 1.500 (1.500-1.500); g6.xlarge 1.100 (1.100-1.100) | holds |" in line


def test_ours_at_the_cheapest_one_s_speed_is_compared_with_it() -> None:
    fast = {"dollars": 25.0, "wait_p95_min": 4.8, "lost_jobs": 0.0}
    seed = {**a_seed(warm=(30.0, 5.0, 0.0), luna=(40.0, 2.0, 0.0)), AT_ITS_SPEED: fast}

    assert cheapest(seed) == "warm"
    assert "| warm 1.20, 5.0 and 4.8 |" in rivals({"S1": {"1": seed}})
    assert cheapest(a_seed(ours_on_demand=(20.0, 9.0, 0.0))) is None


@pytest.mark.parametrize(
    ("dollars", "wait", "found"),
    [
        pytest.param(9.0, 11.0, "1 of 1 | holds", id="cheaper, and late"),
        pytest.param(11.0, 5.0, "1 of 1 | holds", id="dearer, and in time"),
        pytest.param(9.9, 5.0, "0 of 1, not in S1 | **does not hold**", id="cheaper, in time"),
    ],
)
def test_a_scenario_is_led_if_nobody_in_time_is_cheaper(
    dollars: float, wait: float, found: str
) -> None:
    results = of("S1", pool=(dollars, wait, 0.0), warm=(200.0, 5.0, 0.0))
    *_, line, _, _, _ = claims(results, {})

    assert line.endswith(f"| all | {found} |")


def test_who_is_late_is_told_apart_from_who_is_dearer() -> None:
    seed = a_seed(pool=(11.0, 5.0, 0.0))
    late = {**seed, "ours 10 min": {**seed["ours 10 min"], "wait_p95_min": 10.5}}
    cheaper, in_time, *_ = claims({"S2": {"1": seed}, "S11": {"1": late}}, {})

    assert "| all | 2 of 2 | holds |" in cheaper
    assert "| all | 1 of 2, not in S11 | **does not hold** |" in in_time


def test_rows_of_one_scenario_count_once_and_all_must_agree() -> None:
    rows = {name: {"1": a_seed(pool=(11.0, 5.0, 0.0))} for name in ("S11", "S7")}
    rows["S11 alarm"] = {"1": a_seed(pool=(9.0, 5.0, 0.0))}
    ten, *_ = claims(rows, {})

    assert "| all | 1 of 2, not in S11 alarm |" in ten


@pytest.mark.parametrize(
    ("long", "is_led"),
    [
        (a_long(20.0, 21.0, 51.0), True),
        (a_long(20.0, 19.0, 51.0), False),
        (a_long(20.0, 19.0, 53.0), True),
    ],
)
def test_a_deadline_is_led_if_no_rule_that_keeps_it_is_cheaper(long: Results, is_led: bool) -> None:
    ten, *_ = claims({}, long)

    # Uniform Progress costs 9 here and is late.
    assert ("1 of 1 |" in ten) is is_led


EFFORT = {
    "dollars": 4.0,
    "items": 2000.0,
    "jobs": 20.0,
    "work_hours": 10.0,
    "billed_hours": 8.0,
    "stay_mean_min": 60.0,
    "stay_p95_min": 90.0,
    "stay_p99_min": 99.0,
    "stood_p50_min": 0.5,
    "stood_p95_min": 2.0,
    "share_redo": 0.004,
    "busy_hours": 6.0,
    "redo_hours": 0.12,
    "interruptions": 5.0,
    "launches": 10.0,
    "refusals": 5.0,
    "on_demand_dollars": 1.0,
}


def test_what_else_it_takes_is_told_for_a_thousand_items() -> None:
    results = {"S1": {"1": {"ours 10 min": EFFORT}}, "S2": {"1": {"ours 10 min": {"jobs": 1.0}}}}
    table = efforts(results)

    assert (
        "| S1 | 2 | 0.80 | 60, 90, 99 | 2.0 | 2.00 | 0.5, 2.0 | 2.50 | 5.0 | 1.50 | 25.0 |" in table
    )
    assert "S2" not in table


@pytest.mark.parametrize(("at_most", "verdict"), [(0.02, "holds"), (0.01, "**does not hold**")])
def test_lost_work_is_judged_by_time_where_the_bill_hides_it(at_most: float, verdict: str) -> None:
    (line,) = redone([{"ours": EFFORT}], "ours", "none", at_most)

    assert line.endswith(f"| 0.40 %, 2.00 % | {verdict} |")
    assert redone([{}], "ours", "none", at_most) == []
