"""A batch in words: in a line of a table, and on a screen of its own. Reads nothing."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from spindown.cli.render.saving import AT_WORK
from spindown.cli.render.screen import format_seconds
from spindown.domain.eta import Eta
from spindown.domain.past_cost import Accrual
from spindown.domain.reason import UNTIL_CHANGED
from spindown.error import printable
from spindown.operate.batch_status import BatchDetail, BatchState, BatchStatus
from spindown.reason_text import say_dollars, say_error, say_next_try

#: Less than this is left of nothing that is not over.
_SECOND = timedelta(seconds=1)
#: Characters of an item that are shown; of a longer one so many of its begin and its end.
_ITEM_SHOWN = 80
_ITEM_BEGIN, _ITEM_END = 17, 60
#: Jobs of which the next try is told.
_TRIES_SHOWN = 5


def render_batch(detail: BatchDetail, now: datetime, options: str) -> RenderableType:
    """Return the screen of one batch.

    Args:
        detail: the batch.
        now: the time.
        options: with which another command finds the same deployment.
    """
    batch = detail.batch
    lines = [
        Text(say_state(batch) if batch.state else batch.fault, style="bold"),
        *(Text(line) for line in _progress_lines(batch, now)),
        *([] if detail.machine is None else [Text(_say_machine(detail.machine))]),
        *(Text(line, style="bold red") for line in _fault_lines(detail, now)),
        *(Text(line, style="dim") for line in _next_lines(detail, options)),
    ]
    named = f": {batch.command}" if batch.command else ""
    title = Text(f"{batch.batch_id} of {batch.workload}{named}")
    return Panel(Group(*lines), title=title, title_align="left")


def say_state(batch: BatchStatus) -> str:
    """Return what became of a batch in a word, or what it waits for."""
    if batch.waits_for:
        return f"waiting for {batch.waits_for}"
    return str(batch.state or "not counted")


def _progress_lines(batch: BatchStatus, now: datetime) -> Iterator[str]:
    if batch.submitted_at is not None:
        yield f"submitted {format_seconds(now - batch.submitted_at)} ago"
    yield f"jobs   {say_of(batch.jobs_over, batch.jobs)} are over"
    failed = f", {batch.items_failed:,} failed" if batch.items_failed else ""
    yield f"items  {say_of(batch.items_done, batch.items)} done{failed}"
    if batch.dollars is not None:
        far = "" if batch.jobs_over == batch.jobs else " so far"
        yield f"cost   ${say_dollars(batch.dollars)}{far}: {AT_WORK}"
    if batch.decision:
        yield f"waits  {batch.decision}"
    if batch.eta is not None:
        yield f"done   in {say_eta(batch.eta, now)}"
    elif batch.state is BatchState.WAITING:
        yield "done   not known: no machine is there for it, or its speed is not known"
    elif batch.state is BatchState.RUNNING and not batch.has_machine:
        yield (
            "done   not known: what works on it takes no further job, and no other machine is "
            "there or asked for"
        )
    elif batch.state is BatchState.RUNNING:
        yield "done   not known yet: the first items will tell how long one takes"


def _say_machine(cost: Accrual) -> str:
    """Return what the machine of one job has cost, and for what."""
    boot, busy, idle = (
        format_seconds(timedelta(seconds=seconds))
        for seconds in (cost.boot_seconds, cost.busy_seconds, cost.idle_seconds)
    )
    spent = f"{boot} boot, {busy} with the job, {idle} idle"
    return f"all in ${say_dollars(cost.dollars)}, the machine of its last attempt: {spent}"


def _fault_lines(detail: BatchDetail, now: datetime) -> Iterator[str]:
    if detail.cancelled_why:
        yield f"cancelled: {detail.cancelled_why}"
    for job in detail.given_up:
        yield f"given up: {job.job_id}: {job.reason}"
    for job in detail.failing:
        yield f"{job.word}: {job.job_id}: {job.failures_told}"
        if not job.is_held:
            yield f"    {say_next_try(job.next_try_at, now)}"
    others = sorted(detail.next_tries.keys() - {job.job_id for job in detail.failing})
    for job_id in others[:_TRIES_SHOWN]:
        yield f"{job_id}: {say_next_try(detail.next_tries[job_id], now)}"
    if len(others) > _TRIES_SHOWN:
        yield f"and {len(others) - _TRIES_SHOWN} more"
    for record in detail.failed:
        yield f"failed: {say_failed(record)}"


def _next_lines(detail: BatchDetail, options: str) -> Iterator[str]:
    batch = detail.batch
    if batch.decision:
        yield f"why no machine works on it: spindown why {batch.workload}{options}"
    if batch.jobs_given_up:
        for when, needs_change in (
            ("send them back", False),
            ("after you have changed what the reason names, send them back", True),
        ):
            given_up = (x for x in detail.given_up if (x.code in UNTIL_CHANGED) is needs_change)
            if named := " ".join(job.job_id for job in given_up):
                yield f"{when}: spindown redrive {batch.workload} {named}{options}"
    if not batch.items_failed:
        return
    yield f"all that failed: spindown results {batch.batch_id} --failed{options}"
    if detail.again:
        yield f"sent again as {detail.again}"
    elif detail.whole:
        command = f"spindown redrive {batch.workload} --items {detail.whole}{options}"
        is_over = detail.whole == batch.batch_id and batch.jobs_over == batch.jobs
        when = "" if is_over else ", once the batch is over"
        yield f"send them again{when}: {command}"


def say_failed(record: Mapping[str, Any]) -> str:
    """Return a failed item in a line: where it is, what it is, the first line of its error."""
    item = json.dumps(record.get("item"), ensure_ascii=False)
    # The end of a name is what tells items of one folder apart.
    shown = item if len(item) <= _ITEM_SHOWN else f"{item[:_ITEM_BEGIN]}...{item[-_ITEM_END:]}"
    return printable(
        f"{record['job_id']}  {record.get('index')}  {shown}  {say_error(record.get('error'))}"
    )


def say_of(done: int | None, of: int | None) -> str:
    """Return how many of how many, as far as that is known: ``1,200/?``."""
    return "/".join("?" if number is None else f"{number:,}" for number in (done, of))


def say_eta(eta: Eta | None, now: datetime) -> str:
    """Return in how long a batch will be done, and the range; "": nothing is known."""
    if eta is None:
        return ""
    sooner, likely, later = (
        format_seconds(max(at - now, _SECOND)) for at in (eta.sooner, eta.likely, eta.later)
    )
    return f"{likely} ({sooner} to {later})"
