"""The phases of a boot: how long each takes, which is the longest, and what baking would spare.

How long a boot may take is decided in ``learning.check_in_within``; ``termination`` ends an
instance whose boot takes longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median


class BootPhase(StrEnum):
    """What an instance goes through, in this order, from its launch to its first item."""

    #: EC2 places it and starts the kernel; a disk of a large image is read from S3 at first.
    IMAGE = "image"
    #: The system starts, up to user data.
    CLOUD_INIT = "cloud-init"
    #: User data installs the worker and the packages of its code, and starts it.
    INSTALL = "install"
    #: The worker fetches its code, tests the machine and checks in.
    FITNESS = "fitness"
    #: The user's code is loaded, with what its setup does, and is given the first item of a job.
    FIRST_ITEM = "first-item"


def boot_phases(
    launched_at: datetime, ends: Mapping[BootPhase, datetime | None]
) -> dict[BootPhase, float]:
    """Return the seconds of each phase.

    Args:
        launched_at: by EC2's clock.
        ends: when each phase was over, by the instance's clock; None: nobody can say, as for the
            kernel of a machine that was there before its instance. What it took counts with the
            phase after it.
    """
    found: dict[BootPhase, float] = {}
    before = launched_at
    for phase in BootPhase:
        end = ends.get(phase)
        # The two clocks may differ by a second.
        if end is not None and end >= launched_at - timedelta(seconds=2):
            found[phase] = max((end - before).total_seconds(), 0.0)
            before = max(end, before)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BootProfile:
    """The usual boot of a workload's instances: phase -> median seconds, in order."""

    phases: Mapping[BootPhase, float]

    @property
    def seconds(self) -> float:
        """Return how long all phases take together."""
        return sum(self.phases.values())

    @property
    def slowest(self) -> BootPhase:
        """Return the phase that takes longest."""
        return max(self.phases, key=lambda phase: self.phases[phase])

    @property
    def install_share(self) -> float:
        """Return the share of a boot that an image with all installed spares, 0 to 1."""
        return self.phases.get(BootPhase.INSTALL, 0.0) / self.seconds if self.seconds else 0.0

    @property
    def is_slow_to_install(self) -> bool:
        """Tell whether an image with all installed spares the slowest phase, a minute at least."""
        install = self.phases.get(BootPhase.INSTALL, 0.0)
        return self.slowest is BootPhase.INSTALL and install >= _WORTH_SAYING


#: Seconds of a boot; a shorter install is not worth an image that takes half an hour to bake.
_WORTH_SAYING = 60.0


def usual_boot(samples: Mapping[BootPhase, Sequence[float]]) -> BootProfile | None:
    """Return the usual boot from samples in seconds; None: nothing is known."""
    phases = {phase: median(samples[phase]) for phase in BootPhase if samples.get(phase)}
    return BootProfile(phases=phases) if phases else None
