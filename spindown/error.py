"""Every error that crosses a boundary inside Spindown, as one short tree.

SpindownError
    BadInput             the user's words: names the field, the value and the remedy
        ConfigError      spindown.toml, a live policy, an environment variable
        ContractError    a message, manifest, row or event that is not what its schema says
            NewerSchema  written by a later version: put it back, never rewrite it
    NotFound             the object, row, parameter or instance is not there
    PreconditionFailed   a conditional write lost: somebody else wrote first
    WriteConflict        a racing write (S3's 409, a transaction): repeat with the same condition
    StaleHandle          a receipt handle that no longer holds its message
    LeaseLost            fenced off: drop the job at once, keep nothing
    Throttled            the service asks to slow down: end the tick, back off
    AccessDenied         a grant is missing; names the action
    Unreachable          no answer, or a fault on their side: state unknown
"""

from dataclasses import dataclass


class SpindownError(Exception):
    """The root of everything Spindown raises on purpose."""


@dataclass
class BadInput(SpindownError):
    """Input that a person gave and can fix.

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
        shown = "not set" if self.value is None else repr(self.value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[: _SHOWN_CHARACTERS - 3] + "..."
        # A key of theirs may be part of the name, and is not to break the sentence.
        field = "".join(c if c.isprintable() else "?" for c in self.field)
        return f"{field} is {shown}: {self.remedy}"


_SHOWN_CHARACTERS = 120


class ConfigError(BadInput):
    """A setting is wrong: spindown.toml, a live policy, or an environment variable."""


class ContractError(BadInput):
    """Something that crossed a process does not match its schema."""


class NewerSchema(ContractError):
    """Written by a newer major version; must be left untouched."""


class NotFound(SpindownError):
    """What was asked for does not exist."""


class PreconditionFailed(SpindownError):
    """A conditional write did not apply because its condition no longer held."""


class WriteConflict(SpindownError):
    """A racing write on the same key; repeat with the *same* condition."""


class StaleHandle(SpindownError):
    """A receipt handle that no longer controls its message."""


class LeaseLost(SpindownError):
    """Another epoch owns the job now; nothing of ours may be written."""


class Throttled(SpindownError):
    """The service's request rate is used up for now."""


class AccessDenied(SpindownError):
    """The caller's role lacks a grant."""


class Unreachable(SpindownError):
    """No usable answer: a timeout, a broken connection, or a fault of the service."""
