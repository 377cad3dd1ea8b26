"""A fact that could not be read, and what to do about that."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from spindown.error import LedgerMissing, NotFound, SpindownError, Throttled, Unreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A fact that could not be read."""

    reason: str
    #: It does not exist.
    is_missing: bool = False
    #: AWS gave no answer, so nothing says that a right is missing.
    is_silent: bool = False

    @classmethod
    def after(cls, error: SpindownError) -> Self:
        """Return what is unknown after a question that ended so."""
        return cls(
            reason=str(error),
            is_missing=isinstance(error, (LedgerMissing, NotFound)),
            is_silent=isinstance(error, (Throttled, Unreachable)),
        )

    def remedy(self, otherwise: str) -> str:
        """Return what to do; ``otherwise``: where AWS has answered."""
        silent = "AWS gave no answer: try again, or check this machine's network"
        return silent if self.is_silent else otherwise


def ask(question: Callable[[], T]) -> T | Unknown:
    """Return the answer, or why there is none."""
    try:
        return question()
    except SpindownError as exc:
        return Unknown.after(exc)
