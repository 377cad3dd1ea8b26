"""No decision reads a sentence: whatever the words, the same happens."""

from collections.abc import Iterator

import pytest

from spindown import wording
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.simulator import Arrival, Run
from tests.simulator.scene import DAY, a_scenario


def _run() -> tuple[str, str]:
    arrivals = tuple(Arrival(at=60.0 + 900.0 * n, items=40, item_seconds=20.0) for n in range(12))
    run = Run(a_scenario(*arrivals, length=DAY / 4), Policy(), 1)
    digest = run.run().digest
    assert run.decision is not None
    return digest, run.decision.to_json().decode()


@pytest.fixture
def other_words() -> Iterator[None]:
    """Rewrite every text of the product."""
    before = dict(wording._WORDS)
    wording._WORDS.update({code: f"<{code.value}>" for code in ReasonCode if code})  # type: ignore[attr-defined]
    yield
    wording._WORDS.update(before)  # type: ignore[attr-defined]


def test_other_words_change_no_decision(request: pytest.FixtureRequest) -> None:
    before = _run()

    request.getfixturevalue("other_words")

    assert wording.say(Reason(ReasonCode.IDLE)) == "<idle>"
    assert _run() == before
