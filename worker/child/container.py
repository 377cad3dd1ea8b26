"""How a program runs in a container with its GPUs, or on the instance itself.

A container gets what a command gets, at the same paths, and nothing else of the instance: its own
network behind the instance's, no capability, no way to more rights, the user of the user's code.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spindown.error import SpindownError
from spindown.worker.child.process import UNBUFFERED
from spindown.worker.child.program_call import HOME, ProgramCall

#: In the order of preference. Each understands the arguments below.
RUNTIMES = ("docker", "podman", "nerdctl")
#: On each container: the instance whose worker started it.
OWNER_LABEL = "spindown.instance"
#: Seconds for what a runtime is asked besides running a container.
_ASK_SECONDS = 30.0
#: The runtime failed, the program cannot be run, or is not there (docker-run(1), podman-run(1)).
_NOT_STARTED = frozenset({125, 126, 127})
#: A line of `docker info`, `nerdctl info` and `podman info`.
_ROOTLESS = re.compile(r"^\s*rootless(: true)?\s*$", re.MULTILINE)


class NoRuntime(SpindownError):
    """No container runtime answers on this machine."""


class Place(Protocol):
    """Where a program runs."""

    def prepare(self) -> Sequence[str]:
        """Return the program that must have run before the first call; empty: none."""
        ...

    def command(self, call: ProgramCall) -> Sequence[str]:
        """Return how to start a call."""
        ...

    def environment(self, call: ProgramCall | None) -> Mapping[str, str]:
        """Return the environment to start it in; None: what is to be prepared."""
        ...

    def first_process(self, call: ProgramCall, started: int) -> int | None:
        """Return the process that all others of a call come from; None: there is none yet."""
        ...

    def complaint(self, status: int, lines: Sequence[str]) -> str:
        """Return why a call could not be started; "": it was."""
        ...

    def clean(self, call: ProgramCall) -> bool:
        """End what is left of a call; tell whether it is known that memory ended it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """On the instance itself, as the user of the user's code."""

    argv: Sequence[str]
    #: What becomes that user, and then runs its arguments.
    launcher: Sequence[str] = ()
    env: Mapping[str, str]

    def prepare(self) -> Sequence[str]:
        """Return nothing: a command is there."""
        return ()

    def command(self, call: ProgramCall) -> Sequence[str]:  # noqa: ARG002 - it is told by environment
        """Return the command."""
        return (*self.launcher, *self.argv)

    def environment(self, call: ProgramCall | None) -> Mapping[str, str]:
        """Return the command's environment."""
        return {**UNBUFFERED, **self.env, **(call.env if call else {})}

    def first_process(self, call: ProgramCall, started: int) -> int | None:  # noqa: ARG002 - one for all
        """Return the process itself."""
        return started

    def complaint(self, status: int, lines: Sequence[str]) -> str:  # noqa: ARG002 - it says itself
        """Return nothing: what cannot be started raises OSError."""
        return ""

    def clean(self, call: ProgramCall) -> bool:  # noqa: ARG002 - its session is gone already
        """Do nothing."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one container may take."""

    #: Processes and threads together: more is a runaway.
    pids: int = 8192
    #: Shared memory, which loaders of batches pass tensors through; 64 MiB is a runtime's default.
    shm: str = "8g"
    #: Memory runs out in the user's code first, as worker/system/run-code.sh has it.
    oom_score: int = 500
    #: Bytes of memory, where jobs share the machine; None: no bound of its own.
    memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """In a container of its own for each call."""

    #: docker, podman or nerdctl.
    runtime: str
    image: str
    argv: Sequence[str] = ()
    #: Indexes of the GPUs it may use; None: all; empty: none.
    gpus: Sequence[int] | None = None
    #: ``uid:gid`` of the user's code.
    user: str
    slot: int
    #: Instance of the worker, by which what it has left is found; see ``remove_containers``.
    owner: str
    #: The code's directory, mounted to read; None: the image holds all.
    code: Path | None = None
    #: Of the workload's own settings; nothing of the worker's.
    env: Mapping[str, str]
    #: Names in ``env`` whose values nobody may read among the arguments of a process.
    secrets: Collection[str] = ()
    #: Of the runtime's client.
    client_env: Mapping[str, str]
    limits: Limits = Limits()

    def prepare(self) -> Sequence[str]:
        """Return the pull of the image."""
        return (self.runtime, "pull", "--quiet", self.image)

    def command(self, call: ProgramCall) -> Sequence[str]:
        """Return the arguments of the runtime (golden files: tests/worker/child/golden)."""
        job = call.directory.parent
        options = [
            *("--name", self._name(call), "--label", f"{OWNER_LABEL}={self.owner}"),
            # A first process that passes signals on and reaps what the program leaves.
            "--init",
            *("--user", self.user),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(self.limits.pids), "--shm-size", self.limits.shm),
            *("--oom-score-adj", str(self.limits.oom_score)),
            *self._memory_options(),
            *("--network", "bridge"),
            *self._runtime_options(),
            *self._gpu_options(),
            # What the code may write, in what it may not.
            *("--volume", f"{job}:{job}:ro"),
            *_volumes(call.task.outputs, call.task.state, job / HOME, call.directory),
            *self._code_options(),
        ]
        # The user has no home in the image; what keeps files there finds a place that it may write.
        env = {"HOME": str(job / HOME), **UNBUFFERED, **self.env, **call.env}
        for name, value in sorted(env.items()):
            options += ["--env", name if name in self.secrets else f"{name}={value}"]
        return (self.runtime, "run", *options, self.image, *self.argv)

    def environment(self, call: ProgramCall | None) -> Mapping[str, str]:
        """Return what the runtime's own program needs, and the secrets that it passes on."""
        if call is None:
            return self.client_env
        return {**self.client_env, **{n: v for n, v in self.env.items() if n in self.secrets}}

    def first_process(self, call: ProgramCall, started: int) -> int | None:  # noqa: ARG002 - only its client
        """Return the container's first process, which is no child of the client."""
        pid = self._ask("inspect", "--format", "{{.State.Pid}}", self._name(call)).strip()
        return int(pid) if pid.isdecimal() and pid != "0" else None

    def complaint(self, status: int, lines: Sequence[str]) -> str:
        """Return what the runtime itself says; after it come hints on how to call it."""
        if status not in _NOT_STARTED:
            return ""
        own = (f"{Path(self.runtime).name}: ", "Error: ")
        return next((line for line in lines if line.startswith(own)), "")

    def clean(self, call: ProgramCall) -> bool:
        """Remove the container, running or not; tell whether memory ended it."""
        name = self._name(call)
        state = self._ask("inspect", "--format", "{{.State.OOMKilled}} {{.State.Running}}", name)
        _end_containers(self._ask, [name], are_running=state.strip().endswith("true"))
        return state.startswith("true")

    def _ask(self, *arguments: str) -> str:
        return _ask(self.runtime, arguments, self.client_env)

    def _name(self, call: ProgramCall) -> str:
        # Unique among all workers: one slot has one job, and one call at a time.
        job = call.directory.parent.name[-32:]
        return f"spindown-{self.owner}-{self.slot}-{job}-{call.directory.name}"

    def _runtime_options(self) -> Sequence[str]:
        if self.runtime == "nerdctl":
            return ()
        # The worker keeps the output; a second copy would grow on the disk without a bound.
        options = ("--log-driver", "none")
        # Alone among them podman passes the client's own proxies on, with what they hold.
        return (*options, "--http-proxy=false") if self.runtime == "podman" else options

    def _memory_options(self) -> Sequence[str]:
        most = self.limits.memory
        # The same number for both: no swap on top.
        return () if most is None else ("--memory", str(most), "--memory-swap", str(most))

    def _gpu_options(self) -> Sequence[str]:
        if self.gpus is not None and not self.gpus:
            return ()
        if self.runtime == "podman":
            # By the Container Device Interface, which NVIDIA's toolkit writes for it.
            names = ["all"] if self.gpus is None else [str(gpu) for gpu in self.gpus]
            return [part for name in names for part in ("--device", f"nvidia.com/gpu={name}")]
        if self.gpus is None:
            return ("--gpus", "all")
        return ("--gpus", '"device=' + ",".join(map(str, self.gpus)) + '"')

    def _code_options(self) -> Sequence[str]:
        if self.code is None:
            return ()
        return ("--volume", f"{self.code}:{self.code}:ro", "--workdir", str(self.code))


