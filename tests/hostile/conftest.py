"""Hostile code has a cell of its own, where this machine can give it another user than ours.

Elsewhere the attacks are not collected, and the proof says so (``tests/proof/test_hostile.py``).
"""

import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.hostile.cell import Cell, a_cell

#: Root on Linux, with the programs of util-linux by which an instance starts the code.
CAN_ATTACK = (
    sys.platform == "linux"
    and os.geteuid() == 0
    and all(shutil.which(name) for name in ("setpriv", "prlimit"))
)
collect_ignore = [] if CAN_ATTACK else ["test_exhaustion.py", "test_files.py", "test_process.py"]


@pytest.fixture
def cell() -> Iterator[Cell]:
    with a_cell() as made:
        yield made
