"""``spindown local``: run the deployed template on this machine."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from spindown.cli import option
from spindown.cli.group import make_group
from spindown.cli.render.line import (
    confirm,
    goes_on,
    noted_if_slow,
    print_aside,
    print_line,
    told_by_steps,
    told_if_slow,
)
from spindown.cli.render.table import make_table
from spindown.cli.session import local_aws
from spindown.contract.codec import encode
from spindown.contract.name import holds_jobs, is_entry, resource_name
from spindown.contract.run_spec import is_parameter
from spindown.ec2sim.instance import InstanceState
from spindown.error import NotFound, SpindownError
from spindown.installed import require
from spindown.local import STATE, TICK, daemon
from spindown.local.state import StateDirectory
from spindown.local.status import InstanceStatus, QueueStatus, SystemStatus
from spindown.reason_text import say_count

if TYPE_CHECKING:
    from spindown.aws.secret import SecretSource
    from spindown.config import Config

app = make_group("Run a deployment on this machine.")

State = Annotated[Path, typer.Option(help="Directory for logs and generated files.")]
#: Bytes that a state directory keeps from which on it is told.
_WORTH_A_WORD = 1_000_000


@app.command("up")
def up(
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    scenario: Annotated[
        str | None,
        typer.Option(help="Behaviour of the market: a file, or default, demo, storm, abroad."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port on localhost; 0 for any free one."),
    ] = None,
    tick: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=60,
            help=f"Seconds between two ticks ({TICK.total_seconds():g}); on AWS a minute.",
        ),
    ] = None,
    state: State = STATE,
    as_json: option.Json = False,
) -> None:
    """Start the local system in the background and deploy into it; again: deploy what changed."""
    require("local")
    with told_by_steps() as tell, left_off(state):
        tell(f"reading {config}")
        from spindown import config as configuration  # noqa: PLC0415 - slow: the line comes first
        from spindown.config import archive  # noqa: PLC0415 - likewise

        # So a mistake in the file, or in the code, is told before anything else is.
        loaded = configuration.load(config, named="--config")
        archive.check_code(config.resolve().parent, loaded.workloads)
        status = daemon.start(
            config,
            scenario=scenario,
            state=state,
            port=port,
            tick=None if tick is None else timedelta(seconds=tick),
            tell=tell,
        )
    for line in say_untold(loaded, partial(_is_secret, local_aws(state, status).secrets())):
        print_aside(line)
    if as_json:
        print(json.dumps(encode(status)))
        return
    for line in say_up(status, state):
        print(line)


def _is_secret(secrets: "SecretSource", name: str) -> bool:
    """Tell whether there is such a secret; of one that cannot be read nothing is said."""
    try:
        secrets.read(name)
    except NotFound:
        return False
    except SpindownError:
        return True
    return True


def say_untold(loaded: "Config", is_secret: Callable[[str], bool]) -> Iterator[str]:
    """Yield which settings reach nobody here, and which machines get no secret, with the remedy.

    Args:
        loaded: the file.
        is_secret: tells whether the local system has a secret of this name.
    """
    deployment = loaded.deployment
    webhook, email = deployment.alarm_webhook, deployment.alarm_email
    is_posted = webhook is not None and is_secret(webhook)
    if email is not None:
        yield "`alarm_email` is told nothing here: the local system sends no mail"
    if webhook is not None and not is_posted:
        yield (
            f"`alarm_webhook` is told nothing here: the local system has no secret {webhook}; make "
            f"it, as any SDK reaches this system, with: {_make_secret(webhook)}"
        )
    if email is not None or (webhook is not None and not is_posted):
        topic = resource_name(deployment.name, "alarms")
        yield f"what they would be told comes to the topic {topic}: `spindown docs local`"
    for name, workload in loaded.workloads.items():
        for secret in sorted(set(workload.run.secrets.values())):
            if not is_secret(secret):
                made = _make_secret(secret)
                yield f"machines of {name} end at once without the secret {secret}; make it: {made}"


def _make_secret(name: str) -> str:
    """Return the command that makes a secret of this name."""
    if is_parameter(name):
        return f"aws ssm put-parameter --type SecureString --name {name} --value ..."
    return f"aws secretsmanager create-secret --name {name} --secret-string ..."


@contextmanager
def left_off(state: Path) -> Iterator[None]:
    """Say at a Ctrl-C of ``up`` whether a local system is left, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        where = _option(state)
        is_up = StateDirectory(state).holder() is not None
        left = "the local system runs, with what it had before or only part of the change"
        said = left if is_up else "no local system is left running"
        again, end = f"spindown local up{where}", f"spindown local down{where}"
        print_aside(f"{said}; go on with: {again}" + (f"; end it with: {end}" if is_up else ""))
        raise


def _option(state: Path) -> str:
    """Return the option that names a state directory, with a space before it; "": none is due."""
    return "" if state.resolve() == STATE.resolve() else f" --state {shlex.quote(str(state))}"


