"""Every error that crosses a boundary inside Spindown, as one short tree.

SpindownError
    BadInput             a person's input is wrong: names the field, the value and the remedy
        NoCredentials    nobody is logged in to AWS
        ConfigError      in spindown.toml, a live policy or an environment variable
        ContractError    in a message, manifest, row or event: it breaks its schema
            NewerSchema  a later version wrote it: put it back, never rewrite it
    NotFound             the object, row, parameter or instance is not there
    LedgerMissing        the whole table of the ledger is not there
    PreconditionFailed   a conditional write lost: somebody else wrote first
    WriteConflict        a racing write (S3's 409, a transaction): repeat with the same condition
    StaleHandle          a receipt handle that has lost its message
    LeaseLost            another worker owns the job: drop it at once, write nothing
    Throttled            the service asks to slow down: end the tick, back off
    AccessDenied         a permission is missing; names the action
        Unreadable       no permission helps: it is archived, or its key is not there
    Unreachable          no answer, or a fault of the service: the outcome is unknown
    WorkFailed           work that a Python program waits for has no result
        ItemFailed       the code failed on an item
        JobFailed        the job of an item was given up or cancelled
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from itertools import islice
from typing import Any


def printable(text: str, *, keep: str = "") -> str:
    r"""Return text that no terminal obeys: one line, of printable characters only.

    A control character, a mark that turns the direction of writing and a lone surrogate are
    escaped (``\x1b``), and every blank becomes a space, but for the characters in ``keep``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def _escape(character: str) -> str:
    return " " if character.isspace() else character.encode("unicode_escape").decode()


class SpindownError(Exception):
    """The root of everything Spindown raises on purpose."""


@dataclass
class BadInput(SpindownError):
    """Input that a person gave and can correct.

    Attributes:
        field: dotted name of what is wrong, for example ``workload.ocr.policy.idle_timeout``.
        value: the offending value as the user wrote it, shortened; None: there is none.
        remedy: what to write instead, as an imperative clause.
    """

    field: str
    value: object
    remedy: str

    def __str__(self) -> str:
        """Say it in one sentence."""
        shown = "not set" if self.value is None else _shown(self.value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[: _SHOWN_CHARACTERS - 3] + "..."
        # Name and remedy may have parts that the person wrote. They must not break the line.
        return printable(f"{self.field} is {shown}: {self.remedy}")


_SHOWN_CHARACTERS = 120


#: Values inside values; a message may have so many that showing them would use up the stack.
_SHOWN_LEVELS = 4


def _shown(value: object, levels: int = _SHOWN_LEVELS) -> str:
    """Return the beginning of a value as TOML has it, as far as TOML has such values."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, dict | list | tuple) or not value:
        # Arrays show themselves in several lines.
        return " ".join(repr(value).splitlines())
    if not levels:
        return "..."
    if isinstance(value, dict):
        pairs = islice(value.items(), _SHOWN_CHARACTERS)
        return "{ " + ", ".join(f"{k} = {_shown(each, levels - 1)}" for k, each in pairs) + " }"
    shown = (_shown(each, levels - 1) for each in islice(value, _SHOWN_CHARACTERS))
    return f"[{', '.join(shown)}]"


class NoCredentials(BadInput):
    """Nobody is logged in to AWS here."""

    def __str__(self) -> str:
        """Say it in one sentence."""
        return f"no AWS credentials were found: {self.remedy}"


class ConfigError(BadInput):
    """A setting is wrong: spindown.toml, a live policy, or an environment variable."""


class ContractError(BadInput):
    """Something that another process wrote does not match its schema."""


def too_large(name: str, size: int, at_most: int) -> ContractError:
    """Return the error of an object of more bytes than its reader takes."""
    return ContractError(name, f"{size} bytes", f"keep it within {at_most} bytes")


class NewerSchema(ContractError):
    """A newer version wrote it; leave it untouched."""


class NotFound(SpindownError):
    """What was asked for does not exist."""


class LedgerMissing(SpindownError):
    """The table of the ledger does not exist; NotFound would say that of one row."""


class PreconditionFailed(SpindownError):
    """A conditional write did not apply because its condition no longer held.

    Attributes:
        keys: partition and sort key of each row whose condition failed, as far as the table names
            them.
        may_be_own: an earlier try of the same write had no answer, and may have been written.
    """

    def __init__(
        self, *said: object, keys: Iterable[tuple[str, str]] = (), may_be_own: bool = False
    ) -> None:
        super().__init__(*said)
        self.keys = frozenset(keys)
        self.may_be_own = may_be_own


class WriteConflict(SpindownError):
    """A racing write on the same key; repeat with the *same* condition."""


class StaleHandle(SpindownError):
    """A receipt handle that has lost its message."""


class LeaseLost(SpindownError):
    """Another epoch owns the job now; this worker may write nothing for it."""


class Throttled(SpindownError):
    """The service refuses for now: too many requests."""


class AccessDenied(SpindownError):
    """The caller's role lacks a permission."""


class Unreadable(AccessDenied):
    """An object that no permission makes readable: archived, or its key is not there."""


class Unreachable(SpindownError):
    """No usable answer: a timeout, a broken connection, or a fault of the service."""


@dataclass
class WorkFailed(SpindownError, ABC):
    """An item has no result.

    Attributes:
        index: place of the item among those that were given, from 0; None: not known.
        item: the item, as JSON.
        workload: whose work it is.
        batch_id: its batch; "": it ran in this process.
        job_id: its job; "": likewise.
        command: the shell command that tells more; "": there is none.
    """

    index: int | None
    item: Any
    workload: str
    batch_id: str = ""
    job_id: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        # By these a copy of it is made, as for another process.
        super().__init__(*(getattr(self, one.name) for one in fields(self)))

    @property
    @abstractmethod
    def reason(self) -> str:
        """Return why."""

    def __str__(self) -> str:
        """Say it in one sentence."""
        place = "an item" if self.index is None else f"item {self.index}"
        where = f" (job {self.job_id})" if self.job_id else ""
        more = f"; see it with: {self.command}" if self.command else ""
        # What a worker wrote is in it.
        return printable(f"{place} of {self.workload} has no result{where}: {self.reason}{more}")


@dataclass
class ItemFailed(WorkFailed):
    """The code failed on an item; the traceback of the machine, if there is one, is a note.

    The attributes are as the machine gave them; what is said of them no terminal obeys.

    Attributes:
        error: what it raised or said, in one line.
        traceback: where, as Python prints it; None: the code was no Python, or said nothing.
    """

    error: str = ""
    traceback: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.traceback:
            self.add_note(printable(self.traceback, keep="\n\t"))

    @property
    def reason(self) -> str:
        """Return what the code said."""
        return self.error


@dataclass
class JobFailed(WorkFailed):
    """The job of an item was given up, or cancelled.

    Attributes:
        state: "failed" or "cancelled".
        cause: why it was given up, or cancelled though nobody asked for it.
    """

    state: str = ""
    cause: str = ""

    @property
    def reason(self) -> str:
        """Return what became of the job."""
        if self.state != "cancelled":
            return f"given up: {self.cause}"
        # Of one that somebody has cancelled no more is known than that.
        why = "" if self.cause in {"", self.state} else f": {self.cause}"
        return f"its job was cancelled{why}"
