"""Where a program runs: the arguments of each container runtime, and what is found at the start."""

import io
import os
import shutil
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.run_spec import Results, RunSpec
from spindown.user import Item
from spindown.worker.child.code import Code, has_code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import (
    RUNTIMES,
    Container,
    NoRuntime,
    find_runtime,
    remove_containers,
)
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.program_call import ProgramCall
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.log import open_log

GOLDEN = Path(__file__).parent / "golden"
SCRATCH = Path("/var/lib/spindown/work/spindown-7/slot-1/job-a.3")


def a_call() -> ProgramCall:
    outputs = SCRATCH / "outputs"
    return ProgramCall(
        task=Task(job_id="job-a", outputs=outputs, state=SCRATCH / "state"),
        batch=[Item(0, "a")],
        directory=SCRATCH / "call-1",
        output=outputs,
        env={"SPINDOWN_JOB_ID": "job-a", "SPINDOWN_OUTPUT": str(outputs)},
    )


def a_container(runtime: str = "docker", **changes: Any) -> Container:
    values: dict[str, Any] = {
        "image": "111122223333.dkr.ecr.us-east-1.amazonaws.com/render@sha256:" + "0" * 64,
        "argv": ("render", "--fast"),
        "gpus": (1,),
        "user": "998:997",
        "slot": 1,
        "owner": "i-1",
        "code": Path("/var/lib/spindown/work/spindown-7/code"),
        "env": {"LEVEL": "3", "TOKEN": "a secret"},
        "secrets": {"TOKEN"},
        "client_env": {"PATH": os.environ["PATH"]},
    }
    return Container(runtime=runtime, **{**values, **changes})


CASES: dict[str, Container] = {
    **{runtime: a_container(runtime) for runtime in RUNTIMES},
    **{f"{r}-all-gpus-no-code": a_container(r, gpus=None, code=None, argv=()) for r in RUNTIMES},
    "docker-no-gpu": a_container(gpus=()),
    "docker-two-gpus": a_container(gpus=(0, 2)),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_runtime_is_called_as_its_golden_file_says(name: str) -> None:
    argv = CASES[name].command(a_call())
    assert "\n".join(argv) + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(CASES))
def test_no_container_gets_more_than_its_job(name: str) -> None:
    argv = list(CASES[name].command(a_call()))
    volumes = [argv[i + 1] for i, word in enumerate(argv) if word == "--volume"]
    writable = [volume for volume in volumes if not volume.endswith(":ro")]
    names = ("outputs", "state", "home", "call-1")
    assert writable == [f"{SCRATCH}/{one}:{SCRATCH}/{one}" for one in names]
    assert volumes[0] == f"{SCRATCH}:{SCRATCH}:ro"
    assert argv[argv.index("--user") + 1] == "998:997"
    assert argv[argv.index("--network") + 1] == "bridge"
    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    assert not {"--privileged", "--pid", "--ipc"} & set(argv)
    assert not [word for word in argv if "a secret" in word]
    assert not [word for word in argv if "docker.sock" in word or word.startswith("AWS_")]


#: A runtime that runs what follows the image on this machine, and says what it was asked.
_STUB = r"""#!/bin/sh
echo "$*" >>"$0.calls"
case $1 in
    info) exit 0 ;;
    pull) test "$3" != broken:1 || { echo "manifest unknown"; exit 1; } ;;
    inspect)
        case $3 in
            *Pid*) echo "${FIRST:-0}" ;;
            *) echo "${OOM:-false} ${RUNNING:-false}" ;;
        esac ;;
    ps) echo "${LEFT:-}" ;;
    run)
        while [ "$1" != render:1 ]; do
            if [ "$1" = --env ]; then export "$2"; shift; fi
            shift
        done
        shift
        exec "$@" ;;
esac
"""


def a_stub(directory: Path, name: str = "docker", script: str = _STUB) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def run_image(
    tmp_path: Path, env: dict[str, str], script: str, image: str = "render:1"
) -> tuple[list[Event], list[str]]:
    code = Code(
        root=tmp_path,
        spec=RunSpec(image=image, command=("sh", "-c", script), results=Results.PER_ITEM),
        digest="d",
    )
    place = a_container(
        str(tmp_path / "bin" / "docker"),
        image=image,
        argv=code.spec.command,
        env={"LEVEL": "3"},
        secrets=(),
        code=None,
        client_env=env,
        gpus=None,
    )
    runner = CommandRunner(code, place, slot=0, log=open_log(io.StringIO()))
    runner.warm()
    outputs = tmp_path / "job.1" / "outputs"
    outputs.mkdir(parents=True)
    runner.begin(Task(job_id="j", outputs=outputs), [Item(0, "a")])
    events: list[Event] = []
    while not events or isinstance(events[-1], ItemDone):
        event = runner.poll(timedelta(seconds=5))
        events += [] if event is None else [event]
    runner.kill()
    calls = (tmp_path / "bin" / "docker.calls").read_text().splitlines()
    return events, [call.split()[0] for call in calls]


def test_an_image_is_pulled_once_run_for_each_call_and_removed(tmp_path: Path) -> None:
    env = a_stub(tmp_path / "bin")
    script = """echo '{"index": 0, "value": "'"$LEVEL"'"}' >>"$SPINDOWN_RESULTS" """
    events, calls = run_image(tmp_path, env, script)
    assert isinstance(events[0], ItemDone)
    assert (events[0].value, events[-1]) == ("3", BatchDone())
    assert calls == ["pull", "run", "inspect", "rm"]


