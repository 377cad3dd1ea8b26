"""A machine that is no good takes no job, and its row says why."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.useless_instance import has_missed_check_in
from spindown.job.worker_row import WorkerRow
from spindown.worker.machine.fitness import Ask, Equipment, examine_gpus, find_fault
from tests.builders import unfit
from tests.plant import Plant
from tests.work import WorkWorld, items

T4 = "0, Tesla T4, 15360"
H100 = "0, NVIDIA H100 80GB HBM3, 81559"
ECC = "ecc.errors.uncorrected.volatile.total"


ROWS = {"remapped_rows.failure": "No|No", "retired_pages.pending": "No|No"}
SOUND = {ECC: "0", "remapped_rows.failure": "No", "retired_pages.pending": "No"}


def answering(basic: str, health: Mapping[str, str] | None = None) -> Ask:
    """Answer as nvidia-smi does; a field that is not told is one that the driver does not know."""

    def ask(arguments: Sequence[str]) -> str:
        index, *fields = arguments[0].removeprefix("--query-gpu=").split(",")
        assert (index, arguments[1:]) == ("index", ["--format=csv,noheader,nounits"])
        lines = basic.splitlines()
        told = [line.split(", ", 1) for line in lines]
        if fields[:2] == ["name", "memory.total"]:
            answer, fields = lines, fields[2:]
        else:
            answer = [number for number, _ in told]
        for field in fields:
            if health is None or field not in health:
                raise subprocess.CalledProcessError(
                    2, "nvidia-smi", f'Field "{field}" is not valid'
                )
            answer = [
                f"{line}, {value}"
                for line, value in zip(answer, health[field].split("|"), strict=True)
            ]
        return "\n".join(answer) + "\n"

    return ask


@pytest.mark.parametrize(
    ("bought", "ask", "says"),
    [
        pytest.param(Equipment(gpus=1), answering(T4), None, id="a sound GPU of an old driver"),
        pytest.param(
            Equipment(gpus=1, gpu_memory_mib=16_384),
            answering(T4, {ECC: "0", "remapped_rows.failure": "[N/A]"}),
            None,
            id="EC2 counts what the driver keeps",
        ),
        pytest.param(
            Equipment(gpus=1, gpu_memory_mib=81_920),
            answering(H100, {ECC: "0", "remapped_rows.failure": "No"}),
            None,
            id="a large GPU",
        ),
        pytest.param(
            Equipment(gpus=1, gpu_memory_mib=40_960),
            answering(T4),
            ("GPU 0", "Tesla T4", "15360 MiB", "40960"),
            id="too little memory",
        ),
        pytest.param(
            Equipment(gpus=4),
            answering(f"{T4}\n1, Tesla T4, 15360"),
            ("4 GPUs", "2"),
            id="GPUs are missing",
        ),
        pytest.param(Equipment(gpus=0.5), answering("0, L4, 11500"), None, id="a part of a GPU"),
        pytest.param(
            Equipment(gpus=2),
            answering(f"{T4}\n1, Tesla T4, 15360", {ECC: "0|3"}),
            ("GPU 1", f"({ECC} is 3)"),
            id="memory errors",
        ),
        pytest.param(
            Equipment(gpus=1),
            answering(T4, {"retired_pages.pending": "Yes"}),
            ("GPU 0", "(retired_pages.pending is Yes)"),
            id="pages to retire",
        ),
        pytest.param(
            Equipment(gpus=1),
            answering(T4, {"remapped_rows.failure": "1"}),
            ("GPU 0", "(remapped_rows.failure is 1)"),
            id="a row that is lost",
        ),
        pytest.param(
            Equipment(gpus=2),
            answering(f"{T4}\n1, Tesla T4, 15360", {ECC: "0|2", **ROWS}),
            ("GPU 1", f"({ECC} is 2)"),
            id="memory errors, of a driver that knows all",
        ),
        pytest.param(
            Equipment(gpus=1),
            answering("0, Tesla T4, [GPU requires reset]"),
            ("GPU 0", "[GPU requires reset]"),
            id="a GPU that waits for a reset",
        ),
        pytest.param(
            Equipment(gpus=2),
            answering(f"{T4}\n1, Tesla T4, 15360", {ECC: "0|[GPU is lost]"}),
            ("GPU 1", "[GPU is lost]"),
            id="a GPU that has fallen off its bus",
        ),
        pytest.param(
            Equipment(gpus=1),
            answering("0, NVIDIA GB10, [N/A]", {ECC: "[Unknown Error]"}),
            None,
            id="what a driver does not tell",
        ),
    ],
)
def test_says_what_is_wrong_with_the_gpus(
    bought: Equipment, ask: Ask, says: tuple[str, ...] | None
) -> None:
    found = find_fault(bought, ask, is_there=True, is_installed=True)
    assert (found is None) is (says is None)
    assert all(part in str(found) for part in says or ())


def test_a_driver_that_knows_all_is_asked_once() -> None:
    asked = []

    def ask(arguments: Sequence[str]) -> str:
        asked.append(arguments)
        return answering(H100, SOUND)(arguments)

    assert find_fault(Equipment(gpus=1), ask, is_there=True, is_installed=True) is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            subprocess.CalledProcessError(9, "nvidia-smi", "NVIDIA-SMI has failed\n", "no driver"),
            "(9): NVIDIA-SMI has failed no driver",
        ),
        (
            subprocess.TimeoutExpired("nvidia-smi", 60.0),
            "60.0 seconds",
        ),
    ],
    ids=["fails", "hangs"],
)
def test_a_driver_that_does_not_answer_is_a_fault(error: Exception, says: str) -> None:
    def ask(arguments: Sequence[str]) -> str:
        raise error

    found = find_fault(Equipment(gpus=1), ask, is_there=True, is_installed=True)
    assert found is not None
    assert found.startswith("nvidia-smi ")
    assert says in found


@pytest.mark.parametrize(
    ("gpus", "is_there", "is_installed", "has_fault"),
    [
        (1, True, False, True),
        (1, False, False, False),
        (0, True, False, False),
    ],
    ids=["no driver", "a GPU of another maker", "no GPU was bought"],
)
def test_only_what_was_bought_of_nvidia_is_tested(
    gpus: float, *, is_there: bool, is_installed: bool, has_fault: bool
) -> None:
    found = find_fault(
        Equipment(gpus=gpus), answering(""), is_there=is_there, is_installed=is_installed
    )
    assert (found is not None) is has_fault


def test_a_real_program_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\ncase $1 in *memory.total) echo "0, T4, 15360" ;; *) exit 2 ;; esac\n'
    )
    program.chmod(0o755)
    device = tmp_path / "devices" / "0000:00:1e.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    devices = tmp_path / "devices"
    assert examine_gpus(Equipment(gpus=1), str(program), devices) is None
    assert examine_gpus(Equipment(gpus=2), str(program), devices) is not None
    gone = str(tmp_path / "none")
    assert "nvidia-smi" in str(examine_gpus(Equipment(gpus=1), gone, devices))
    assert examine_gpus(Equipment(gpus=1), "", devices) is None


def test_an_unfit_machine_never_checks_in_and_ends(tmp_path: Path) -> None:
    plant = Plant(tmp_path, find_fault=lambda worker: f"{worker.gpu_count:g} GPUs are broken")
    plant.world.send({"job_id": "a", "items": items(1)})
    plant.start()
    plant.join()
    worker = plant.world.worker()
    assert (worker.reason, worker.checked_in_at) == (unfit("1 GPUs are broken"), None)
    assert worker.unfit_at is not None
    assert not worker.takes_jobs
    assert plant.has_powered_off
    assert plant.world.queue.backlog().visible == 1
    # As the scaler finds it: a launch that came to nothing, counted against pool and image.
    plant.world.change_worker("i-1", state=WorkerState.ENDED)
    assert has_missed_check_in(plant.world.worker())


def test_what_is_condemned_is_not_marked_anew() -> None:
    world = WorkWorld()
    world.launch("i-1", state=WorkerState.CONDEMNED, reason=Reason(ReasonCode.SILENT))
    WorkerRow(workload="classify", instance_id="i-1", ports=world.ports).mark_unfit(unfit("broken"))
    assert world.worker().reason.code is ReasonCode.SILENT
