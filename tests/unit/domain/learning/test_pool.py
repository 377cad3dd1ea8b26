"""How often a pool takes its instances back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import PoolRecord, interruption_rate, published_rate


@pytest.mark.parametrize(
    ("share", "per_hour"),
    [
        pytest.param(0.2, 0.000305675, id="a fifth a month"),
        pytest.param(0.0, 0.0, id="never"),
        pytest.param(1.0, -math.log(0.01) / 730, id="all of them counts as 99 %"),
        pytest.param(None, 0.000305675, id="unknown is not never"),
    ],
)
def test_a_monthly_share_becomes_an_hourly_rate(share: float | None, per_hour: float) -> None:
    assert published_rate(share) == pytest.approx(per_hour, rel=1e-5)


def test_a_pool_learns_from_its_own_interruptions() -> None:
    record = PoolRecord(interruptions=1, hours=6.0)

    assert interruption_rate(record, 0.2) == pytest.approx((24 * 0.000305675 + 1) / 30, rel=1e-5)
    assert interruption_rate(None, 0.2) == published_rate(0.2)
    assert interruption_rate(PoolRecord(hours=0.5), 0.05) == pytest.approx(
        24 * published_rate(0.05) / 24.5
    )


@given(
    share=st.none() | st.floats(0.0, 1.0),
    interruptions=st.floats(0.0, 100.0),
    hours=st.floats(0.0, 10000.0),
)
def test_an_interruption_raises_the_rate_a_calm_hour_lowers_it(
    share: float | None, interruptions: float, hours: float
) -> None:
    now = interruption_rate(PoolRecord(interruptions=interruptions, hours=hours), share)

    assert interruption_rate(PoolRecord(interruptions=interruptions + 1, hours=hours), share) > now
    assert interruption_rate(PoolRecord(interruptions=interruptions, hours=hours + 1), share) <= now
