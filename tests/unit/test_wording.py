"""Every reason has words."""

import pytest

from spindown.domain.ladder import PurchaseMode
from spindown.domain.reason import Reason, ReasonCode
from spindown.wording import say


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
