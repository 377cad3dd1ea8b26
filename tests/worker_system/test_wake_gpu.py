"""The GPUs are ready for CUDA before anything starts that may not make them so."""

import os
from pathlib import Path

import pytest

from tests.worker_system.kit import SYSTEM, Stubs

UNIT = SYSTEM / "spindown-worker.service"


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    stubs = Stubs(tmp_path)
    stubs.add("nvidia-smi")
    stubs.add("nvidia-modprobe")
    return stubs


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        pytest.param([], ["nvidia-smi -L", "nvidia-modprobe -u -c=0"], id="nothing is loaded"),
        pytest.param(["nvidia0"], ["nvidia-modprobe -u -c=0"], id="no unified memory"),
        pytest.param(["nvidia0", "nvidia-uvm"], [], id="the distribution has done it"),
    ],
)
def test_loads_missing_kernel_modules_that_cuda_needs(
    stubs: Stubs, tmp_path: Path, there: list[str], asked: list[str]
) -> None:
    for name in there:
        (tmp_path / name).touch()

    done = stubs.run(SYSTEM / "wake-gpu.sh", tmp_path)

    assert done.returncode == 0, done.stderr
    assert stubs.calls == asked


def test_unified_memory_is_loaded_though_nvidia_smi_fails(stubs: Stubs, tmp_path: Path) -> None:
    stubs.add("nvidia-smi", "exit 9")

    assert stubs.run(SYSTEM / "wake-gpu.sh", tmp_path).returncode == 0
    assert stubs.calls_of("nvidia-modprobe") == ["-u -c=0"]


def test_a_machine_without_nvidias_driver_is_left_alone(tmp_path: Path) -> None:
    stubs = Stubs(tmp_path)
    for name in ("sh", "dash"):
        found = next((d for d in os.get_exec_path() if (Path(d) / name).exists()), None)
        if found is not None:
            (stubs.directory / name).symlink_to(Path(found) / name)
    stubs.add("nvidia-modprobe")

    done = stubs.run("sh", "-c", f"PATH={stubs.directory} sh {SYSTEM / 'wake-gpu.sh'} {tmp_path}")

    assert done.returncode == 0, done.stderr
    assert stubs.calls == []


def test_root_wakes_the_gpus_since_the_worker_gains_no_rights() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    wakes = "ExecStartPre=+-/opt/spindown/system/wake-gpu.sh"

    assert "NoNewPrivileges=yes" in lines
    assert lines.index(wakes) < lines.index(
        "ExecStart=/opt/spindown/worker/bin/python -I -u -m spindown.worker"
    )
