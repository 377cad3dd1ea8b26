"""The proof does not pass where the attacks cannot be run."""

import pytest


@pytest.mark.proof
def test_this_machine_can_run_hostile_code(can_attack: bool) -> None:
    assert can_attack, "be root on Linux, with setpriv and prlimit"
