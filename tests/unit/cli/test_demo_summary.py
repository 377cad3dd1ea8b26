"""What the bill on paper says of the order of offers."""

from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from spindown.cli.demo.bill import CostReport, InstanceBill, RankingChange, RefusalCount
from spindown.cli.demo.run import ranking_sentence, render_bill
from spindown.cli.render.saving import say_saving, say_usd
from spindown.contract.row import SpendRow
from spindown.domain.past_cost import Saving
from spindown.domain.reason import Reason, ReasonCode
from tests.builders import NOW

LEARNED = RankingChange(
    cheapest="g4dn.xlarge/us-east-1a/spot",
    first="g6.xlarge/us-east-1a/spot",
    last="g5.xlarge/us-east-1a/spot",
    first_cost=0.5,
    last_cost=0.25,
)


BILL = CostReport(
    start=NOW,
    end=NOW + timedelta(minutes=1),
    spend=SpendRow(dollars=0.016, items=2400),
    instances=(
        InstanceBill(
            instance_id="i-0123456789abcdef0",
            offer="g6.xlarge/us-east-1a/spot",
            price_per_hour=0.338,
            launched_at=NOW,
            ended_at=NOW + timedelta(seconds=26),
            why="4th of 24 by cost per item, 4th by price; 118,895 items/h expected",
            ended_because=Reason(ReasonCode.INTERRUPTED),
        ),
    ),
    refusals=(),
    ranking=None,
    saving=Saving(dollars=0.016, on_demand_dollars=0.04, warm_dollars=0.02),
)


def lines_of(bill: CostReport) -> list[str]:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render_bill(bill))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_an_instance_is_a_line_and_why_it_was_taken_another() -> None:
    lines = lines_of(BILL)

    assert lines[1] == "instance    offer                        $/h  lived  ended"
    assert lines[2].split() == [
        *("i-01234567", "g6.xlarge/us-east-1a/spot", "0.338", "26s"),
        *("reclaimed,", "with", "notice"),
    ]
    assert lines[3] == (
        "            4th of 24 by cost per item, 4th by price; 118,895 items/h expected"
    )


def test_the_demo_tells_what_was_saved_as_every_bill_does() -> None:
    assert f"That is {say_saving(BILL.saving)}." in " ".join(lines_of(BILL))


def test_what_ec2_refused_is_told_with_count_code_and_place() -> None:
    refusal = RefusalCount(times=2, code="InsufficientInstanceCapacity", pool="g6.xlarge/a/spot")

    lines = lines_of(replace(BILL, refusals=(refusal,)))

    head = lines.index("Refused by EC2")
    assert lines[head + 1].split() == ["2", "x", refusal.code, refusal.pool]
    assert "Refused by EC2" not in lines_of(BILL)


def test_the_best_offer_may_be_the_cheapest_by_the_hour() -> None:
    said = ranking_sentence(replace(LEARNED, last="g4dn.xlarge/us-east-1b/spot"))

    assert said == (
        "The best offer is g4dn.xlarge/us-east-1b/spot at $0.25 an item;"
        " it is also the cheapest by the hour."
    )


@pytest.mark.parametrize(
    ("first_cost", "words"),
    [
        pytest.param(0.5, "2.0 times as much", id="twice"),
        pytest.param(0.37, "48 % more", id="not yet half as much again"),
        pytest.param(0.2525, "1 % more", id="one in a hundred"),
        pytest.param(0.2501, "hardly more", id="what rounds to nothing"),
    ],
)
def test_what_measuring_changed_is_told_in_telling_figures(first_cost: float, words: str) -> None:
    said = ranking_sentence(replace(LEARNED, first_cost=first_cost))

    assert said == (
        "The best offer is g5.xlarge/us-east-1a/spot at $0.25 an item,"
        " not g4dn.xlarge/us-east-1a/spot, the cheapest by the hour."
        " Before anything was measured g6.xlarge/us-east-1a/spot was expected to be the best;"
        f" it costs {words} an item."
    )


@pytest.mark.parametrize("first_cost", [None, 0.25])
def test_what_has_not_become_dearer_is_not_spoken_of(first_cost: float | None) -> None:
    said = ranking_sentence(replace(LEARNED, first_cost=first_cost))

    assert said.endswith("the cheapest by the hour.")


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [(0.0, "0.00"), (1234.5, "1,234.50"), (0.0099, "0.0099"), (3.4e-5, "0.00003")],
)
def test_the_smallest_sum_is_not_shown_as_nothing(dollars: float, shown: str) -> None:
    assert say_usd(dollars) == shown
