"""When an image is worth baking, and when instances may start from it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spindown.domain.bake_or_bootstrap import (
    RENEWED_AFTER,
    USED_FOR,
    ImageHistory,
    Installs,
    compare_modes,
    find_image,
    image_dollars,
    is_bake_due,
)
from spindown.domain.reason import Reason, ReasonCode

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOME = "us-west-2"
STAMP = "with this"
#: 600 boots of 2 minutes more at 0.36 USD an hour: 7.20 USD.
INSTALLS = Installs(boots=600, days=30, seconds=125, seconds_baked=5, dollars_per_hour=0.36)
GOOD = ImageHistory(
    images={HOME: "ami-1"}, stamp=STAMP, based_at=NOW - DAY, begun_at=NOW - DAY, builds=1
)
BROKEN = Reason(ReasonCode.IMAGE_SILENT, {"image": "ami-1", "count": 2})


@pytest.mark.parametrize(
    ("history", "image", "code"),
    [
        pytest.param(None, "", ReasonCode.IMAGE_NOT_BAKED, id="none"),
        pytest.param(ImageHistory(build="b"), "", ReasonCode.IMAGE_NOT_BAKED, id="baking"),
        pytest.param(GOOD, "ami-1", ReasonCode.NONE, id="good"),
        pytest.param(replace(GOOD, build="b"), "ami-1", ReasonCode.NONE, id="its next is baking"),
        pytest.param(replace(GOOD, stamp="old"), "", ReasonCode.IMAGE_STALE, id="stale"),
        pytest.param(replace(GOOD, broken=BROKEN), "", ReasonCode.IMAGE_SILENT, id="broken"),
        pytest.param(replace(GOOD, based_at=NOW - USED_FOR), "", ReasonCode.IMAGE_OLD, id="old"),
        pytest.param(
            replace(GOOD, images={"eu-west-1": "ami-2"}),
            "",
            ReasonCode.IMAGE_ELSEWHERE,
            id="elsewhere",
        ),
    ],
)
def test_instances_start_from_a_good_image_alone(
    history: ImageHistory | None, image: str, code: ReasonCode
) -> None:
    found, why = find_image(history, stamp=STAMP, region=HOME, now=NOW)

    assert (found, why.code) == (image, code)


@pytest.mark.parametrize(
    ("history", "spent", "is_due"),
    [
        pytest.param(ImageHistory(), 0.9, False, id="not earned"),
        pytest.param(ImageHistory(), 1.0, True, id="earned"),
        pytest.param(ImageHistory(build="b"), 9.0, False, id="under way"),
        pytest.param(GOOD, 9.0, False, id="good"),
        pytest.param(replace(GOOD, based_at=NOW - RENEWED_AFTER), 1.0, True, id="too old"),
        pytest.param(replace(GOOD, based_at=NOW - RENEWED_AFTER), 0.9, False, id="no more earned"),
        pytest.param(replace(GOOD, stamp="old"), 1.0, True, id="stale"),
        pytest.param(replace(GOOD, stamp="old"), 0.9, False, id="stale and not earned anew"),
        pytest.param(replace(GOOD, broken=BROKEN), 1.0, True, id="broken"),
        pytest.param(replace(GOOD, broken=BROKEN, failures=1), 1.0, True, id="broken, after a day"),
        pytest.param(
            replace(GOOD, broken=BROKEN, failures=2), 9.0, False, id="broken twice, after a day"
        ),
        pytest.param(
            ImageHistory(failures=9, begun_at=NOW - 31 * DAY), 9.0, False, id="often, 31 days"
        ),
        pytest.param(
            ImageHistory(failures=9, begun_at=NOW - 32 * DAY), 9.0, True, id="often, 32 days"
        ),
    ],
)
def test_an_image_is_baked_once_installs_cost_as_much(
    history: ImageHistory, spent: float, is_due: bool
) -> None:
    dollars = INSTALLS.dollars / spent

    due = is_bake_due(history, stamp=STAMP, installs=INSTALLS, dollars=dollars, now=NOW)

    assert due is is_due


def test_the_modes_are_compared_by_their_dollars() -> None:
    # 608 boots a month: 7.60 USD of installs, 0.30 of them also from a baked image.
    costs = _compare(INSTALLS)

    assert INSTALLS.boots_a_month == pytest.approx(608.3, abs=0.1)
    assert costs == pytest.approx(
        {
            "bootstrap": 7.60,
            "ami": 0.30,
            # 4.35 builds of 7.8 cents and 6 x 30 GiB at 5 cents.
            "bake": 0.30 + 0.34 + 9.0,
            # 1.32 images a month, each stored for 37 days.
            "auto": 0.30 + 1.32 * (0.078 + 1.825),
        },
        abs=0.01,
    )


def test_few_boots_are_cheapest_without_an_image() -> None:
    costs = _compare(replace(INSTALLS, boots=60))

    assert costs["auto"] == costs["bootstrap"] < costs["bake"]


def _compare(installs: Installs) -> Mapping[str, float]:
    return compare_modes(
        installs.a_month(installs.seconds),
        installs.a_month(installs.seconds_baked),
        root_gib=30,
        architectures=1,
        regions=1,
    )


@pytest.mark.parametrize(
    ("root_gib", "copies", "dollars"), [(100, 1, 6.17), (100, 2, 12.25), (30, 1, 1.90)]
)
def test_an_image_costs_its_build_and_its_storage(
    root_gib: float, copies: int, dollars: float
) -> None:
    assert image_dollars(root_gib, copies) == pytest.approx(dollars, abs=0.01)
