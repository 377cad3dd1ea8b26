"""Start the worker of this instance: ``python -m spindown.worker``.

Trigger: the instance's boot. Input: instance metadata, whose tags say where home is. Effects:
works until there is nothing more to do, then powers the instance off. The environment holds
what belongs to the machine:

SPINDOWN_POWEROFF           command that ends the instance (default: systemctl poweroff)
SPINDOWN_PYTHON             interpreter of the user's code (default: this one)
SPINDOWN_LAUNCHER           command that runs a program as the user's code (default: none)
SPINDOWN_CODE_USER          user of the user's code in a container (default: ours)
SPINDOWN_BEGUN              file: how long the system was up when user data began (default: none)
SPINDOWN_ALIVE              file written at every heartbeat, for the dead-man check
SPINDOWN_METADATA_INTERVAL  seconds between two looks at the metadata (default: 5)
SPINDOWN_GPU_TEST           nvidia-smi, to test the GPUs before the check-in (default: none, then
                            a container is given none either)
SPINDOWN_CONTROL_GROUPS     true: each slot gets a control group below the worker's (default: none)
SPINDOWN_USAGE_INTERVAL     seconds between two looks at CPU, memory and GPUs, once a job is a
                            minute old (default: 5)
SPINDOWN_STOP_GRACE         seconds that work in hand may go on after SIGTERM (default: 20)

and the standard AWS variables for another endpoint or region.

``python -m spindown.worker --clear INSTANCE...`` removes the containers that workers of these
instances have left: a machine that outlives its instance, as in the local system, calls it.
"""

import os
import pwd
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NoReturn

import spindown
from spindown.aws.clock import SystemClock, pause
from spindown.aws.cloudwatch import LogStream
from spindown.aws.imds import ImdsMetadata
from spindown.aws.session import steady_session
from spindown.aws.wiring import Aws
from spindown.contract import tag
from spindown.contract.location import work_root
from spindown.contract.queue import queue_of_shape
from spindown.contract.run_spec import RunMode
from spindown.domain.fleet import Worker
from spindown.domain.policy import Dispatch
from spindown.error import ContractError, SpindownError
from spindown.job.policy_in_force import read_standing
from spindown.port import Identity, Metadata, WorkPorts
from spindown.worker.child.code import Code, fetch_code, has_code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import (
    Container,
    Limits,
    Machine,
    NoRuntime,
    find_runtime,
    remove_containers,
)
from spindown.worker.child.failure_cause import MemoryKills
from spindown.worker.child.runner import ChildRunner, Runner, run_module
from spindown.worker.code_folder import make_own, remove_tree
from spindown.worker.daemon import Daemon, Parts
from spindown.worker.log import EventLog, open_log
from spindown.worker.machine.boot import read_boot
from spindown.worker.machine.control_group import (
    ControlGroups,
    NoGroups,
    open_groups,
    share_of_memory,
    share_of_processes,
)
from spindown.worker.machine.fitness import Equipment, examine_gpus
from spindown.worker.machine.leftover import GROUP_VARIABLE, group_of_slot
from spindown.worker.settings import Home, WorkerSettings, find_asked, find_home
from spindown.worker.usage.meter import slot_gpus
from spindown.worker.workplace import SETUP, TEMPORARY

