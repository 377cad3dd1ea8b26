"""``spindown verify``: prove a deployment by one job that is interrupted once, and its bill."""

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.text import Text

from spindown import __version__
from spindown.cli import option
from spindown.cli.render.canvas import check_page
from spindown.cli.render.line import confirm, print_aside, print_line
from spindown.cli.render.screen import format_seconds, open_console, show_live
from spindown.cli.session import Session, is_local, open_session
from spindown.cli.verify_page import render_page, word_of
from spindown.contract.codec import encode
from spindown.control.policy_edit import current_policy
from spindown.domain.verification import (
    FAULT_USD,
    CheckResult,
    VerifyRun,
    has_passed,
    judge_run,
)
from spindown.error import BadInput, SpindownError
from spindown.operate.verify import (
    TO_HAVE_ONE,
    EarlyEnd,
    Stage,
    Verification,
    VerifyEstimate,
    VerifyLook,
    VerifyPlan,
    VerifyPorts,
    ask_again,
    check_ready,
    estimate,
    usual_item_seconds,
)
from spindown.reason_text import say_check

_INTERRUPTED = 130
#: Looks with nothing left, one after the other, until nothing more can be launched.
_EMPTY_LOOKS = 3
#: Looks in which what was stopped must have ended.
_END_LOOKS = 120
_ITEMS = 60

_EARLY = {
    EarlyEnd.TOO_DEAR: "stopped: it has cost more than --max-dollars",
    EarlyEnd.TOO_LONG: "stopped: it took longer than --timeout",
    EarlyEnd.JOB_FAILED: "stopped: the job has failed",
    EarlyEnd.STOPPED: "stopped by hand",
}


