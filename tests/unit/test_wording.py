"""Every reason has words."""

import math

import pytest

from spindown.domain.ladder import PurchaseMode
from spindown.domain.reason import Reason, ReasonCode
from spindown.wording import say

AT = "2026-11-20T12:15:00+00:00"


class AnyNumbers(dict[str, str | int | float]):
    """The parameters of any reason: whatever is asked for is there."""

    def __missing__(self, name: str) -> str | int | float:
        if name in {"why", "ended", "fault_code", "ruled_out_by"}:
            return ReasonCode.IDLE.value
        return "2026-11-20T12:00:00+00:00" if name in {"until", "at", "since", "read_at"} else 90

    def get(self, name: str, default: object = None) -> str | int | float:
        return self[name]


@pytest.mark.parametrize("code", ReasonCode)
def test_every_code_has_words(code: ReasonCode) -> None:
    assert bool(say(Reason(code, AnyNumbers()))) is (code is not ReasonCode.NONE)


@pytest.mark.parametrize("mode", PurchaseMode)
def test_every_purchase_mode_has_words(mode: PurchaseMode) -> None:
    assert say(Reason(ReasonCode(mode.value)))


def case_latency(wait: float) -> Reason:
    numbers = {"boot": 90.0, "warm_workers": 1, "month": 140.0, "more": 100.0, "each": 0.1}
    return Reason(ReasonCode.CASE_LATENCY, {**numbers, "wait": wait})


def case_constant_load(machines: int = 1, share: float = 0.4, tips: float = 0.8) -> Reason:
    numbers = {"machines": machines, "month": 200.0, "share": share, "tips": tips}
    return Reason(ReasonCode.CASE_CONSTANT_LOAD, {**numbers, "machine": "g4dn.xlarge"})


def case_small_bill(saving: float, tips: float) -> Reason:
    numbers = {"month": 60.0, "saving": saving, "least": 50.0, "tips": tips, "jobs": 1000.0}
    return Reason(ReasonCode.CASE_SMALL_BILL, numbers)


def case_no_interruption(each: float) -> Reason:
    numbers = {"interruptions": 20.0, "redone_hours": 1.5, "month": 130.0, "more": 80.0}
    return Reason(ReasonCode.CASE_NO_INTERRUPTION, {**numbers, "each": each})


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        pytest.param(case_latency(119.4), "within 119 s: worth it from $0.1 a job", id="seconds"),
        pytest.param(case_latency(120.0), "within 2 min:", id="minutes"),
        pytest.param(
            case_constant_load(),
            "One reserved g4dn.xlarge costs $200.00 a month; the work would keep it busy for "
            "40% of the hours, and that pays from 80% busy hours on.",
            id="one machine",
        ),
        pytest.param(
            case_constant_load(machines=3),
            "3 reserved g4dn.xlarge cost $200.00 a month; the work would keep them busy",
            id="several machines",
        ),
        pytest.param(
            case_constant_load(tips=1.2), "no load is constant enough for that to pay.", id="never"
        ),
        pytest.param(
            case_constant_load(share=0.009, tips=0.02),
            "less than 1% of the hours, and that pays from 2% busy",
            id="little is not nothing",
        ),
        pytest.param(
            case_small_bill(10.0, 5000.0),
            "saves $10.00; it saves $50 from 5,000 such jobs a month on, now 1,000.",
            id="a small bill",
        ),
        pytest.param(
            case_small_bill(-10.0, math.inf),
            "costs $10.00 more; more of the same work would not change that.",
            id="a bill that nothing makes large enough",
        ),
        pytest.param(
            case_no_interruption(4.0),
            "worth it if an interruption costs you more than $4.00.",
            id="the price of an interruption",
        ),
        pytest.param(case_no_interruption(math.inf), "none was seen here.", id="no interruption"),
        pytest.param(
            Reason(ReasonCode.GPU_MANUFACTURER, {"found": "", "wanted": "NVIDIA"}),
            "made by nobody, not NVIDIA",
            id="no GPU",
        ),
        pytest.param(
            Reason(ReasonCode.RUNG_OPENS_LATER, {"capacity_type": "spot", "price": 0.2, "at": AT}),
            "spot at 0.2000 USD/h opens at 12:15:00",
            id="a clock",
        ),
        pytest.param(
            Reason(ReasonCode.POOL_REFUSED, {"refusal": "Full"}).within(
                ReasonCode.POOL_LEFT_ALONE, until=AT
            ),
            "Full; left alone until 12:15:00",
            id="a reason within a reason",
        ),
    ],
)
def test_words_follow_the_numbers(reason: Reason, part: str) -> None:
    assert part in say(reason)
