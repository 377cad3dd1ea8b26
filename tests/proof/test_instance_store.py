"""A worker's files on an emulated NVMe disk: a real kernel, file system and mounts."""

from pathlib import Path

import pytest

from tests.proof.guest.linux import run_in_guest

pytestmark = pytest.mark.proof

GIB = 1 << 30


def test_an_empty_nvme_disk_holds_what_a_worker_writes(tmp_path: Path) -> None:
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    for disk, gib in zip(disks, (4, 4, 2), strict=True):
        with disk.open("wb") as made:
            made.truncate(gib * GIB)

    # It ends with an error at the first of its checks that does not hold.
    run_in_guest(["sh", "tests/proof/guest/instance_store.sh"], tmp_path, disks=disks)