def verify(  # noqa: PLR0913 - each is an option of the command line
    workload: Annotated[
        str, typer.Argument(help="A workload with `run = { verify = true }`.")
    ] = "verify",
    *,
    max_dollars: Annotated[
        float, typer.Option(min=0.01, max=1000, help="What it may cost; it stops there.")
    ] = 1.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    timeout: Annotated[
        float, typer.Option(min=1, max=10_080, help="Minutes until it gives up.")
    ] = 60.0,
    items: Annotated[int, typer.Option(min=2, max=1000, help="Items of the job.")] = _ITEMS,
    item_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=10,
            help="Seconds of each; default: 4 heartbeats of work, on AWS 4 at least.",
        ),
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.2, max=60, help="Seconds between two looks.")
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Prove a deployment by a job of its own. Launches machines. Exit 1 if a check fails."""
    session = open_session(config, deployment=deployment, local=local)
    if workload not in session.deployment.workloads:
        raise BadInput("workload", workload, TO_HAVE_ONE)
    ports = _ports(session, workload)
    is_here = local or is_local()
    with session.told_if_slow():
        _, policy = current_policy(workload, ports.control)
        plan = VerifyPlan(
            items=items,
            item_seconds=item_seconds
            or usual_item_seconds(items, policy.heartbeat_interval, is_local=is_here),
            max_usd=max_dollars,
            every=timedelta(seconds=every or (0.5 if is_here else 5.0)),
            timeout=timedelta(minutes=timeout),
        )
        check_ready(workload, ports)
        foreseen = ask_again(partial(estimate, workload, plan, ports), _pause, every=plan.every)
    if html is not None:
        check_page(html, has_plots=False)
    _ask(plan, foreseen, yes=yes)
    verification = Verification(
        workload=workload, plan=plan, ports=ports, template=foreseen.template
    )
    try:
        verification.begin()
        print_aside(f"sent {verification.job_id}; Ctrl-C ends all of it")
        _watch(verification, as_json=as_json)
    except KeyboardInterrupt:
        _end(verification, session)
        raise typer.Exit(_INTERRUPTED) from None
    except (SpindownError, OSError):
        # An output that is closed or full as well: nobody would watch what is left running.
        _end(verification, session)
        raise
    if verification.early_end:
        print_aside(_EARLY[verification.early_end])
        _end(verification, session)
    run = ask_again(verification.result, _pause, every=plan.every)
    results = judge_run(run)
    passed = has_passed(results) and not verification.early_end
    _report(session, verification, run, results, html=html, as_json=as_json)
    raise typer.Exit(0 if passed else 1)


def _ports(session: Session, workload: str) -> VerifyPorts:
    return VerifyPorts(
        control=session.control_ports(),
        work=session.work_ports(workload),
        faults=session.aws.faults(),
        alarms=session.aws.alarms(),
        wake=lambda: session.nudge(workload),
    )


def _ask(plan: VerifyPlan, foreseen: VerifyEstimate, *, yes: bool) -> None:
    """Say what it will cost, refuse more than is allowed, and ask."""
    if foreseen.dollars > plan.max_usd:
        remedy = f"allow ${foreseen.dollars:.2f}, or verify with cheaper machines"
        raise BadInput("--max-dollars", plan.max_usd, remedy)
    how = (
        f"AWS Fault Injection Service (${FAULT_USD:.2f} of it)"
        if foreseen.template
        else f"hand (TerminateInstances): {_why_by_hand(foreseen)}"
    )
    billed = "; the local market bills nobody" if is_local() else ""
    print_aside(
        f"launches 2 machines like {foreseen.offer} ({foreseen.price_per_hour:.3f} USD/h), one "
        f"after the other, for about ${foreseen.dollars:.3f}, ${plan.max_usd:.2f} at most; "
        f"interrupts one by {how}{billed}"
    )
    if not yes:
        confirm("Go on?", err=True)


def _why_by_hand(foreseen: VerifyEstimate) -> str:
    if foreseen.trouble is None:
        return "no experiment template is deployed"
    return f"AWS Fault Injection Service gives no template ({foreseen.trouble})"


def _watch(verification: Verification, *, as_json: bool) -> None:
    if not as_json:
        show_live(open_console(), map(_render, _looks(verification)))
        return
    for _, looks in groupby(_looks(verification), key=lambda look: look.stage):
        print_aside(_render(next(looks)).plain)


def _looks(verification: Verification) -> Iterator[VerifyLook]:
    """Yield each look until the run is over."""
    every = verification.plan.every
    while True:
        look = ask_again(verification.look, _pause, every=every)
        yield look
        if look.stage is Stage.OVER:
            return
        _pause(every)


def _pause(length: timedelta) -> None:
    Event().wait(length.total_seconds())


def _render(look: VerifyLook) -> Text:
    line = Text(f"{look.stage.value:<12}", style="bold")
    return line.append(
        f"{format_seconds(look.elapsed)}, {look.items_done} of {look.items} items, "
        f"{look.running} running, ${look.dollars:.4f}",
        style="default",
    )


def _end(verification: Verification, session: Session) -> None:
    """Leave nothing running; if that cannot be seen, say what failed and how to look."""
    name, options = verification.workload, session.options
    print_aside("ending all of it; Ctrl-C once more leaves that to its idle timeout")
    empty, shown = 0, set[str]()
    try:
        for _ in range(_END_LOOKS):
            ending = verification.end_all()
            empty = empty + 1 if ending.is_empty else 0
            if empty >= _EMPTY_LOOKS:
                print_aside(f"nothing of it runs; spindown status {name}{options} shows the same")
                return
            for trouble in map(str, ending.troubles):
                if trouble not in shown:
                    print_aside(f"tried again: {trouble}")
                    shown.add(trouble)
            _pause(verification.plan.every)
    except KeyboardInterrupt:
        pass
    print_aside(
        f"look with: spindown status {name}{options}; end it with: "
        f"spindown drain {name} --now{options}"
    )


def _report(
    session: Session,
    verification: Verification,
    run: VerifyRun,
    results: tuple[CheckResult, ...],
    *,
    html: Path | None,
    as_json: bool,
) -> None:
    passed = has_passed(results) and not verification.early_end
    said = "passed" if passed else "failed"
    place = "local system" if is_local() else session.deployment.region
    heading = f"spindown verify {said}: {session.deployment.name} in {place}"
    if as_json:
        document = {
            "passed": passed,
            "version": __version__,
            "deployment": session.deployment.name,
            "region": session.deployment.region,
            "is_local": is_local(),
            "early_end": verification.early_end.value,
            "job_id": verification.job_id,
            "checks": encode(results),
            "run": encode(run),
        }
        json.dump(document, sys.stdout)
        print()
    else:
        _print_checks(run, results, heading)
    if html is not None:
        notes = [_EARLY[verification.early_end]] if verification.early_end else []
        text = render_page(run, results, heading=heading, notes=notes)
        try:
            html.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise BadInput("--html", str(html), f"give a path to write ({exc.strerror})") from exc
        print_aside(f"the report is in {html}")


def _print_checks(run: VerifyRun, results: tuple[CheckResult, ...], heading: str) -> None:
    for one in results:
        print_line(f"{word_of(one):<9}{one.check.value:<15}{say_check(one)}")
    for machine in run.machines:
        ran = "runs" if machine.ran is None else f"ran {format_seconds(machine.ran)}"
        print_line(
            f"         {machine.instance_id}  {machine.offer}  {ran}, "
            f"${machine.charged_usd:.4f} charged"
        )
    print_line(heading)
