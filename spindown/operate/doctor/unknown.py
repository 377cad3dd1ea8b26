"""A fact that could not be read, and what to do about that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from spindown.error import LedgerMissing, NotFound, SpindownError, Throttled, Unreachable

T = TypeVar("T")

_PATIENCE: Mapping[type[SpindownError], str] = {
    Throttled: "AWS had too many calls: try again in a minute",
    Unreachable: "AWS gave no answer: try again, or check this machine's network",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A fact that could not be read."""

    reason: str
    #: It does not exist.
    is_missing: bool = False
    #: What to do where nothing says that a right is missing; "": AWS has answered.
    patience: str = ""

    @classmethod
    def after(cls, error: SpindownError) -> Self:
        """Return what is unknown after a question that ended so."""
        return cls(
            reason=str(error),
            is_missing=isinstance(error, (LedgerMissing, NotFound)),
            patience=next((do for kind, do in _PATIENCE.items() if isinstance(error, kind)), ""),
        )

    def remedy(self, otherwise: str) -> str:
        """Return what to do; ``otherwise``: where AWS has answered."""
        return self.patience or otherwise


def ask(question: Callable[[], T]) -> T | Unknown:
    """Return the answer, or why there is none."""
    try:
        return question()
    except SpindownError as exc:
        return Unknown.after(exc)
