"""What systemd keeps from all that runs below the worker."""

from tests.worker_system.kit import SYSTEM


def test_no_job_leaves_a_key_in_the_kernel() -> None:
    unit = (SYSTEM / "spindown-worker.service").read_text(encoding="utf-8").splitlines()

    # Refused as in a container of Docker: a program that asks goes on without.
    assert "SystemCallFilter=~@keyring:EPERM" in unit