def test_a_container_that_ran_out_of_memory_is_told_as_such(tmp_path: Path) -> None:
    env = {**a_stub(tmp_path / "bin"), "OOM": "true"}
    events, _ = run_image(tmp_path, env, "exit 137")
    [broken] = events
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.OUT_OF_MEMORY


def test_an_image_that_cannot_be_pulled_fails_the_attempt(tmp_path: Path) -> None:
    events, calls = run_image(tmp_path, a_stub(tmp_path / "bin"), "true", image="broken:1")
    [broken] = events
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.NOT_PULLED
    assert "broken:1" in broken.reason
    assert broken.reason.endswith("(status 1): manifest unknown")
    assert "run" not in calls


def test_the_first_runtime_that_answers_is_taken(tmp_path: Path) -> None:
    a_stub(tmp_path / "bin", "docker", "#!/bin/sh\necho 'no daemon' >&2\nexit 1\n")
    env = a_stub(tmp_path / "bin", "podman")
    assert find_runtime(env) == "podman"


@pytest.mark.parametrize(
    "told", ["    rootless: true", " Security Options:\n  rootless\n  seccomp"]
)
def test_a_runtime_without_root_is_not_taken(tmp_path: Path, told: str) -> None:
    a_stub(tmp_path / "bin", "docker", f"#!/bin/sh\necho '{told}'\n")
    env = a_stub(tmp_path / "bin", "podman", "#!/bin/sh\necho '    rootless: false'\n")
    assert find_runtime(env) == "podman"
    for name in ("podman", "nerdctl"):
        a_stub(tmp_path / "bin", name, "#!/bin/sh\nexit 1\n")
    with pytest.raises(NoRuntime, match="docker"):
        find_runtime(env)


def a_stubbed_container(tmp_path: Path, **env: str) -> tuple[Container, Callable[[], list[str]]]:
    known = {**a_stub(tmp_path / "bin"), **env}
    runtime = str(tmp_path / "bin" / "docker")
    calls = tmp_path / "bin" / "docker.calls"
    return a_container(runtime, client_env=known), lambda: calls.read_text().splitlines()


def test_a_running_container_is_killed_before_it_is_removed(tmp_path: Path) -> None:
    container, calls = a_stubbed_container(tmp_path, RUNNING="true")
    assert not container.clean(a_call())
    assert calls()[1:] == [
        "kill spindown-i-1-1-job-a.3-call-1",
        "rm --force spindown-i-1-1-job-a.3-call-1",
    ]


def test_the_secrets_are_in_the_environment_of_the_client_alone(tmp_path: Path) -> None:
    container, _ = a_stubbed_container(tmp_path)
    assert container.environment(a_call())["TOKEN"] == "a secret"
    assert "TOKEN" not in container.environment(None)


@pytest.mark.parametrize(("told", "first"), [("0", None), ("", None), ("4711", 4711)])
def test_the_first_process_is_the_containers_own(
    tmp_path: Path, told: str, first: int | None
) -> None:
    container, _ = a_stubbed_container(tmp_path, FIRST=told)
    assert container.first_process(a_call(), 12) == first


@pytest.mark.parametrize(
    ("status", "lines", "says"),
    [
        (
            125,
            ["docker: Error from daemon: no.", "", "Run 'docker run --help'"],
            "docker: Error from daemon: no.",
        ),
        (125, ["Error: statfs /x: no such file"], "Error: statfs /x: no such file"),
        (127, ["sh: no-such-program: not found"], ""),
        (1, ["docker: a line of the program's own"], ""),
    ],
)
def test_what_a_runtime_says_of_itself_is_its_complaint(
    status: int, lines: list[str], says: str
) -> None:
    assert a_container().complaint(status, lines) == says


def test_what_a_killed_worker_has_left_is_removed(tmp_path: Path) -> None:
    container, calls = a_stubbed_container(tmp_path, LEFT="c1\nc2")
    assert remove_containers(container.runtime, "i-1", container.client_env) == ["c1", "c2"]
    assert calls() == [
        "ps --all --quiet --filter label=spindown.instance=i-1",
        "kill c1 c2",
        "rm --force c1 c2",
    ]


def test_where_nothing_is_left_nothing_is_removed(tmp_path: Path) -> None:
    container, calls = a_stubbed_container(tmp_path)
    assert remove_containers(container.runtime, "i-1", container.client_env) == []
    assert len(calls()) == 1


def test_no_runtime_is_one_sentence(tmp_path: Path) -> None:
    a_stub(tmp_path / "bin", "docker", "#!/bin/sh\necho 'Cannot connect' >&2\nexit 1\n")
    sh = shutil.which("sh")
    assert sh is not None
    (tmp_path / "bin" / "sh").symlink_to(sh)
    with pytest.raises(NoRuntime) as caught:
        find_runtime({"PATH": str(tmp_path / "bin")})
    said = str(caught.value)
    assert said.startswith("run.image ")
    assert "(Cannot connect)" in said
    assert [said.count(name) for name in RUNTIMES] == [1, 1, 1]


def test_an_archive_that_only_names_an_image_holds_no_code(tmp_path: Path) -> None:
    code = Code(root=tmp_path, spec=RunSpec(image="a:1"), digest="d")
    (tmp_path / "spindown-run.json").write_text("{}")
    assert not has_code(code)
    (tmp_path / "model.py").write_text("")
    assert has_code(code)
