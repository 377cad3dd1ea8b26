"""The local system in a process of its own, for `spindown local up`, `down` and `status`."""

import argparse
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from spindown.contract.codec import decode, encode
from spindown.error import BadInput, SpindownError
from spindown.local import STATE, TICK, environment
from spindown.local.state import StateDirectory
from spindown.local.status import CHANGED_PATH, STATUS_PATH, WITH_JOBS_PATH, SystemStatus

_STOP_SECONDS = 15.0
_REAP_SECONDS = 60.0
_EXIT_SECONDS = 5.0
_POLL_SECONDS = 0.05
#: An answer of the system; and until each function has run once.
_ANSWER_SECONDS, _RENEW_SECONDS = 10.0, 300.0
_STARTING = "The local system is still starting; ask again in a few seconds."


class DaemonError(SpindownError):
    """The process in the background did not do what was asked; the text is one sentence."""


def start(
    config_path: Path,
    *,
    scenario: str | None = None,
    state: Path | None = None,
    port: int | None = None,
    tick: timedelta | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> SystemStatus:
    """Start the local system in the background and deploy into it; return when it is ready.

    Where one runs in the directory, what has changed since is deployed into that, and its queues
    and results stay. `tell` hears of each step as it begins.

    Raises `DaemonError`, `DeployError` or `BadInput` with one sentence when that fails; then
    nothing is left running that did not run before.
    """
    directory = StateDirectory(state or STATE)
    directory.make()
    if (holder := directory.holder()) is not None:
        _refuse_other(holder, scenario, port, tick)
        _change(config_path, holder, directory, tell)
        found = status(state)
        if found is None:
            raise DaemonError("The local system has ended meanwhile: run `spindown local up` again")
        return found
    tell("starting the emulator")
    command = [
        *(sys.executable, "-m", "spindown.local.daemon", str(config_path.resolve())),
        *("--scenario", scenario or "default", "--state", str(directory.path)),
        *("--tick", str((tick or TICK).total_seconds())),
        *(("--port", str(port)) if port is not None else ()),
    ]
    with directory.log_path("daemon").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        ready = _ready(process, directory.log_path("daemon"), tell)
    except BaseException:
        _end(process)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
    # It is to outlive this call; should it end before the caller does, this takes note.
    threading.Thread(target=process.wait, daemon=True).start()
    return ready


_DOWN_FIRST = "run `spindown local down` first"


def _refuse_other(
    holder: Mapping[str, str], scenario: str | None, port: int | None, tick: timedelta | None
) -> None:
    """Refuse options with which the system that runs was not started; None: not given."""
    # Slow to import, and for this alone.
    from spindown.local.market.scenario import digest_of, load_scenario  # noqa: PLC0415

    if "endpoint" not in holder:
        raise DaemonError(_STARTING)
    if "tick" not in holder:
        raise DaemonError(f"The local system that runs is of another version: {_DOWN_FIRST}.")
    seconds = None if tick is None else tick.total_seconds()
    is_other = {
        ("--scenario", scenario): scenario is not None
        and digest_of(load_scenario(scenario)) != holder["scenario"],
        ("--port", port): port not in {None, 0, urlsplit(holder["endpoint"]).port},
        ("--tick", seconds): seconds not in {None, float(holder["tick"])},
    }
    for (option, value), differs in is_other.items():
        if differs:
            remedy = f"a local system runs already, with another: {_DOWN_FIRST}"
            raise BadInput(option, str(value), remedy)


def _change(
    config_path: Path,
    holder: Mapping[str, str],
    directory: StateDirectory,
    tell: Callable[[str], None],
) -> None:
    """Deploy what has changed into the system that runs."""
    # Slow to import, and for this alone.
    import boto3  # noqa: PLC0415

    from spindown import config  # noqa: PLC0415
    from spindown.local.deployment import (  # noqa: PLC0415
        deploy,
        is_deployed,
        put_dashboards,
        stacks_of,
    )

    deployment = config.load(config_path, named="--config").deployment
    regions = tuple(deployment.regions)
    here = {"deployment.name": deployment.name, "deployment.outpost": " ".join(regions)}
    runs = {"deployment.name": holder["deployment"], "deployment.outpost": holder["regions"]}
    for field, value in here.items():
        if value != runs[field]:
            remedy = f"the local system that runs has {runs[field]}: {_DOWN_FIRST}"
            raise BadInput(field, value, remedy)
    if is_deployed(config_path, directory.path):
        tell("nothing has changed: the local system runs")
        return
    endpoint, region = holder["endpoint"], regions[0]
    here_only = environment.aws_environment(endpoint, region)
    deploy(
        config_path,
        stacks=stacks_of(deployment.name, regions),
        state=directory.path,
        environment=environment.outer_environment() | here_only,
        log=directory.log_path("deploy"),
        tell=tell,
    )
    session = boto3.Session(environment.ACCESS_KEY, environment.SECRET_KEY, region_name=region)
    put_dashboards(
        session.client("cloudwatch", endpoint_url=endpoint), directory.path, deployment.name, region
    )
    tell("running the functions anew")
    _ask(directory.path, CHANGED_PATH, seconds=_RENEW_SECONDS)


def _ready(
    process: "subprocess.Popen[bytes]", log: Path, tell: Callable[[str], None]
) -> SystemStatus:
    """Tell the steps of the process, until the line that it answers with."""
    answer: dict[str, Any] = {}
    for line in process.stdout or ():
        answer = json.loads(line)
        if "step" not in answer:
            break
        tell(answer["step"])
    if "status" not in answer:
        said = answer.get("error", f"it ended early; {log} has the details.")
        raise DaemonError(f"The local system did not start: {said}")
    return decode(SystemStatus, answer["status"])


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop(state: Path | None = None, tell: Callable[[str], None] = lambda _: None) -> bool:
    """End the local system of a directory with all that it runs; False when none runs there.

    `tell` hears of each step as it begins (raises `DaemonError`: it does not end).
    """
    directory = StateDirectory(state or STATE)
    holder = directory.holder()
    if holder is None:
        return False
    waiting = threading.Event()
    # Once it is killed its reaper ends what it ran, which a busy machine takes long for.
    for number, seconds, step in (
        (signal.SIGTERM, _STOP_SECONDS, "ending instances, functions and the emulator"),
        (signal.SIGKILL, _REAP_SECONDS, "killing the system, which took too long to end by itself"),
    ):
        tell(step)
        if "pid" in holder:
            with suppress(ProcessLookupError):
                os.kill(holder["pid"], number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if directory.holder() is None:
                if "pid" in holder:
                    _await_exit(holder["pid"])
                # A killed one leaves them.
                shutil.rmtree(directory.path / "tmp", ignore_errors=True)
                return True
            waiting.wait(_POLL_SECONDS)
    raise DaemonError(f"The local system (process {holder.get('pid', 'unknown')}) does not end.")


def _await_exit(pid: int) -> None:
    """Wait until a process is gone, which lets go of its directory a little earlier.

    Not for long: one that nobody has waited for, as in a container without an init, never goes.
    """
    waiting, deadline = threading.Event(), time.monotonic() + _EXIT_SECONDS
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            waiting.wait(_POLL_SECONDS)


def status(state: Path | None = None) -> SystemStatus | None:
    """Ask the local system of a directory what it is doing; None when none runs there."""
    answer = _ask(state, STATUS_PATH)
    return None if answer is None else decode(SystemStatus, answer)


def check_there(state: Path, pid: int) -> None:
    """Check that the local system of a directory is still that process (raises `DaemonError`)."""
    holder = StateDirectory(state).holder()
    if holder is None or holder.get("pid") != pid:
        raise DaemonError("The local system of this folder has ended, and its jobs with it.")


def with_jobs(state: Path | None = None) -> Sequence[str]:
    """Return the workloads of a local system with a job that has begun; none when none runs."""
    found: Sequence[str] = _ask(state, WITH_JOBS_PATH) or ()
    return found


def _ask(state: Path | None, path: str, *, seconds: float = _ANSWER_SECONDS) -> Any:
    """Return what the local system of a directory answers; None when none runs there."""
    holder = StateDirectory(state or STATE).holder()
    if holder is None:
        return None
    if "endpoint" not in holder:
        raise DaemonError(_STARTING)
    connection = http.client.HTTPConnection(urlsplit(holder["endpoint"]).netloc, timeout=seconds)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except (OSError, ValueError) as error:
        message = f"The local system at {holder['endpoint']} does not answer ({error})."
        raise DaemonError(message) from error
    finally:
        connection.close()


def profile(state: Path | None = None) -> Path:
    """Return the AWS config file whose profiles point at the system."""
    return StateDirectory(state or STATE).profile_path


def exports(state: Path | None = None) -> str:
    """Return the shell lines that point the aws command line and every SDK at the system."""
    return environment.export_lines(profile(state))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a local system until a signal; say step by step how far it is, then ready, or why not."""
    from spindown.local.system import LocalSystem  # noqa: PLC0415 - heavy, and only for the child

    asked = _parser().parse_args(arguments)
    # SIGTERM unwinds like Ctrl-C, so that everything is taken down in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        system = LocalSystem(
            asked.config,
            scenario=asked.scenario,
            state=asked.state,
            port=asked.port,
            tick=timedelta(seconds=asked.tick),
        )
        with system:
            system.deploy(_tell)
            _answer(status=encode(system.status()))
            # signal.pause() would sleep through a signal that comes just before it.
            pause = threading.Event()
            while True:
                pause.wait(_POLL_SECONDS)
    except SpindownError as error:
        _answer(error=str(error))
        return 1
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spindown.local.daemon")
    parser.add_argument("config", type=Path)
    parser.add_argument("--scenario", default="default")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--tick", type=float, default=TICK.total_seconds())
    return parser


def _tell(step: str) -> None:
    sys.stdout.write(json.dumps({"step": step}) + "\n")
    sys.stdout.flush()


def _answer(**facts: Any) -> None:
    """Tell the one who waits, once; nobody reads afterwards."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
