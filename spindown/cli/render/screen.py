"""A workload on one screen: queue, workers, dollars. Only renders; reads nothing."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from shutil import get_terminal_size
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.segment import Segment
from rich.text import Text

from spindown.cli.option import COMMAND, GIVEN, placed
from spindown.cli.render.saving import say_item_cost, say_saving, say_span_until
from spindown.config import format_duration
from spindown.domain.fleet import Lease, WorkerState
from spindown.error import printable
from spindown.operate.status import Status, WorkerStatus
from spindown.reason_text import (
    say,
    say_coming,
    say_count,
    say_dead_letters,
    say_error,
    say_shape,
    say_way_back,
)

_COLOURS = {
    "booting": "yellow",
    "idle": "cyan",
    "busy": "green",
    "interrupting": "bold magenta",
    "ending": "magenta",
    "drained": "dim",
    "condemned": "red",
}


#: Busy share of paid time below which the cost of an item says little of the work.
_MOSTLY = 0.5
#: Width of the output where there is no terminal.
_FILE_COLUMNS = 120
_MINUTE, _HOUR = 60.0, 3600.0
#: USD; less is told as nothing.
_CENT = 0.005


class TextConsole(Console):
    """Prints text as it is: nothing in it is markup, and no terminal obeys it."""

    def __init__(
        self, *, file: TextIO | None = None, width: int | None = None, place: str | None = None
    ) -> None:
        """Print to a file, or to stdout if there is none.

        Args:
            file: where to.
            width: columns.
            place: options that the commands get which a text names, each with a space before it;
                None: those that this process was given.
        """
        super().__init__(file=file, width=width, markup=False, emoji=False)
        self._place = GIVEN.get() if place is None else place

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text of one line."""
        return _in_one_line(super().render_str(text, **options))

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield what is printed; whatever was stored may be among it, and makes no line of ours."""
        if isinstance(renderable, Text):
            renderable = _in_one_line(renderable)
            renderable = _with_place(renderable, self._place) if self._place else renderable
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else segment._replace(text=printable(segment.text, keep="\n"))
            )


def _in_one_line(text: Text) -> Text:
    """Return a text without breaks: each that we make stands between two texts."""
    if "\n" not in text.plain:
        return text
    line = text.copy()
    line.plain = text.plain.replace("\n", " ")
    return line


def _with_place(text: Text, place: str) -> Text:
    """Return a text whose commands name the deployment."""
    for found in reversed(list(COMMAND.finditer(text.plain))):
        before, command, after = text.divide(found.span())
        command.plain = placed(found, place)
        text = before.append_text(command).append_text(after)
    return text


def open_console() -> TextConsole:
    """Return stdout for tables: as wide as the terminal or COLUMNS, else 120 columns in a file."""
    console = TextConsole()
    columns, _ = get_terminal_size((_FILE_COLUMNS, 0))
    return console if console.is_terminal else TextConsole(width=columns)


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print sentences and tables to stdout, each below the other."""
    console = open_console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def show_live(console: Console, looks: Iterable[RenderableType]) -> None:
    """Show one screen after the other: in place on a terminal, below each other in a file.

    A file gets each screen at once, but not one that equals the screen before it.
    """
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for look in looks:
                live.update(look, refresh=True)
        return
    before = ""
    for look in looks:
        with console.capture() as captured:
            console.print(look)
        if (shown := captured.get()) != before:
            console.file.write(shown)
            console.file.flush()
        before = shown


def render_status(status: Status, *, ended: bool = False) -> RenderableType:
    """Return the screen of one workload; ``ended``: with the instances that ended lately."""
    parts: list[RenderableType] = [_queue_line(status), *_shape_lines(status), _money_line(status)]
    parts += [Text(line, style="bold red") for line in _failed_lines(status)]
    if said := say_saving(status.saving, shortly=True):
        span = say_span_until(status.at, status.begun, 7)
        parts.append(Text(f"saved  {span} {said}", style="dim"))
    present = [entry for entry in status.workers if entry.is_present]
    if shown := status.workers if ended else present:
        parts += _worker_lines(shown, status.at)
    if not present:
        parts.append(Text(_say_none(status), style="dim"))
    if status.is_drained:
        back = say_way_back(status.workload, status.deployed_workers)
        said = f"`max_workers` is 0, so nothing is launched: {back}"
        parts.append(Text(said, style="yellow"))
    if number := len(status.workers) - len(shown):
        said = f"{say_count(number, 'instance')} ended lately: `spindown status --ended` lists them"
        parts.append(Text(said, style="dim"))
    parts += [Text(sentence, style="dim") for sentence in _sentences(status)]
    if status.held_until is not None and status.held_until > status.at:
        left = format_seconds(status.held_until - status.at)
        # What waits is what those that boot or work leave.
        has_live = any(entry.worker.is_live for entry in status.workers)
        which = "a further launch is" if has_live or status.launching else "launch"
        parts.append(Text(f"{which} held for {left} more, so that work gathers", style="yellow"))
    parts += [Text(trouble, style="bold red") for trouble in status.troubles]
    return Panel(Group(*parts), title=status.workload, title_align="left")


def _say_none(status: Status) -> str:
    """Return that a workload has no instances, and what money is bound all the same."""
    said = "no instances: none is billed"
    if status.launching:
        said += f", and {say_count(status.launching, 'request')} to launch under way"
    if _is_reserved(status):
        said += (
            f"; ${status.reserved_usd:.2f} of the deployment's month stays set aside for launches "
            "under way, for instances of other workloads, and until ended ones are charged"
        )
    return said


def _is_reserved(status: Status) -> bool:
    return status.budget_usd is not None and status.reserved_usd >= _CENT


