"""The result of an examination: a finding for each thing that a launch depends on."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    GOOD = "ok"
    #: Launches work, but less well than asked for; or it is unknown whether they work.
    WARNING = "warning"
    #: Some workload cannot launch anything.
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found about one thing, and the remedy if it is not good."""

    what: str
    found: str
    needed: str = ""
    #: What to do, with the command where there is one; "": nothing.
    remedy: str = ""
    severity: Severity = Severity.GOOD


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings; each depends on the ones before it."""

    findings: tuple[Finding, ...]

    @property
    def can_launch(self) -> bool:
        """Tell whether every workload could launch."""
        return all(finding.severity is not Severity.BLOCKED for finding in self.findings)


def join(names: Iterable[str]) -> str:
    """Return names for a person, or "none"."""
    return ", ".join(sorted(names)) or "none"