_IDENTITY_TRIES = 30
_IDENTITY_PAUSE = timedelta(seconds=2)


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Run the worker; return the exit status."""
    if arguments == ["--version"]:
        print(spindown.__version__)  # noqa: T201 - asked for by a person
        return 0
    if arguments[:1] == ["--clear"]:
        return clear(arguments[1:], environment)
    log = open_log(sys.stdout)
    scratch = make_scratch()
    settings = read_settings(environment, scratch)
    try:
        return _work(settings, environment, log)
    except SpindownError as exc:
        log.warning("worker_cannot_work", reason=str(exc))
        return _give_up(settings, log)
    except Exception:
        log.exception("worker_crashed")
        return _give_up(settings, log)
    finally:
        remove_tree(scratch)


def clear(instances: Sequence[str], environment: Mapping[str, str]) -> int:
    """Remove the containers of workers that are gone; return the exit status."""
    try:
        runtime = find_runtime(environment)
    except NoRuntime:
        # Then none has run.
        return 0
    for instance_id in instances:
        remove_containers(runtime, instance_id, environment)
    return 0


def make_scratch() -> Path:
    """Make the directory in which the worker works.

    The user's code, which has another user on an instance, may read it; see ``code_folder``.
    """
    scratch = Path(tempfile.gettempdir()) / f"spindown-{os.getpid()}"
    make_own(scratch)
    return scratch


def read_settings(environment: Mapping[str, str], scratch: Path) -> WorkerSettings:
    """Return the settings of this machine."""
    alive = environment.get("SPINDOWN_ALIVE")
    metadata_interval = float(environment.get("SPINDOWN_METADATA_INTERVAL") or 5)
    usage_interval = float(environment.get("SPINDOWN_USAGE_INTERVAL") or 5)
    stop_grace = float(environment.get("SPINDOWN_STOP_GRACE") or 20)
    return WorkerSettings(
        scratch=scratch,
        python=environment.get("SPINDOWN_PYTHON") or sys.executable,
        launcher=tuple(shlex.split(environment.get("SPINDOWN_LAUNCHER") or "")),
        code_user=find_user(environment.get("SPINDOWN_CODE_USER")),
        env=environment,
        poweroff=tuple(shlex.split(environment.get("SPINDOWN_POWEROFF") or "systemctl poweroff")),
        alive=Path(alive) if alive else None,
        gpu_test=environment.get("SPINDOWN_GPU_TEST") or "",
        makes_groups=environment.get("SPINDOWN_CONTROL_GROUPS") == "true",
        metadata_interval=timedelta(seconds=metadata_interval),
        usage_interval=timedelta(seconds=usage_interval),
        stop_grace=timedelta(seconds=stop_grace),
    )


def find_user(name: str | None) -> str:
    """Return ``uid:gid`` of a user, or our own (ContractError: there is no such user)."""
    if not name:
        return f"{os.getuid()}:{os.getgid()}"
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise ContractError("SPINDOWN_CODE_USER", name, "run install.sh, which makes it") from None
    return f"{found.pw_uid}:{found.pw_gid}"


def _work(settings: WorkerSettings, environment: Mapping[str, str], log: EventLog) -> int:
    begun = environment.get("SPINDOWN_BEGUN")
    booted = read_boot(SystemClock().now(), Path(begun) if begun else None)
    metadata = ImdsMetadata(SystemClock(), environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"))
    identity = _identify(metadata, log)
    home = find_home(identity)
    settings = replace(settings, asked=find_asked(identity))
    log = log.bind(instance_id=identity.instance_id, workload=home.workload)
    aws = Aws(steady_session(home.region))
    stream = aws.log_stream(home.log_group, identity.instance_id)
    log.ship(stream)
    code = fetch_code(home.code, aws.input_source([home.code]).fetch, settings.scratch)
    code, unread = with_secrets(code, aws.secrets().read)
    standing = read_standing(aws.table(home.table), home.workload, shape=home.shape)
    division = divide(settings, standing.dispatch, log)
    daemon = Daemon(
        Parts(
            home=home,
            identity=identity,
            settings=settings,
            ports=open_ports(aws, home, code, stream),
            usage=aws.object_store(home.bucket),
            metadata=metadata,
            code=code,
            log=log,
            make_runner=lambda worker, slot: make_runner(
                worker, slot, code, settings, log, division
            ),
            find_fault=partial(
                find_fault,
                identity=identity,
                code=code,
                settings=settings,
                unread=unread or division.fault,
            ),
            events=aws.job_events(),
            booted=booted,
        )
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread of its own: a handler may interrupt whoever holds a lock that it needs.
        signal.signal(number, lambda *_: threading.Thread(target=daemon.stop).start())
    daemon.run()
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How a machine is divided among its slots."""

    #: Whether each slot has no more than its share of the machine.
    is_shared: bool = False
    #: Where slots get control groups; None: they get none.
    groups: ControlGroups | None = None
    #: Why the jobs of this machine cannot be kept apart though they must be; None: they can.
    fault: str | None = None

    def memory_bytes(self, worker: Worker, settings: WorkerSettings) -> int | None:
        """Return the most memory of a slot; None: it has no bound of its own."""
        return share_of_memory(settings.proc, worker.slots) if self.is_shared else None


