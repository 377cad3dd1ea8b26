"""Every reason has words."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.decision import (
    ActionRecord,
    DeadlineRecord,
    Decision,
    DecisionSummary,
    Outcome,
)
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.spot_or_on_demand import PurchaseMode
from spindown.domain.termination import DueKind
from spindown.error import printable
from spindown.reason_text import say, say_action, say_notes, say_outcome, say_shape
from tests.builders import NOW

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


def test_a_need_a_little_above_its_ceiling_is_seen_to_be() -> None:
    about: dict[str, str | float] = {"field": "memory_gib", "asked": 100.0000001, "most": 100.0}

    assert "is 100.0000001, and the most is 100.0" in say(
        Reason(ReasonCode.REQUIREMENT_FORBIDDEN, about)
    )


@pytest.mark.parametrize("kind", DueKind)
def test_every_limit_outstayed_has_words(kind: DueKind) -> None:
    reason = Reason(ReasonCode.OUTSTAYED, {"due": kind.value, "seconds": 90.0})
    # What has no words is told by its code.
    assert not say(reason).startswith(ReasonCode.OUTSTAYED.value)


@pytest.mark.parametrize("mode", PurchaseMode)
def test_every_purchase_mode_has_words(mode: PurchaseMode) -> None:
    assert say(Reason(ReasonCode(mode.value)))


def case_latency(wait: float) -> Reason:
    numbers = {"boot": 90.0, "warm_workers": 1, "month": 140.0, "more": 100.0, "each": 0.1}
    numbers |= {"now": 3600.0}
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


def size_learned(**changes: float) -> Reason:
    numbers = {"jobs": 6.0, "used": 2.0, "room": 1.2, "chance": 0.07, "size": 4, "before": 8}
    return Reason(ReasonCode.SIZE_LOWERED, {"need": "memory_gib", **numbers, **changes})


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
                ReasonCode.POOL_COOLING_DOWN, until=AT
            ),
            "Full; cooling down until 12:15:00",
            id="a reason within a reason",
        ),
        pytest.param(
            Reason(ReasonCode.FAILED_TOO_OFTEN, {"failures": 1}), "1 failure or loss", id="one"
        ),
        pytest.param(
            Reason(ReasonCode.VCPUS_MIN, {"found": 1, "wanted": 2}), "1 vCPU, fewer", id="one vCPU"
        ),
        pytest.param(
            Reason(ReasonCode.GPU_COUNT_MIN, {"found": 1.0, "wanted": 2.0}),
            "1 GPU, fewer than 2",
            id="one GPU",
        ),
        # Evidence fades, and no part of a job was seen.
        pytest.param(size_learned(jobs=6.4), "of 6 jobs seen", id="faded jobs"),
        pytest.param(size_learned(jobs=1.0), "of 1 job seen", id="one job"),
        pytest.param(size_learned(asked=6), "8 to 4 GiB (6 asked for)", id="what was asked for"),
    ],
)
def test_words_follow_the_numbers(reason: Reason, part: str) -> None:
    assert part in say(reason)


CODES = st.sampled_from(ReasonCode)
#: The parameters of all reasons, as another version or another hand may have stored them.
NAMES = [
    "why",
    "ended",
    "fault_code",
    "ruled_out_by",
    "until",
    "at",
    "since",
    "read_at",
    "asked",
    "said",
    "price",
    "left",
    "wanted",
    "found",
    "jobs",
    "messages",
    "slots",
    "offer",
    "count",
    "instance_id",
    "refusal",
    "message",
    "quota_class",
    "within_seconds",
    "wait",
    "boot",
    "month",
    "more",
    "each",
    "tips",
    "machines",
    "share",
    "saving",
    "cost",
    "usual",
    "now",
    "before",
    "gpu",
    "vram",
    "capacity_type",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | CODES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ABOUT = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), VALUES, max_size=12)


@given(code=CODES, about=ABOUT)
def test_whatever_is_stored_gives_a_line(code: ReasonCode, about: dict[str, Any]) -> None:
    reason = Reason(code, about)
    summary = DecisionSummary(sizing=reason, why=reason, ended_early=reason, launched={"\x1b": 1})

    said = say(reason)

    assert said.isprintable()
    assert said or not code or not all(about.values())
    assert all(say_outcome(outcome, summary).isprintable() for outcome in Outcome)


@pytest.mark.parametrize("code", [code for code in ReasonCode if code])
@pytest.mark.parametrize("about", [{}, {"x": "\x1b"}, {"why": "of-another-version"}])
def test_a_reason_of_another_version_says_its_code(code: ReasonCode, about: dict[str, Any]) -> None:
    said = say(Reason(code, about))

    assert said.isprintable()
    assert said


@pytest.mark.parametrize("code", ReasonCode)
def test_a_reason_that_holds_itself_has_an_end(code: ReasonCode) -> None:
    about = dict.fromkeys(("why", "ended", "fault_code", "ruled_out_by"), code.value)

    assert say(Reason(code, about)).count(f"{code.value} (") <= 1


def test_words_that_do_not_fit_name_code_and_parameters() -> None:
    said = say(Reason(ReasonCode.QUOTA_SHORT, {"quota": "G/Spot", "left": "none"}))

    assert said == "quota-short (quota=G/Spot, left=none)"


def test_a_number_too_long_to_spell_gives_a_line() -> None:
    assert say(Reason(ReasonCode.NO_QUOTA_LEFT, {"left": 10**5000})) == "no-quota-left (left=?)"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("c0m0", ["any"]),
        ("c1m2", ["1 vCPU", "2 GiB"]),
        ("c8m32g1v22ad", ["8 vCPUs", "1 GPU", "22 GiB of VRAM", "arm64", "dedicated"]),
        ("no shape", ["no shape"]),
    ],
)
def test_a_shape_is_told_in_words(name: str, words: list[str]) -> None:
    said = say_shape(name)
    assert said.startswith(name)
    assert [word for word in words if word not in said] == []


@given(kind=st.text(), subject=st.text(), mode=st.text())
def test_actions_and_modes_of_another_version(kind: str, subject: str, mode: str) -> None:
    due = DeadlineRecord(job_id=subject, due_at=NOW, work_seconds=1, slack_seconds=1, mode=mode)
    decision = Decision(workload="w", at=NOW, outcome=Outcome.HELD, deadlines=(due,))

    assert say_action(ActionRecord(kind=kind, subject=subject)).isprintable()
    assert all(line.isprintable() for line in say_notes(decision))


@pytest.mark.parametrize(
    ("code", "is_told"),
    [(ReasonCode.BUDGET_ENDS_WORKER, True), (ReasonCode.SURPLUS_WORKER, False)],
)
def test_a_budget_alone_may_end_a_worker_at_once(code: ReasonCode, *, is_told: bool) -> None:
    action = ActionRecord(kind="wind-down", subject="i-1", reason=Reason(code))

    assert ("when_spent" in say_action(action)) is is_told


@pytest.mark.parametrize(("workers", "part"), [(1, "is 1 worker"), (2, "are 2 workers")])
def test_workers_too_many_are_counted_in_words(workers: int, part: str) -> None:
    about = {"max_workers": 0, "workers": workers}

    assert part in say(Reason(ReasonCode.SURPLUS_WORKER, about))


@given(st.text())
def test_no_terminal_obeys_what_is_printable(text: str) -> None:
    said = printable(text, keep="\n")

    assert said.replace("\n", "").isprintable()
    assert said.count("\n") == text.count("\n")
    assert said.encode().decode() == said


@pytest.mark.parametrize(("end", "verb"), [("failed", "has"), ("cancelled", "is")])
def test_how_the_batch_before_ended_is_said(end: str, verb: str) -> None:
    why = Reason(ReasonCode.BEFORE_DID_NOT_SUCCEED, {"batch": "b", "end": end})

    assert say(why).endswith(f" {verb} {end}")
