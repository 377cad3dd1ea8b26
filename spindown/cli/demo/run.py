"""What ``spindown demo`` does, from a message to the bill.

Deploys the core stack into the local system, classifies real files with a real model on spot
workers that the scenario takes away, and checks what was committed against what was put in.
"""

import json
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from spindown.cli.demo.bill import CostReport, RankingChange, read_bill
from spindown.cli.render.saving import ALL_IN, SAVED, format_item_cost, say_saving
from spindown.cli.render.screen import format_seconds, open_console, render_status
from spindown.cli.session import Session, connect
from spindown.contract.codec import encode
from spindown.contract.job.batch import Batch
from spindown.control.record.decision import record_candidate
from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.reason import ReasonCode
from spindown.error import SpindownError
from spindown.installed import require
from spindown.job.result import JobProgress, read_progress, read_records
from spindown.job.submit import Draft, name_batch, submit_items, upload
from spindown.operate.plan import plan_next_tick
from spindown.reason_text import say

if TYPE_CHECKING:
    from spindown.local.system import LocalSystem


WORKLOAD = "classify"
ITEMS_PER_JOB = 240
_LONGEST_FILE_BYTES = 200_000
_LOOK_SECONDS = 1.0


class DemoError(SpindownError):
    """The demo failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The committed results, compared with the inputs."""

    items: int
    committed_once: int
    missing: int
    repeated: int
    failed: int
    kinds: int

    @property
    def is_exact(self) -> bool:
        """Tell whether every item has exactly one result."""
        return self.committed_once == self.items and not self.missing and not self.repeated


def run(
    jobs: int, *, scenario: str, config: Path, keep: Path | None, within: float, as_json: bool
) -> None:
    """Run the demo, and print what came of it (raises DemoError)."""
    require("local")
    require("demo")
    from spindown.local.system import LocalSystem  # noqa: PLC0415 - heavy, and only for the demo

    console = Console(stderr=True) if as_json else open_console()
    with _state(keep) as state:
        console.print("Starting the local system and deploying the core stack into it ...")
        with LocalSystem(config, scenario=scenario, state=state) as system:
            system.deploy()
            session = connect(system.deployment, system.region)
            run = _Run(session=session, system=system, console=console, within=within)
            batch, inputs = run.submit(jobs)
            run.watch(batch)
            check, bill = run.check(batch, inputs), run.bill(jobs)
            _report(console, check, bill, system, as_json=as_json)
            if keep is not None:
                _keep_results(session, batch, state)
    _judge(check, bill)


@contextmanager
def _state(keep: Path | None) -> Iterator[Path]:
    path = keep or Path(tempfile.mkdtemp(prefix="spindown-demo-"))
    try:
        yield path
    finally:
        if keep is None:
            shutil.rmtree(path, ignore_errors=True)