def say_up(status: SystemStatus, state: Path) -> Iterator[str]:
    """Yield how to reach the system; --local finds it only in the default directory."""
    yield f"{status.deployment} is up at {status.endpoint}. To send work to:"
    # Neither dead letters, nor shapes, nor what functions could not take.
    entries = (one for one in status.queues if is_entry(one.name))
    yield from (f"  {queue.url}" for queue in entries)
    if state.resolve() == STATE.resolve():
        yield "Give --local to other commands, or from the aws command line and any SDK after:"
    else:
        yield "From other commands (without --local), the aws command line and any SDK after:"
    yield daemon.exports(state)
    yield "Memory is not bounded here: a job may take all that this machine has."
    yield f"Version 1 of the aws command line also needs: --endpoint-url {status.endpoint}"


@app.command("run")
def run(
    workload: option.Workload,
    items: Annotated[
        list[str], typer.Argument(help="Files, folders of files, JSON values or texts: one batch.")
    ],
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    params: Annotated[str, typer.Option(help="Parameters of the job, as JSON.")] = "{}",
    outputs: Annotated[
        Path | None, typer.Option(help="Folder to put the files of items in.")
    ] = None,
) -> None:
    """Run one batch here at once, as a worker would, without a local system. Exit 1 if it fails."""
    from spindown.cli.local_run import run_batch  # noqa: PLC0415 - the worker, for this alone

    run_batch(config, workload, items, params, outputs)


@app.command("down")
def down(
    *,
    state: State = STATE,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before jobs or results are lost.")
    ] = False,
    as_json: option.Json = False,
) -> None:
    """Stop the local system and everything that it runs; its queues and results are then gone."""
    if not yes:
        with noted_if_slow("looking for what would be lost ..."):
            lost = _find_lost(state)
        if lost:
            confirm(f"{lost} Go on? (--yes: do not ask)", err=True)
    ending = (
        f"the local system may still be ending; go on with: spindown local down{_option(state)}"
    )
    with told_by_steps() as tell, goes_on(ending):
        was_up = daemon.stop(state, tell)
    if as_json:
        print(json.dumps({"was_up": was_up}))
    else:
        where = "" if was_up else f"No local system was up in {state.resolve()}."
        print(where or "The local system is down.")
        if state.is_dir() and (size := StateDirectory(state).size) >= _WORTH_A_WORD:
            print(
                f"{state} keeps {size / 1e6:.0f} MB: logs, and what makes the next start quicker; "
                f"remove it with: rm -r {shlex.quote(str(state))}"
            )


def _find_lost(state: Path) -> str:
    """Say what is lost with the system; "": there is no job, or it does not answer."""
    with suppress(daemon.DaemonError):
        found = daemon.status(state)
        return say_lost(daemon.with_jobs(state), found.queues if found else ())
    return ""


def say_lost(with_jobs: Sequence[str], queues: Sequence[QueueStatus]) -> str:
    """Say what is lost with a system; "": there is no job.

    Args:
        with_jobs: the workloads of which a job has begun.
        queues: all of them.
    """
    ours = [one for one in queues if holds_jobs(one.name)]
    running, waiting = sum(one.in_flight for one in ours), sum(one.visible for one in ours)
    said = []
    if running or waiting:
        jobs = f"{say_count(running, 'job')} in hand and {waiting:,} waiting"
        said.append(f"Lost with the system: {jobs}.")
    if with_jobs:
        said.append(
            f"The results and costs of {', '.join(with_jobs)} are lost with the system. "
            "To keep results: spindown results BATCH --download DIR --local."
        )
    return " ".join(said)


@app.command("status")
def status(
    *, state: State = STATE, ended: option.Ended = False, as_json: option.Json = False
) -> None:
    """Show queues and instances of the local system."""
    with told_if_slow(local=True):
        found = daemon.status(state)
    if found is None:
        said = (
            f"no local system is up in {state.resolve()}: start it with `spindown local up` first"
        )
        raise NotFound(said)
    if as_json:
        print(json.dumps(encode(found)))
    else:
        _print(found, ended=ended)


def _print(status: SystemStatus, *, ended: bool) -> None:
    print_line(f"{status.deployment} at {status.endpoint}, process {status.pid}")
    for queue in status.queues:
        print_line(f"  {queue.name}: {queue.visible} waiting, {queue.in_flight} in flight")
    from spindown.cli.render.screen import print_parts  # noqa: PLC0415 - slow, as its imports are

    print_parts(render_instances(status.instances, ended=ended))


def render_instances(
    instances: Sequence[InstanceStatus], *, ended: bool
) -> Iterator[RenderableType]:
    """Yield a table of the instances, and below it the files with their console output."""
    shown = [one for one in instances if ended or one.state != InstanceState.TERMINATED]
    if number := len(instances) - len(shown):
        yield f"{say_count(number, 'instance')} ended: --ended lists them"
    if not shown:
        return
    table = make_table("instance", "type", "zone", "capacity", "$/h", "state")
    for instance in shown:
        table.add_row(
            instance.instance_id,
            instance.instance_type,
            instance.zone,
            instance.capacity_type,
            f"{instance.price_per_hour:.4f}",
            instance.state,
        )
    yield table
    yield "$/h: of the instance alone, without volume and address."
    yield "Consoles:"
    yield from (f"  {instance.console}" for instance in shown)
