"""Where a worker belongs, and what its machine tells it."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract import tag
from spindown.contract.run_spec import RunSpec
from spindown.domain.offer import CapacityType
from spindown.error import ContractError, NotFound
from spindown.port import Identity
from spindown.worker.__main__ import (
    Division,
    find_fault,
    main,
    make_runner,
    read_settings,
    readable,
    visible_gpus,
    with_secrets,
)
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import RUNTIMES
from spindown.worker.log import open_log
from spindown.worker.settings import find_home
from tests.work import a_worker

TAGS = {
    tag.DEPLOYMENT: "demo",
    tag.WORKLOAD: "classify",
    tag.QUEUE_URL: "https://queue",
    tag.DLQ_URL: "https://dead",
    tag.TABLE: "demo--ledger",
    tag.BUCKET: "demo-bucket",
    tag.CODE: "s3://assets/abc.zip",
    tag.LOG_GROUP: "/spindown/demo",
}


def identity(tags: dict[str, str], region: str = "us-east-1") -> Identity:
    return Identity(
        instance_id="i-1",
        instance_type="g5.xlarge",
        region=region,
        zone=f"{region}a",
        capacity_type=CapacityType.SPOT,
        tags=tags,
    )


def test_folders_come_from_where_no_sender_writes(tmp_path: Path) -> None:
    home = find_home(identity(TAGS))
    spec = RunSpec(folders=True, inputs=("s3://mine/inputs/",))
    folders = Code(root=tmp_path, spec=spec, digest="d")
    program = replace(folders, spec=replace(spec, folders=False, command=("true",)))

    assert readable(home, folders) == ["s3://demo-bucket/folders/classify/"]
    assert readable(home, program) == ["s3://mine/inputs/", home.uploads]


def test_finds_home_by_the_tags_of_the_instance() -> None:
    home = find_home(identity(TAGS))
    assert (home.workload, home.table) == ("classify", "demo--ledger")
    assert home.uploads == "s3://demo-bucket/workloads/classify/inputs/"


def test_home_is_where_the_tag_says_wherever_the_instance_runs() -> None:
    abroad = identity({**TAGS, tag.REGION: "us-east-1"}, region="ap-south-1")

    assert find_home(abroad).region == "us-east-1"
    assert find_home(identity(TAGS)).region == "us-east-1"


@pytest.mark.parametrize("name", list(TAGS))
def test_names_the_tag_that_is_missing(name: str) -> None:
    with pytest.raises(ContractError, match=name):
        find_home(identity({key: value for key, value in TAGS.items() if key != name}))


@pytest.mark.parametrize(
    ("gpus", "slots", "shown"),
    [
        (1.0, 1, [None]),
        (4.0, 1, [None]),
        (4.0, 4, ["0", "1", "2", "3"]),
        (4.0, 2, ["0,2", "1,3"]),
        (1.0, 2, ["0", "0"]),
        (2.0, 4, ["0", "1", "0", "1"]),
        (3.0, 5, ["0", "1", "2", "0", "1"]),
        (0.125, 2, [None, None]),
    ],
)
def test_shares_the_gpus_out_among_the_slots(
    gpus: float, slots: int, shown: list[str | None]
) -> None:
    worker = a_worker(gpu_count=gpus, slots=slots)
    found = [visible_gpus(worker, slot).get("CUDA_VISIBLE_DEVICES") for slot in range(slots)]
    assert found == shown


def test_reads_what_belongs_to_the_machine(tmp_path: Path) -> None:
    environment = {
        "SPINDOWN_POWEROFF": "sh -c 'echo off'",
        "SPINDOWN_ALIVE": "/run/alive",
        "SPINDOWN_PYTHON": "/opt/python",
        "SPINDOWN_METADATA_INTERVAL": "0.5",
    }
    settings = read_settings(environment, tmp_path)
    assert settings.poweroff == ("sh", "-c", "echo off")
    assert settings.alive == Path("/run/alive")
    assert settings.python == "/opt/python"
    assert settings.metadata_interval == timedelta(seconds=0.5)
    assert read_settings({}, tmp_path).poweroff == ("systemctl", "poweroff")
    assert read_settings({}, tmp_path).metadata_interval == timedelta(seconds=5)


def test_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], {}) == 0
    assert capsys.readouterr().out.count(".") == 2


def test_a_child_imports_the_contract_without_aws_or_pydantic() -> None:
    program = "import sys, worker.child.user_code; print([m for m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not {"boto3", "botocore", "pydantic", "urllib3"} & set(eval(done.stdout))  # noqa: S307 - a list that we print


def test_secrets_are_read_by_name_into_the_code_s_environment(tmp_path: Path) -> None:
    spec = RunSpec(entrypoint="job:run", env={"LEVEL": "3"}, secrets={"TOKEN": "hub/token"})
    code = Code(root=tmp_path, spec=spec, digest="d")

    known, unread = with_secrets(code, {"hub/token": "t0p"}.__getitem__)

    assert unread is None
    assert known.spec.env == {"LEVEL": "3", "TOKEN": "t0p"}
    assert b"t0p" not in (repr(code) + repr(spec.secrets)).encode()


def test_a_secret_that_cannot_be_read_is_named_with_the_cause(tmp_path: Path) -> None:
    spec = RunSpec(entrypoint="job:run", secrets={"A": "hub/token", "B": "hub/gone"})
    code = Code(root=tmp_path, spec=spec, digest="d")

    def read(name: str) -> str:
        if name == "hub/gone":
            raise NotFound("Secrets Manager can't find the specified secret.")
        return "t0p"

    known, unread = with_secrets(code, read)

    assert known is code
    assert unread is not None
    assert "hub/gone" in unread
    assert unread.endswith("Secrets Manager can't find the specified secret.")


def test_the_code_s_user_is_ours_unless_the_machine_names_one(tmp_path: Path) -> None:
    ours = f"{os.getuid()}:{os.getgid()}"
    assert read_settings({}, tmp_path).code_user == ours
    assert read_settings({"SPINDOWN_CODE_USER": "root"}, tmp_path).code_user == "0:0"
    with pytest.raises(ContractError, match=r"run install\.sh"):
        read_settings({"SPINDOWN_CODE_USER": "nobody-of-that-name"}, tmp_path)


def test_a_program_is_started_as_the_machine_says(tmp_path: Path) -> None:
    settings = read_settings({"SPINDOWN_LAUNCHER": "/opt/run-code --"}, tmp_path)
    assert settings.launcher == ("/opt/run-code", "--")
    spec = RunSpec(command=("./a", "b"), env={"LEVEL": "3"})
    code = Code(root=tmp_path, spec=spec, digest="d")
    log = open_log(io.StringIO())
    runner = make_runner(a_worker(gpu_count=2.0, slots=2), 1, code, settings, log, Division())
    assert isinstance(runner, CommandRunner)


def test_without_a_container_runtime_a_machine_is_unfit_for_one(tmp_path: Path) -> None:
    settings = read_settings({"PATH": str(tmp_path)}, tmp_path)
    image = Code(root=tmp_path, spec=RunSpec(image="render:1"), digest="d")
    program = Code(root=tmp_path, spec=RunSpec(command=("a",)), digest="d")
    worker, ours = a_worker(), identity(TAGS)
    fault = find_fault(worker, ours, image, settings)
    assert fault is not None
    assert all(name in fault for name in RUNTIMES)
    assert find_fault(worker, ours, program, settings) is None


def test_a_machine_is_unfit_for_code_with_an_unreadable_secret(tmp_path: Path) -> None:
    settings = read_settings({"PATH": str(tmp_path)}, tmp_path)
    code = Code(root=tmp_path, spec=RunSpec(image="render:1"), digest="d")
    unread = "hub/gone"

    # First of all: nothing else of the machine matters then.
    assert find_fault(a_worker(), identity(TAGS), code, settings, unread) == unread


def test_a_worker_that_is_done_ends_though_a_transfer_hangs() -> None:
    program = (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "from worker.__main__ import leave\n"
        "ThreadPoolExecutor(1).submit(threading.Event().wait)\n"
        "print('told')\nleave(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (3, "told\n")