def pick_files(count: int) -> list[Path]:
    """Return ``count`` files spread evenly over this Python's installation, in order of name."""
    roots = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")}
    found = sorted(
        path
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and 0 < path.stat().st_size <= _LONGEST_FILE_BYTES
    )
    if len(found) < count:
        raise DemoError(f"This Python has only {len(found)} files; ask for fewer jobs.")
    return [found[n * len(found) // count] for n in range(count)]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of the demo against a local system that is up."""

    session: Session
    system: "LocalSystem"
    console: Console
    within: float
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def submit(self, jobs: int) -> tuple[Batch, Sequence[str]]:
        """Upload the files and send the jobs; return the batch and the items put in."""
        files = pick_files(jobs * ITEMS_PER_JOB)
        now = datetime.now(UTC)
        draft = Draft(
            workload=WORKLOAD,
            batch_id=name_batch(now, Random()),
            items_per_job=ITEMS_PER_JOB,
        )
        self.console.print(f"Uploading {len(files):,} files of {sysconfig.get_path('stdlib')} ...")
        pairs = [(path, f"{n:06d}{path.suffix}") for n, path in enumerate(files)]
        store, root = self.session.work_store(WORKLOAD), self.session.work_uri(WORKLOAD)
        inputs = list(upload(pairs, store=store, root=root, folder=draft.batch_id))
        self.started_at = datetime.now(UTC)
        queue = self.session.queue(WORKLOAD)
        return submit_items(inputs, draft, queue=queue, store=store), inputs

    def watch(self, batch: Batch) -> None:
        """Show the run live until all jobs are over and the workers have ended themselves."""
        progress = Progress(
            TextColumn("items committed"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        task = progress.add_task("items", total=batch.items)
        pause, deadline = Event(), datetime.now(UTC) + timedelta(seconds=self.within)
        over: dict[str, JobProgress] = {}
        store = self.session.work_store(WORKLOAD)
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            while True:
                jobs = [over.get(job) or read_progress(job, store) for job in batch.jobs]
                over |= {job.job_id: job for job in jobs if job.is_over}
                progress.update(task, completed=sum(job.items_over for job in jobs))
                live.update(self._screen(progress), refresh=True)
                if self._is_over(jobs):
                    return
                if datetime.now(UTC) > deadline:
                    raise DemoError(self._excuse(jobs))
                pause.wait(_LOOK_SECONDS)

    def _screen(self, progress: Progress) -> RenderableType:
        return Group(render_status(self.session.status(WORKLOAD)), progress)

    def _is_over(self, jobs: Sequence[JobProgress]) -> bool:
        running = any(line.state != "terminated" for line in self.system.status().instances)
        return all(job.is_over for job in jobs) and not running

    def _excuse(self, jobs: Sequence[JobProgress]) -> str:
        over = sum(job.is_over for job in jobs)
        decision = self.session.status(WORKLOAD).decision
        return (
            f"After {self.within:g} s {over} of {len(jobs)} jobs were over; "
            f"the last decision: {decision}. Run it with --keep DIR to keep the logs."
        )

    def check(self, batch: Batch, inputs: Sequence[str]) -> Check:
        """Compare the committed records with the inputs, one by one."""
        seen: dict[str, int] = {}
        kinds: set[str] = set()
        failed = 0
        for job_id in batch.jobs:
            for record in read_records(job_id, self.session.work_store(WORKLOAD)):
                seen[record["item"]] = seen.get(record["item"], 0) + 1
                failed += record["status"] != "ok"
                kinds.add(str((record.get("result") or {}).get("label")))
        return Check(
            items=len(inputs),
            committed_once=sum(seen.get(item) == 1 for item in inputs),
            missing=sum(item not in seen for item in inputs),
            repeated=sum(times > 1 for times in seen.values()),
            failed=failed,
            kinds=len(kinds),
        )

    def bill(self, jobs: int) -> CostReport:
        """Return the bill from the first message until now."""
        candidates = plan_next_tick(WORKLOAD, self.session.control_ports(), jobs=jobs).candidates
        return read_bill(
            WORKLOAD,
            ledger=self.session.ledger(WORKLOAD),
            store=self.session.store,
            start=self.started_at,
            end=datetime.now(UTC),
            ranked_now=[record_candidate(entry) for entry in candidates],
        )


def _report(
    console: Console, check: Check, bill: CostReport, system: "LocalSystem", *, as_json: bool
) -> None:
    if as_json:
        print(json.dumps(_to_json(check, bill, system)))
        return
    console.print(render_bill(bill))
    console.print()
    console.print(
        f"{check.committed_once:,} of {check.items:,} items have exactly one result "
        f"({check.missing} missing, {check.repeated} repeated, {check.failed} failed), "
        f"{check.kinds} kinds of file found."
    )
    console.print("No instance runs: the workers have ended themselves.")


def _to_json(check: Check, bill: CostReport, system: "LocalSystem") -> dict[str, Any]:
    charged = system.market.bill()
    return {
        "check": encode(check),
        "bill": encode(bill),
        "paid_seconds": bill.spend.paid_seconds,
        "cost_per_item": encode(bill.cost),
        "charged_by_ec2": {
            "dollars": sum(line.dollars for line in charged),
            "paid_seconds": sum(line.paid_seconds for line in charged),
        },
    }


def _keep_results(session: Session, batch: Batch, state: Path) -> None:
    with (state / "results.jsonl").open("w", encoding="utf-8") as out:
        for job_id in batch.jobs:
            for record in read_records(job_id, session.work_store(WORKLOAD)):
                out.write(json.dumps(record) + "\n")


def _judge(check: Check, bill: CostReport) -> None:
    if not check.is_exact:
        raise DemoError(f"Items were lost or repeated: {check.missing}, {check.repeated}.")
    if not bill.instances:
        raise DemoError("No instance was launched.")


_ENDED: Mapping[ReasonCode, str] = {
    ReasonCode.NONE: "running",
    ReasonCode.INTERRUPTED: "reclaimed, with notice",
    ReasonCode.IDLE: "ended itself: idle",
}

#: Characters of an instance's id that tell it apart.
_ID = 10
#: From this factor on one decimal is precise enough.
_TOLD_IN_TIMES = 1.5


def render_bill(bill: CostReport) -> RenderableType:
    """Return a bill as tables and sentences."""
    parts: list[RenderableType] = [*_instance_lines(bill), Text()]
    if bill.refusals:
        parts += [Text("Refused by EC2", style="bold"), _refusal_table(bill), Text()]
    if bill.ranking is not None:
        parts += [Text(ranking_sentence(bill.ranking)), Text()]
    parts.append(_cost_table(bill))
    if said := say_saving(bill.saving):
        parts += [Text(), Text(f"That is {said}."), Text(f"{ALL_IN} {SAVED}", style="dim")]
    return Group(*parts)


def _instance_lines(bill: CostReport) -> Iterator[Text]:
    """Yield a line for each instance, and below it why it was chosen; nothing is cut off."""
    width = max((len(entry.offer) for entry in bill.instances), default=0)
    yield Text("Instances", style="italic")
    heading = f"{'instance':{_ID}}  {'offer':{width}}  {'$/h':>5}  {'lived':>5}  ended"
    yield Text(heading, style="bold")
    for entry in bill.instances:
        lived = format_seconds((entry.ended_at or bill.end) - entry.launched_at)
        why = entry.ended_because
        ended = _ENDED.get(why.code) or say(why)
        price = f"{entry.price_per_hour:.3f}"
        name = entry.instance_id[:_ID]
        yield Text(f"{name:{_ID}}  {entry.offer:{width}}  {price:>5}  {lived:>5}  {ended}")
        yield Text(f"{'':{_ID}}  {entry.why}", style="dim")


def _refusal_table(bill: CostReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for refusal in bill.refusals:
        table.add_row(f"{refusal.times} x", Text(refusal.code), Text(refusal.pool))
    return table


def ranking_sentence(ranking: RankingChange) -> str:
    """Say how learning has changed the order of offers."""
    best = f"{ranking.last} at {format_item_cost(ranking.last_cost)}"
    if not ranking.differs_from_price:
        return f"The best offer is {best}; it is also the cheapest by the hour."
    sentence = f"The best offer is {best}, not {ranking.cheapest}, the cheapest by the hour."
    if ranking.first_cost is not None and ranking.first_cost > ranking.last_cost:
        sentence += f" Before anything was measured {ranking.first} was expected to be the best;"
        sentence += f" it costs {_compare(ranking.first_cost / ranking.last_cost)} an item."
    return sentence


def _compare(factor: float) -> str:
    """Say how many times as much something costs, if it costs more."""
    if factor >= _TOLD_IN_TIMES:
        return f"{factor:.1f} times as much"
    more = round((factor - 1.0) * 100)
    return f"{more} % more" if more else "hardly more"


def _cost_table(bill: CostReport) -> Table:
    spend, paid = bill.spend, bill.spend.paid_seconds
    table = Table(title="Cost", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("items committed", f"{spend.items:,}", f"{spend.items_failed:,} failed")
    table.add_row("items computed again", f"{spend.items_redone:,}", "after interruptions")
    for name, seconds in (
        ("boot", spend.boot_seconds),
        ("busy", spend.busy_seconds),
        ("idle", spend.idle_seconds - spend.minimum_seconds),
        (f"EC2's minimum of {LEAST_BILLED.total_seconds():.0f} s", spend.minimum_seconds),
    ):
        share = seconds / paid if paid else 0.0
        why = "  after the last job of each, until it ends itself" if name == "idle" else ""
        table.add_row(name, f"{seconds:,.0f} s", f"{share:.0%}{why}")
    if spend.refunded_seconds:
        note = "of these, of instances that EC2 took back in their first hour"
        table.add_row("not charged", f"{spend.refunded_seconds:,.0f} s", note)
    table.add_row("dollars", f"${spend.dollars:.5f}", f"over {format_seconds(_span(bill))}")
    if bill.cost is not None:
        table.add_row("cost per item, at work", format_item_cost(bill.cost.busy))
        table.add_row(
            "cost per item, all in", format_item_cost(bill.cost.all_in), style="bold green"
        )
    return table


def _span(bill: CostReport) -> timedelta:
    return bill.end - bill.start
