"""Where a program runs: on the instance itself, or in a container with its GPUs.

A container gets what a command gets, at the same paths, and nothing else of the instance: its own
network behind the instance's, no capability, no way to more rights, the user of the user's code.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spindown.error import SpindownError
from worker.child.call import Call

#: In the order of preference. Each understands the arguments below.
RUNTIMES = ("docker", "podman", "nerdctl")
#: Seconds for what a runtime is asked besides running a container.
_ASK_SECONDS = 30.0


class NoRuntime(SpindownError):
    """No container runtime answers on this machine."""


class Place(Protocol):
    """Where a program runs."""

    def prepare(self) -> Sequence[str]:
        """Return the program that must have run before the first call; empty: none."""
        ...

    def command(self, call: Call) -> Sequence[str]:
        """Return how to start a call."""
        ...

    def environment(self, call: Call | None) -> Mapping[str, str]:
        """Return the environment to start it in; None: what is to be prepared."""
        ...

    def clean(self, call: Call) -> bool:
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

    def command(self, call: Call) -> Sequence[str]:  # noqa: ARG002 - it is told by environment
        """Return the command."""
        return (*self.launcher, *self.argv)

    def environment(self, call: Call | None) -> Mapping[str, str]:
        """Return the command's environment."""
        return {**self.env, **(call.env if call else {})}

    def clean(self, call: Call) -> bool:  # noqa: ARG002 - its session is gone already
        """Do nothing."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one container may take."""

    #: Processes and threads together: more is a runaway.
    pids: int = 8192
    #: Shared memory, which loaders of batches pass tensors through; 64 MiB is a runtime's default.
    shm: str = "8g"


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
    #: The code's directory, mounted to read; None: the image holds all.
    code: Path | None = None
    #: Of the workload's own settings; nothing of the worker's.
    env: Mapping[str, str]
    #: Of the runtime's client.
    client_env: Mapping[str, str]
    limits: Limits = Limits()

    def prepare(self) -> Sequence[str]:
        """Return the pull of the image."""
        return (self.runtime, "pull", "--quiet", self.image)

    def command(self, call: Call) -> Sequence[str]:
        """Return the arguments of the runtime (golden files: tests/worker/child/golden)."""
        job = call.directory.parent
        options = [
            *("--name", self._name(call)),
            # A first process that passes signals on and reaps what the program leaves.
            "--init",
            *("--user", self.user),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(self.limits.pids), "--shm-size", self.limits.shm),
            *("--network", "bridge"),
            *self._gpu_options(),
            *("--volume", f"{job}:{job}"),
            *self._code_options(),
        ]
        for name, value in sorted({**self.env, **call.env}.items()):
            options += ["--env", f"{name}={value}"]
        return (self.runtime, "run", *options, self.image, *self.argv)

    def environment(self, call: Call | None) -> Mapping[str, str]:  # noqa: ARG002 - in its arguments
        """Return what the runtime's own program needs."""
        return self.client_env

    def clean(self, call: Call) -> bool:
        """Remove the container, running or not; tell whether memory ended it."""
        name = self._name(call)
        told = self._ask("inspect", "--format", "{{.State.OOMKilled}}", name)
        self._ask("rm", "--force", name)
        return told.strip() == "true"

    def _ask(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [self.runtime, *arguments],
                check=False,
                capture_output=True,
                text=True,
                timeout=_ASK_SECONDS,
                env=dict(self.client_env),
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout

    def _name(self, call: Call) -> str:
        # Unique on this machine: one slot has one job, and one call at a time.
        return f"spindown-{self.slot}-{call.directory.parent.name[-32:]}-{call.directory.name}"

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
            done = subprocess.run(
                [name, "info"],
                check=False,
                capture_output=True,
                text=True,
                timeout=_ASK_SECONDS,
                env=dict(env),
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            tried.append(f"{name} gives no answer ({exc})")
            continue
        if done.returncode == 0:
            return name
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        tried.append(f"{name} does not work ({said[-1] if said else done.returncode})")
    raise NoRuntime(f"run.image needs a container runtime, and there is none: {'; '.join(tried)}")