def divide(settings: WorkerSettings, dispatch: Dispatch, log: EventLog) -> Division:
    """Return how this machine is divided; this process moves to a control group of its own."""
    is_shared = dispatch is Dispatch.SHARED
    if not settings.makes_groups:
        return Division(is_shared=is_shared)
    try:
        groups = open_groups(settings.proc, settings.cgroups)
    except NoGroups as exc:
        log.warning("no_control_groups", reason=str(exc))
        return Division(is_shared=is_shared, fault=str(exc) if is_shared else None)
    return Division(is_shared=is_shared, groups=groups)


def with_secrets(code: Code, read: Callable[[str], str]) -> tuple[Code, str | None]:
    """Return the code with its secrets among its environment, or why one cannot be read.

    Nothing else is told of them.
    """
    known: dict[str, str] = {}
    for variable, name in code.spec.secrets.items():
        try:
            known[variable] = read(name)
        except SpindownError as exc:
            return code, f"the secret {name} cannot be read: {exc}"
    return replace(code, spec=replace(code.spec, env={**code.spec.env, **known})), None


def readable(home: Home, code: Code) -> Sequence[str]:
    """Return what messages may name as input.

    Where an input is code, that is only what those may write who may choose what code runs.
    """
    if code.spec.mode is RunMode.FOLDER:
        return [home.folders]
    return [*code.spec.inputs, home.uploads]


def open_ports(aws: Aws, home: Home, code: Code, stream: LogStream) -> WorkPorts:
    """Return the ports of a worker at home."""
    return WorkPorts(
        clock=aws.clock,
        random=random.SystemRandom(),
        pause=pause,
        queue=aws.queue(queue_of_shape(home.queue_url, home.shape)),
        queue_of=lambda shape: aws.queue(queue_of_shape(home.queue_url, shape)),
        dead_letters=aws.queue(home.dead_letter_url),
        objects=aws.object_store(home.bucket, work_root(home.workload)),
        inputs=aws.input_source(readable(home, code)),
        table=aws.table(home.table),
        metrics=aws.logged_metrics(stream),
    )


def make_runner(
    worker: Worker,
    slot: int,
    code: Code,
    settings: WorkerSettings,
    log: EventLog,
    division: Division,
) -> Runner:
    """Return what runs the user's code in one slot, with no more of the machine than is its own."""
    spec, log = code.spec, log.bind(slot=slot)
    scratch = settings.scratch / f"slot-{slot}"
    # The worker's own temporary directory is none that the code may write.
    temporary = {"TMPDIR": str(scratch / TEMPORARY)}
    env = {**settings.env, **temporary, **spec.env, **visible_gpus(worker, slot)}
    if division.is_shared:
        env |= gpu_share(worker, slot)
    if settings.launcher:
        env[GROUP_VARIABLE] = str(group_of_slot(slot))
    memory, group = division.memory_bytes(worker, settings), None
    if division.groups is not None and spec.mode is not RunMode.IMAGE:
        processes = share_of_processes(worker.slots, len(os.sched_getaffinity(0)))
        group = division.groups.of_slot(slot, memory, processes)
    if spec.mode is RunMode.ENTRYPOINT:
        return ChildRunner(
            code,
            slot=slot,
            scratch=scratch / SETUP,
            python=settings.python,
            env=env,
            log=log,
            group=group,
        )
    if spec.mode is RunMode.FOLDER:
        # The interpreter becomes the user of the user's code by itself.
        argv = run_module(settings.python, "spindown.worker.child.folder")
        return CommandRunner(code, Machine(argv=argv, env=env), slot=slot, log=log, group=group)
    if spec.mode is RunMode.IMAGE:
        container = make_container(worker, slot, code, settings, memory)
        kills = MemoryKills(is_anywhere=True)
        return CommandRunner(code, container, slot=slot, log=log, kills=kills)
    place = Machine(argv=spec.command, launcher=settings.launcher, env=env)
    return CommandRunner(code, place, slot=slot, log=log, group=group)