def _sentences(status: Status) -> Iterator[str]:
    """Yield what comes and what was decided, without what a problem already says."""
    booting = sum(entry.word == WorkerState.BOOTING for entry in status.workers)
    if coming := say_coming(booting, status.launching):
        yield coming
    for number, sentence in enumerate((status.decision, *status.notes)):
        if not any(trouble in sentence for trouble in status.troubles):
            yield sentence if number else _dated(sentence, status)


def _dated(decision: str, status: Status) -> str:
    """Return the last decision with its age: what waits may have come since."""
    if status.decided_at is None:
        return decision
    return f"{format_seconds(status.at - status.decided_at)} ago: {decision}"


def _queue_line(status: Status) -> Text:
    line = Text()
    line.append("queue  ", style="bold")
    line.append(f"{status.backlog.visible} waiting, {status.backlog.in_flight} in flight")
    if status.waited > timedelta(0) and status.backlog.visible:
        line.append(f", unclaimed for {format_seconds(status.waited)}")
    if status.dead_letters:
        said = say_dead_letters(status.dead_letters, status.workload)
        line.append(f", {said}", style="bold red")
    return line


def _shape_lines(status: Status) -> Iterator[Text]:
    """Yield a line for each queue of a workload with types: its shape, and what waits there."""
    live = Counter(entry.worker.shape for entry in status.workers if entry.worker.is_live)
    for shape, backlog in status.shapes.items():
        text = f"{backlog.visible} waiting, {backlog.in_flight} in flight"
        more = f", {say_count(live[shape], 'worker')}" if shape else ""
        yield Text(
            f"       {say_shape(shape) if shape else 'to be routed'}: {text}{more}", style="dim"
        )


def _money_line(status: Status) -> Text:
    today = status.today
    line = Text()
    line.append("today  ", style="bold")
    line.append(say_count(today.items, "item"))
    if today.items_failed:
        line.append(f" done, {today.items_failed:,} failed", style="bold red")
    line.append(f", ${today.dollars:.4f}")
    last, span = status.cost_window, say_span_until(status.at, status.begun, status.cost_days)
    said = say_item_cost(last, span, status.last_week)
    if said and last.cost_per_item is None:
        line.append(f", {said}")
    elif said:
        line.append(f", {said}", style="bold green")
        if (paid := last.paid_seconds) > 0.0 and last.busy_seconds < _MOSTLY * paid:
            # Of the first minutes nearly all is boot: the next items cost far less.
            boot, idle = last.boot_seconds / paid, last.idle_seconds / paid
            line.append(f", of it {boot:.0%} boot and {idle:.0%} idle".replace("%", " %"))
    refusals = say_count(today.refusals, "refusal")
    line.append(f"; {say_count(today.interruptions, 'interruption')}, {refusals} by EC2")
    if status.budget_usd is not None:
        line.append(f"; deployment's month ${status.month_usd:.2f} of ${status.budget_usd:.2f}")
        # Without an instance the sentence on that tells it.
        if _is_reserved(status) and any(entry.is_present for entry in status.workers):
            line.append(f", ${status.reserved_usd:.2f} set aside")
    return line


def _failed_lines(status: Status) -> Iterator[str]:
    """Yield what the item said that failed last today, and where the others are."""
    today = status.today
    if today.items_failed and (job := today.failed_job):
        said = say_error(today.failed_with) or "no error"
        yield (
            f"       last failure, in {job}: {said}; "
            f"`spindown results {shlex.quote(job)} --failed` lists them"
        )


def _worker_lines(workers: Sequence[WorkerStatus], now: datetime) -> Iterator[Text]:
    """Yield a line for each worker; a narrow terminal wraps it and cuts nothing."""
    pools = [str(entry.worker.pool) for entry in workers]
    width, state = max(map(len, pools)), max(5, *(len(entry.word) for entry in workers))
    yield Text(
        f"{'instance':19}  {'offer':{width}}    $/h  {'state':{state}}  in state  work",
        style="bold",
    )
    for entry, pool in zip(workers, pools, strict=True):
        worker = entry.worker
        line = Text(f"{worker.instance_id:19}  {pool:{width}}  {worker.price_per_hour:5.3f}  ")
        line.append(f"{entry.word:{state}}", style=_COLOURS.get(entry.word, ""))
        line.append(f"  {format_seconds(now - _since(entry)):>8}  {_work(entry)}".rstrip())
        yield line


def _since(entry: WorkerStatus) -> datetime:
    """Return since when a worker is in its state; of a busy one since its last claim."""
    worker = entry.worker
    if worker.ended_at is not None:
        return worker.ended_at
    if worker.idle_since is not None and not worker.busy_slots:
        return worker.idle_since
    if worker.busy_slots and worker.claimed_at is not None:
        return worker.claimed_at
    return worker.launched_at


def _work(entry: WorkerStatus) -> str:
    if not entry.is_present:
        return say(entry.worker.reason)
    jobs = [_job(lease) for lease in entry.leases]
    worker = entry.worker
    if jobs and worker.gpu_percent is not None and worker.vram_percent is not None:
        jobs.append(f"GPU {worker.gpu_percent:.0f} %, VRAM {worker.vram_percent:.0f} %")
    return ", ".join(jobs)


def _job(lease: Lease) -> str:
    text = f"{lease.job_id} {lease.items_done}/{lease.items or '?'}"
    if (said := lease.progress) is not None:
        text += f" ({said.done}/{said.of} {said.text}".rstrip() + ")"
    return text


def format_seconds(length: timedelta) -> str:
    """Return a duration to the second, for people."""
    return format_duration(timedelta(seconds=max(0, round(length.total_seconds()))))


def format_wait(seconds: float) -> str:
    """Return a wait as people say it."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.1f} min"
    return f"{seconds / _HOUR:.1f} h"
