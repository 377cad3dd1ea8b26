"""Settings are varied one after the other on the best so far, and kept within the promise."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.cli.advise.search import AdvisedSettings, Known, Trial, search
from spindown.domain.policy import Policy
from spindown.simulator import SimResult
from tests.builders import AT_ONCE, minutes
from tests.unit.cli.trial import a_present, a_result

ALL = frozenset({"g4dn", "g5"})


class Attempts:
    """Answers trials by the policy that they have; keeps what was tried."""

    def __init__(self, **answers: SimResult) -> None:
        self._answers = answers
        self.tried: dict[str, list[AdvisedSettings]] = {}
        self.likely: dict[str, list[AdvisedSettings]] = {}

    def __call__(
        self, name: str, variants: Sequence[AdvisedSettings], likely: Iterable[AdvisedSettings]
    ) -> list[SimResult]:
        self.likely[name] = list(likely)
        self.tried[name] = list(variants)
        answer = self._answers.get(name, a_result(100.0))
        # The last of each stage is the one that the case is about.
        return [a_result(100.0)] * (len(variants) - 1) + [answer]


KNOWN = Known(
    gaps=[30.0, 60.0, 400.0],
    families=frozenset({"g4dn", "g5"}),
    promise=1800.0,
    spot_at_most={"g4dn.xlarge": 1.5},
    at_most={"g4dn.xlarge": 3.0},
)


def test_each_setting_is_varied_on_the_best_so_far() -> None:
    attempts = Attempts(start_within=a_result(80.0), max_price=a_result(70.0))
    best = search(a_present(g4dn_xlarge=3), KNOWN, attempts)

    assert best.result.dollars == 70.0
    assert best.settings.policy.start_within == minutes(28)
    assert best.settings.policy.max_price_per_hour == 4.0
    assert {each.policy.start_within for each in attempts.tried["idle_timeout"]} == {minutes(28)}
    assert [each.policy.idle_timeout for each in attempts.tried["idle_timeout"]] == [
        timedelta(seconds=60),
        timedelta(seconds=400),
        minutes(10),
    ]
    assert sum(map(len, attempts.tried.values())) <= 18


def test_an_idle_timeout_is_fitted_only_where_there_are_gaps() -> None:
    attempts = Attempts()
    search(a_present(), replace(KNOWN, gaps=[]), attempts)

    tried = [each.policy.idle_timeout for each in attempts.tried["idle_timeout"]]
    assert tried == [minutes(10)]


def test_a_change_that_a_later_one_makes_useless_is_not_advised() -> None:
    answers = {"start_within": a_result(80.0), "max_price": a_result(70.0)}
    attempts = Attempts(**answers, **{"without start_within": a_result(70.5)})
    best = search(a_present(), KNOWN, attempts)

    assert best.settings.policy == replace(AT_ONCE, max_price_per_hour=4.0)
    assert best.result.dollars == 70.5

    late = Attempts(**answers, **{"without start_within": a_result(70.5, p95=1801.0)})
    assert search(a_present(), KNOWN, late).settings.policy.start_within == minutes(28)
    # What came last was held against all the others already.
    assert "without max_price" not in late.tried


def test_a_setting_that_breaks_the_promise_is_not_advised() -> None:
    present = a_present(g4dn_xlarge=1)
    for result in (a_result(10.0, p95=1801.0), a_result(10.0, undone=1), a_result(99.5)):
        attempts = Attempts(start_within=result, idle_timeout=result, max_price=result)
        assert search(present, KNOWN, attempts) == present


def test_more_workers_are_tried_only_where_all_were_busy() -> None:
    policy = replace(AT_ONCE, max_workers=3)
    settings = replace(a_present().settings, policy=policy)
    for peak, tried, advised in ((2, [], 3), (3, [6, 12], 12)):
        attempts = Attempts(max_workers=a_result(90.0, p95=1000.0))
        late = replace(a_result(100.0, p95=5000.0), peak=peak)
        best = search(Trial(settings=settings, result=late), KNOWN, attempts)

        assert [each.policy.max_workers for each in attempts.tried.get("max_workers", [])] == tried
        assert best.settings.policy.max_workers == advised


def test_no_start_is_tried_that_is_later_than_the_promise() -> None:
    attempts = Attempts()
    search(a_present(), replace(KNOWN, promise=300.0), attempts)

    assert {each.policy.start_within for each in attempts.tried["start_within"]} == {
        minutes(1),
        minutes(4),
    }
    # Longer than the grid, what is asked for itself is tried, with room for the last jobs.
    search(a_present(), replace(KNOWN, promise=7200.0), attempts)
    assert max(each.policy.start_within for each in attempts.tried["start_within"]) == minutes(114)
    assert {each.policy.start_within for each in attempts.tried["scale_up_threshold"]} == {
        minutes(5),
        minutes(30),
        minutes(114),
    }


def test_no_start_is_tried_that_a_deadline_leaves_no_time_for() -> None:
    attempts = Attempts()
    present = a_present()
    policy = Policy(finish_within=minutes(25))
    search(replace(present, settings=replace(present.settings, policy=policy)), KNOWN, attempts)

    assert max(each.policy.start_within for each in attempts.tried["start_within"]) == minutes(21)


def test_work_gathers_only_where_that_is_cheaper() -> None:
    gathers = search(a_present(), KNOWN, Attempts(scale_up_threshold=a_result(60.0)))
    policy = gathers.settings.policy
    at_once = Attempts(scale_up_threshold=a_result(50.0))
    back = search(gathers, KNOWN, at_once)

    assert (policy.scale_up_threshold, policy.start_within) == (None, minutes(28))
    assert [each.policy.scale_up_threshold for each in at_once.tried["scale_up_threshold"]] == [1]
    assert back.settings.policy.scale_up_threshold == 1


def test_dearer_settings_are_advised_for_a_broken_promise() -> None:
    attempts = Attempts(start_within=a_result(130.0, p95=1000.0))
    best = search(a_present(p95=5000.0), KNOWN, attempts)

    assert best.result.dollars <= 130.0
    assert best.result.wait.p95 <= KNOWN.promise


def test_families_are_tried_without_the_used_with_the_denied() -> None:
    attempts = Attempts(families=a_result(60.0))
    best = search(a_present(g5_xlarge=9, g5_2xlarge=2, g4dn_xlarge=1), KNOWN, attempts)
    denied = Trial(
        settings=AdvisedSettings(policy=Policy(), families_denied=frozenset({"g5"})),
        result=a_result(100.0, g4dn_xlarge=1),
    )
    widened = Attempts(families=a_result(60.0))
    search(denied, KNOWN, widened)

    assert [sorted(each.families_denied) for each in attempts.tried["families"]] == [
        ["g5"],
        ["g4dn"],
    ]
    assert best.settings.families_denied == {"g4dn"}
    little = Attempts(families=a_result(96.0))
    assert search(a_present(g5_xlarge=1), KNOWN, little) == a_present(g5_xlarge=1)
    # With one family denied the other is all that is left, so that it cannot be left out too.
    assert [sorted(each.families_denied) for each in widened.tried["families"]] == [[]]


def test_what_may_be_asked_for_next_is_told_with_each_stage() -> None:
    attempts = Attempts()
    present = a_present(g4dn_xlarge=3)
    search(present, KNOWN, attempts, lambda best: [replace(best, families_denied=ALL)])

    first = attempts.likely["start_within"]
    later = {name: tried for name, tried in attempts.tried.items() if name != "start_within"}
    assert first[0].families_denied == ALL
    assert first[1:] == [each for tried in later.values() for each in tried]
    assert attempts.likely["families"] == first[:1]


@pytest.mark.parametrize(
    ("spot", "most", "on_demand", "tried"),
    [
        pytest.param(0.4, 0.9, 0.0, [], id="nothing costs more than half, or could"),
        pytest.param(0.4, 2.5, 0.0, [4.0], id="some could"),
        pytest.param(1.2, 1.5, 0.0, [1.0], id="something costs more than half"),
        pytest.param(0.4, 1.5, 7.0, [1.0], id="on demand it does"),
    ],
)
def test_a_ceiling_that_changes_nothing_is_not_tried(
    spot: float, most: float, on_demand: float, tried: list[float]
) -> None:
    attempts, present = Attempts(), a_present(g4dn_xlarge=3)
    present = replace(present, result=replace(present.result, on_demand_dollars=on_demand))
    name = "g4dn.xlarge"
    known = replace(KNOWN, spot_at_most={name: spot}, at_most={name: most})
    search(present, known, attempts)

    found = attempts.tried.get("max_price", [])
    assert [each.policy.max_price_per_hour for each in found] == tried
