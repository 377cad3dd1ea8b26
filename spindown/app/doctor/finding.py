"""What an examination comes to: one line for each thing that a launch depends on."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    GOOD = "ok"
    #: Launches can work, but less well than asked for; or it could not be found out.
    WARNING = "warning"
    #: Some workload cannot launch anything.
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line."""

    what: str
    found: str
    needed: str = ""
    #: What to do, with the command where there is one; "": nothing.
    remedy: str = ""
    severity: Severity = Severity.GOOD


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All lines, in the order in which they depend on each other."""

    findings: tuple[Finding, ...]

    @property
    def can_launch(self) -> bool:
        """Tell whether every workload could launch."""
        return all(finding.severity is not Severity.BLOCKED for finding in self.findings)


def join(names: Iterable[str]) -> str:
    """Return names for a person, or that there is none."""
    return ", ".join(sorted(names)) or "none"
