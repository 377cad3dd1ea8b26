"""Boots from the launch to the first item, composed of phases that were measured.

The first phases are measured launches of EC2 (``aws_boot_timing_2026.csv``, Spare Cores). What
follows on the worker is the product's own install, and bytes over what a disk writes in a second.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spindown.simulator import Boot, fit_boot

#: Seconds from the launch to the start of user data, and to the end of an install of drivers and
#: docker: columns of the file.
_TO_USER_DATA = "user_data_start_s"
_TO_INSTALLED = "user_data_end_s"
#: Seconds after which EC2 had answered the launch. A later answer waited for capacity: no boot.
_ANSWERED, _ANSWERED_AT_MOST = "api_end_s", 60.0
#: Seconds of the product's own install in a clean root, and of a worker's start.
_OWN_INSTALL, _WORKER_START = 9.0, 3.0
#: A gp3 volume writes so many MB a second unless more is paid for (EBS User Guide).
_DISK_MB_PER_SECOND = 125.0
#: MB that a requirement of some small packages writes; PyTorch with CUDA; the model. Assumed.
_SMALL_MB, _TORCH_MB, _MODEL_MB = 250.0, 5_500.0, 5_000.0
#: Of a normal distribution: the deviation that 19 of 20 do not exceed.
_Z_95 = 1.645
#: Seconds of the user's ``setup`` with a small model, and with the large one. Assumed.
_SMALL_SETUP, _MODEL_SETUP = 5.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedBoot:
    """One case: which measured phase, and the seconds that come after it."""

    title: str
    column: str
    then: float


CASES: Mapping[str, ComposedBoot] = {
    "baked": ComposedBoot(
        title="baked image, small model",
        column=_TO_USER_DATA,
        then=_WORKER_START + _SMALL_SETUP,
    ),
    "bootstrap": ComposedBoot(
        title="bootstrap, small requirements",
        column=_TO_INSTALLED,
        then=_OWN_INSTALL + _SMALL_MB / _DISK_MB_PER_SECOND + _SMALL_SETUP,
    ),
    "model": ComposedBoot(
        title="bootstrap with PyTorch and a model of 5 GB",
        column=_TO_INSTALLED,
        then=_OWN_INSTALL + (_TORCH_MB + _MODEL_MB) / _DISK_MB_PER_SECOND + _MODEL_SETUP,
    ),
}


def composed(name: str, data: Path) -> Boot:
    """Return the boot of a case: the least, median and 95th percentile of launches, and the rest.

    Args:
        name: of ``CASES``.
        data: directory of the measured launches.
    """
    case = CASES[name]
    seconds = _measured(data / "aws_boot_timing_2026.csv", case.column)
    least, usual, late = (share_of(seconds, share) for share in (0.0, 0.5, 0.95))
    return fit_boot(usual + case.then, late + case.then, least=least + case.then)


def p95(boot: Boot) -> float:
    """Return what 19 of 20 launches do not exceed, seconds."""
    return boot.at_least + boot.median * math.exp(_Z_95 * boot.sigma)


def share_of(seconds: Sequence[float], share: float) -> float:
    """Return the least measured time that so large a share of all does not exceed."""
    return sorted(seconds)[max(math.ceil(share * len(seconds)) - 1, 0)]


def _measured(path: Path, column: str) -> list[float]:
    with path.open() as file:
        return [
            float(row[column])
            for row in csv.DictReader(file)
            if row[column] and float(row[_ANSWERED]) <= _ANSWERED_AT_MOST
        ]
