"""``spindown doctor``: whether a launch can work, before a deploy and after it."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from spindown import config as configuration
from spindown.cli import option
from spindown.cli.render.line import print_aside
from spindown.cli.render.screen import open_console
from spindown.cli.session import Session, is_local, point_at_local_system, reach
from spindown.contract.codec import encode
from spindown.contract.name import WEBHOOK_ALARM, resource_name, scaler_name
from spindown.error import BadInput, NotFound, Unreachable
from spindown.operate.doctor.examine import DoctorPorts, find
from spindown.operate.doctor.finding import Finding, Report, Severity
from spindown.operate.doctor.subject import (
    DoctorSubject,
    find_subject,
    from_config,
    in_local_system,
)

if TYPE_CHECKING:
    from spindown.aws.wiring import Aws

_COLOURS = {Severity.GOOD: "green", Severity.WARNING: "yellow", Severity.BLOCKED: "bold red"}
_MARGIN = " " * 9
#: Each takes a call: about a minute for all.
_JOBS_LOOKED_AT = 5_000
#: Commands that read the file -> the option by which each takes it.
_FILE_OPTIONS = {"spindown cdk bootstrap": "-c config=", "spindown deploy": "--config "}


def doctor(
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Check everything that a launch needs. Exit 1 if a launch cannot work."""
    planned = _planned(config) if deployment is None else None
    if local:
        point_at_local_system(config)
    findings = _find(planned, deployment, _say_nothing if as_json else _say_next)
    if planned is not None:
        findings = (name_file(each, config) for each in findings)
    report = Report(findings=tuple(findings if as_json else print_findings(findings)))
    if as_json:
        print(json.dumps({"can_launch": report.can_launch, **encode(report)}))
    if not report.can_launch:
        raise typer.Exit(1)


def print_findings(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Print each finding to stdout at once, and yield it."""
    console = open_console()
    for finding in findings:
        for line in render_finding(finding):
            console.print(line, soft_wrap=True)
        console.file.flush()
        yield finding


def _planned(config: Path) -> DoctorSubject:
    return from_config(configuration.load(config, named="--config"))


def _say_next(step: str) -> None:
    print_aside(f"{step} ...")


def _say_nothing(step: str) -> None:
    del step


def _find(
    planned: DoctorSubject | None, deployment: str | None, tell: Callable[[str], None]
) -> Iterator[Finding]:
    name = deployment or (planned.deployment if planned is not None else "")
    try:
        aws = reach(planned.region if planned is not None else None)
    except BadInput as exc:
        is_read = "; the file is valid" if planned is not None else ""
        yield Finding(
            what=exc.field,
            found="none" if exc.value is None else str(exc.value),
            needed=f"access to the account, which was not asked{is_read}",
            remedy=exc.remedy,
            severity=Severity.BLOCKED,
        )
        return
    try:
        subject = find_subject(planned, aws.settings(name))
    except NotFound as exc:
        remedy = f"deploy it to {aws.region}, or give the file that describes it"
        raise BadInput("deployment", name, remedy) from exc
    table = aws.table(subject.table) if subject.table else None
    ports = DoctorPorts(
        account=aws.account(),
        market=aws.market(),
        clock=aws.clock,
        table=table,
        count_lost=_lost_counter(aws, name) if subject.is_deployed else None,
        rehearse=aws.rehearser(scaler_name(name)) if subject.is_deployed else None,
        try_webhook=webhook_trier(
            aws.webhook(resource_name(name, "webhook")),
            aws.alarms().states,
            resource_name(name, WEBHOOK_ALARM),
        )
        if subject.is_deployed
        else None,
        find_dashboard=partial(aws.dashboards().body, name),
        tell=tell,
    )
    yield from find(in_local_system(subject) if is_local() else subject, ports)


def webhook_trier(
    read: Callable[[], None], states: Callable[[str], Mapping[str, str]], alarm: str
) -> Callable[[], bool]:
    """Return what tries a webhook: its secret, and whether its last texts have come through.

    What it returns raises what ``read`` does, and Unreachable where the alarm rings. It tells
    whether the alarm knows that no text has failed: one that is missing or without data does not.
    """

    def try_webhook() -> bool:
        read()
        state = states(alarm).get(alarm)
        if state == "ALARM":
            raise Unreachable(f"it has taken no text in the last hour (alarm {alarm})")
        return state == "OK"

    return try_webhook


def _lost_counter(aws: "Aws", deployment: str) -> Callable[[str], int]:
    """Return what counts the jobs of a workload that have no message."""
    session = Session(aws=aws, deployment=aws.settings(deployment).deployment())
    return lambda workload: session.count_lost(workload, reads_at_most=_JOBS_LOOKED_AT)


def name_file(finding: Finding, config: Path) -> Finding:
    """Return the finding with the file in its commands, which else read spindown.toml."""
    if config == option.CONFIG_FILE:
        return finding
    remedy, file = finding.remedy, shlex.quote(str(config))
    for command, named in _FILE_OPTIONS.items():
        remedy = remedy.replace(command, f"{command} {named}{file}")
    return replace(finding, remedy=remedy)


def render_finding(finding: Finding) -> Iterator[Text]:
    """Yield the lines of one finding; a command is never broken over two lines."""
    first = Text(f"{finding.severity:<{len(_MARGIN)}}", style=_COLOURS[finding.severity])
    yield first.append(f"{finding.what}: {finding.found}", style="default")
    if finding.needed and finding.severity is not Severity.GOOD:
        yield Text(f"{_MARGIN}needed: {finding.needed}")
    if finding.remedy:
        yield Text(f"{_MARGIN}remedy: {finding.remedy}", style="bold")
