"""Every reason has words."""

import pytest

from spindown.domain.reason import Code, Reason
from spindown.wording import say


class _Any(dict[str, str | int | float]):
    """Parameters of every name."""

    def __missing__(self, name: str) -> str:
        return name


@pytest.mark.parametrize("code", Code)
def test_every_code_has_words(code: Code) -> None:
    assert bool(say(Reason(code, _Any()))) is (code is not Code.NONE)
