"""``spindown shell``: a shell on a worker's instance, by Session Manager; no port is opened."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from spindown import config as configuration
from spindown.cli import option
from spindown.cli.session import INSTANCE_ID, open_session
from spindown.domain.fleet import Worker
from spindown.error import BadInput
from spindown.ledger import LedgerView

#: AWS's command line, and its plugin that speaks Session Manager's protocol.
_PROGRAMS = {
    "aws": "install the aws command line: https://aws.amazon.com/cli/",
    "session-manager-plugin": "install it beside the aws command line: "
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html",
}

Find = Callable[[str], str | None]


def shell(
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Id of a worker's instance.")],
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
) -> None:
    """Open a shell on a worker's instance by Session Manager. Exit with the shell's status."""
    check_id(instance)
    if local:
        remedy = f"a local instance is a process here; read .spindown/instances/{instance}"
        raise BadInput("INSTANCE", instance, remedy)
    if deployment is None:
        check_setting(config)
    programs = find_programs(shutil.which)
    session = open_session(config, deployment=deployment, local=False)
    ledgers = map(session.ledger, session.deployment.workloads)
    become(programs["aws"], find_worker((ledger.read() for ledger in ledgers), instance))


def check_id(instance: str) -> None:
    """Refuse what is no id of an instance, so that nothing else reaches another program."""
    if not INSTANCE_ID.fullmatch(instance):
        raise BadInput("INSTANCE", instance, "write an id as `spindown status` shows it")


def check_setting(config: Path) -> None:
    """Refuse a deployment whose file keeps Session Manager off, the default."""
    if not configuration.load(config, named="--config").deployment.session_manager:
        remedy = "set it to true, deploy, and open a shell on a machine that is launched then"
        raise BadInput("deployment.session_manager", False, remedy)  # noqa: FBT003 - the value


def find_programs(find: Find) -> dict[str, str]:
    """Return name -> path of the programs that a session needs (raises BadInput)."""
    found = {name: find(name) for name in _PROGRAMS}
    for name, path in found.items():
        if path is None:
            raise BadInput(name, None, _PROGRAMS[name])
    return {name: path for name, path in found.items() if path is not None}


def find_worker(views: Iterable[LedgerView], instance: str) -> Worker:
    """Return the living worker of this instance, of whatever workload (raises BadInput)."""
    for view in views:
        worker = view.workers.get(instance)
        if worker is not None and worker.is_live:
            return worker
    raise BadInput("INSTANCE", instance, "name a worker that runs, as `spindown status` shows it")


def become(program: str, worker: Worker) -> NoReturn:
    """Become the aws command line, which runs the session until the person leaves it."""
    sys.stdout.flush()
    os.execv(program, session_command(worker))  # noqa: S606 - no shell in between


def session_command(worker: Worker) -> list[str]:
    """Return the command of the aws command line that opens the session."""
    target = ["--target", worker.instance_id, "--region", worker.region]
    return ["aws", "ssm", "start-session", *target]