def _volumes(*folders: Path | None) -> Sequence[str]:
    return [part for one in folders if one for part in ("--volume", f"{one}:{one}")]


def find_runtime(env: Mapping[str, str]) -> str:
    """Return the container runtime of this machine, one whose daemon answers.

    Raises:
        NoRuntime: none does; one sentence says what was tried.
    """
    tried = []
    for name in RUNTIMES:
        if shutil.which(name, path=env.get("PATH", os.defpath)) is None:
            tried.append(f"{name} is not installed")
            continue
        try:
            done = _run(name, ["info"], env)
        except (OSError, subprocess.TimeoutExpired) as exc:
            tried.append(f"{name} gives no answer ({exc})")
            continue
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            tried.append(f"{name} does not work ({said[-1] if said else done.returncode})")
        elif _ROOTLESS.search(done.stdout):
            # Its containers' packets are those of the worker's own user, whom no rule keeps from
            # the metadata, and no other user owns the files that they write.
            tried.append(f"{name} works without root here, so its containers would be the worker")
        else:
            return name
    raise NoRuntime(f"run.image needs a container runtime, and there is none: {'; '.join(tried)}")


def remove_containers(runtime: str, owner: str, env: Mapping[str, str]) -> Sequence[str]:
    """End the containers that a worker of this instance has left; return their ids.

    They are nobody's children: a worker that was killed has not taken them along.
    """

    def ask(*arguments: str) -> str:
        return _ask(runtime, arguments, env)

    left = ask("ps", "--all", "--quiet", "--filter", f"label={OWNER_LABEL}={owner}").split()
    if left:
        _end_containers(ask, left, are_running=True)
    return left


def _end_containers(
    ask: Callable[..., str], containers: Sequence[str], *, are_running: bool
) -> None:
    # Without it podman would wait ten seconds for a program that does not heed SIGTERM.
    if are_running:
        ask("kill", *containers)
    ask("rm", "--force", *containers)


def _ask(runtime: str, arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """Return what a runtime answers; "": nothing."""
    try:
        return _run(runtime, arguments, env).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _run(
    runtime: str, arguments: Sequence[str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [runtime, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=_ASK_SECONDS,
        env=dict(env),
    )