def find_fault(
    worker: Worker,
    identity: Identity,
    code: Code,
    settings: WorkerSettings,
    unread: str | None = None,
) -> str | None:
    """Return what makes this machine unfit for the workload, None if nothing does.

    ``unread`` is the secret that cannot be read: as any fault it goes into the row, so that whoever
    is told of such workers is told why.
    """
    if unread is not None:
        return unread
    tagged = identity.tags.get(tag.GPU_MEMORY, "")
    bought = Equipment(
        gpus=worker.gpu_count, gpu_memory_mib=int(tagged) if tagged.isdecimal() else 0
    )
    fault = examine_gpus(bought, settings.gpu_test)
    if fault is None and code.spec.mode is RunMode.IMAGE:
        try:
            runtime = find_runtime(settings.env)
        except NoRuntime as exc:
            return str(exc)
        # Of a worker that was killed here, and would keep the GPUs from this one.
        remove_containers(runtime, worker.instance_id, settings.env)
    return fault


def make_container(
    worker: Worker, slot: int, code: Code, settings: WorkerSettings, memory: int | None = None
) -> Container:
    """Return the container that calls of a slot run in (raises NoRuntime).

    ``memory``: bytes that it may use; None: no bound of its own.
    """
    spec = code.spec
    return Container(
        runtime=find_runtime(settings.env),
        image=spec.image,
        argv=spec.command,
        # A machine whose GPUs nobody tests plays an instance, and has none to give.
        gpus=slot_gpus(worker, slot) if worker.gpu_count and settings.gpu_test else (),
        user=settings.code_user,
        slot=slot,
        owner=worker.instance_id,
        code=code.root if has_code(code) else None,
        env=spec.env,
        secrets=frozenset(spec.secrets),
        client_env=settings.env,
        limits=Limits(memory=memory),
    )


def visible_gpus(worker: Worker, slot: int) -> Mapping[str, str]:
    """Return the variable that shares the GPUs out: each slot its own, or all if there is one."""
    own = slot_gpus(worker, slot)
    return {} if own is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, own))}


def gpu_share(worker: Worker, slot: int) -> Mapping[str, str]:
    """Return the variable that bounds a slot's share of the cores of a GPU that others use too.

    NVIDIA's Multi-Process Service heeds it (NVIDIA, "Multi-Process Service",
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE). Its daemon runs only in images of people who start it there
    (docs/machines.md); elsewhere GPUs are shared by time.
    """
    gpus = int(worker.gpu_count)
    if not 0 < gpus < worker.slots:
        return {}
    sharing = len(range(slot % gpus, worker.slots, gpus))
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // sharing)}


def _identify(metadata: Metadata, log: EventLog) -> Identity:
    """Ask who we are; the metadata of an instance that is just up may not answer yet."""
    for left in range(_IDENTITY_TRIES - 1, -1, -1):
        try:
            return metadata.identity()
        except SpindownError as exc:
            if left == 0:
                raise
            log.warning("no_identity_yet", reason=str(exc))
            pause(_IDENTITY_PAUSE)
    raise AssertionError


def leave(status: int) -> NoReturn:
    """End this process; a transfer that nobody waits for any more does not keep it."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if not all(thread.daemon for thread in others):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
    sys.exit(status)


def _give_up(settings: WorkerSettings, log: EventLog) -> int:
    log.flush()
    subprocess.run(settings.poweroff, check=False)
    return 1


if __name__ == "__main__":
    leave(main(sys.argv[1:], os.environ))
