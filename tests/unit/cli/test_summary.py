"""What the bill on paper says of the order of offers."""

from dataclasses import replace

import pytest

from spindown.app.bill import RankingChange
from spindown.cli.render.summary import ranking_sentence

LEARNED = RankingChange(
    cheapest="g4dn.xlarge/us-east-1a/spot",
    first="g6.xlarge/us-east-1a/spot",
    last="g5.xlarge/us-east-1a/spot",
    first_cost=0.5,
    last_cost=0.25,
)


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
def test_what_measuring_has_changed_is_said_in_figures_that_say_something(
    first_cost: float, words: str
) -> None:
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
