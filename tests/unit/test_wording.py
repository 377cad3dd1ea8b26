"""Every reason has words."""

import pytest

from spindown.domain.reason import Reason, ReasonCode
from spindown.wording import say

_ABOUT = {
    name: ReasonCode.IDLE.value if name in {"ended", "fault_code"} else 90
    for name in (
        *("age_seconds", "count", "ended", "fault", "fault_code", "idle_seconds", "instance_id"),
        *("message", "refusal", "region", "said", "silent_seconds", "state", "state_reason"),
        "within_seconds",
    )
}


@pytest.mark.parametrize("code", ReasonCode)
def test_every_code_has_words(code: ReasonCode) -> None:
    assert bool(say(Reason(code, _ABOUT))) is (code is not ReasonCode.NONE)
