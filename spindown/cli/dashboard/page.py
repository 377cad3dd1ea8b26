"""The pages: a dashboard with its graphs, a workload's jobs, a batch, a job with its log.

Whatever people or workers have written is escaped, and made harmless for terminals that copy it. A
page has no script, loads nothing, and refreshes itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from itertools import islice
from urllib.parse import quote

from spindown import __version__
from spindown.cli.dashboard.chart import draw_graph
from spindown.cli.logs import say_line
from spindown.cli.option import place_commands
from spindown.cli.render.batch import say_eta, say_of
from spindown.cli.render.saving import (
    ALL_IN,
    SAVED,
    say_item_cost,
    say_saving,
    say_span_until,
    say_usd,
)
from spindown.cli.render.screen import format_seconds
from spindown.cli.session import Session, find_workload
from spindown.cli.wait import say_ends
from spindown.config import format_duration
from spindown.contract.dashboard import Widget, read_dashboard
from spindown.contract.job.manifest import JobState
from spindown.contract.name import SEPARATOR, resource_name
from spindown.error import BadInput, NotFound, printable
from spindown.job.result import read_progress
from spindown.operate.batch_status import BatchStatus, find_newest, read_batches
from spindown.operate.log import begin_live, read_kept
from spindown.operate.status import Status
from spindown.port import MetricSeries
from spindown.reason_text import say_count, say_dead_letters, say_dollars

_CSS = """
:root { color-scheme: light; } * { box-sizing: border-box; }
body { margin: 0; padding: 20px 24px 48px; background: #fff; color: #1b1f24; font-size: 14px;
  line-height: 1.45; font-family: system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 17px; margin: 22px 0 2px; }
h3 { font-size: 13.5px; margin: 0; }
nav { color: #57606a; margin: 4px 0 12px; } nav a, nav b { margin-right: 10px; }
a { color: #0072b2; } p { margin: 2px 0 6px; max-width: 110ch; } .faint { color: #57606a; }
.grid { display: grid; grid-template-columns: repeat(24, minmax(0, 1fr)); gap: 10px 14px; }
.graph { border: 1px solid #d8dee4; border-radius: 6px; padding: 8px 10px; min-width: 0; }
.graph svg { width: 100%; height: auto; display: block; }
.graph ul { list-style: none; margin: 2px 0 0; padding: 0; font-size: 12px; }
.graph li { display: inline-block; margin-right: 12px; overflow-wrap: anywhere; }
.graph i { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 5px; }
.units { display: flex; justify-content: space-between; font-size: 11px; color: #57606a;
  margin: 0; }
.alarm { display: inline-block; border: 1px solid #d8dee4; border-radius: 5px; padding: 2px 8px;
  margin: 2px 6px 2px 0; } .ALARM { background: #ffebe9; border-color: #cf222e; font-weight: 600; }
.OK { background: #eef8f0; } .bad { color: #cf222e; font-weight: 600; }
table { border-collapse: collapse; margin: 4px 0; } .scroll { overflow-x: auto; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #eaeef2;
  vertical-align: top; max-width: 60ch; overflow-wrap: break-word; }
th { color: #57606a; font-weight: 600; white-space: nowrap; } .prose { min-width: 24ch; }
pre { background: #f6f8fa; border-radius: 6px; padding: 10px; overflow-x: auto; font-size: 12.5px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .92em; }
@media (max-width: 1000px) {
  .grid { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .grid > div { grid-column: 1 / -1 !important; }
  .grid > .graph.small { grid-column: auto !important; }
  .grid > .graph.small.last { grid-column: 1 / -1 !important; } }
@media (max-width: 560px) { .grid > .graph.small { grid-column: 1 / -1 !important; } }
"""
#: Spans that a page offers beside the dashboard's own.
_SPANS = ("30m", "1h", "3h", "12h", "1d", "7d")
_BATCHES_SHOWN = 10
_JOBS_SHOWN = 200
_LAST_POINTS = (
    "Each line ends at the number beside its name. The time there is when that period began. Of "
    "what is counted it may be the most in the period, and not the number now."
)
#: So wide are graphs of which a narrow page has two abreast.
_SMALL_COLUMNS = 8
#: Of what one attempt printed: the last so many characters.
_LOG_SHOWN = 100_000
_LINES_SHOWN = 1000
_CODE = re.compile(r"`([^`]*)`")
_EMPHASIS = re.compile(r"\*([^*]+)\*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """From when to when a page looks, and how often it is made anew."""

    #: None: as far as the dashboard itself does.
    span: timedelta | None
    #: None: it is written once.
    every: timedelta | None = None
    #: Before every link; "": the page stands alone, and has no links.
    root: str = ""


def overview(session: Session, looked: Looked) -> str:
    """Return the page of the whole deployment (raises SpindownError)."""
    name = session.deployment.name
    return _dashboard(session, name, resource_name(name), looked, _workload_table(session, looked))


def workload_page(session: Session, workload: str, looked: Looked) -> str:
    """Return the page of one workload (raises SpindownError)."""
    session.workload(workload)
    name = resource_name(session.deployment.name, workload)
    return _dashboard(session, workload, name, looked, _jobs(session, workload, looked))


def batch_page(session: Session, workload: str, batch: str, looked: Looked) -> str:
    """Return the jobs of a batch (raises SpindownError)."""
    _, jobs = find_workload(session, batch, workload=workload, argument="BATCH")
    store = session.work_store(workload)
    rows = []
    found = {job_id: read_progress(job_id, store) for job_id in jobs[:_JOBS_SHOWN]}
    for job_id, job in found.items():
        failed = _say_failed(job.items_failed, int(job.state is JobState.FAILED))
        rows.append(
            (
                _link(looked, "j", workload, job_id),
                escape(job.word),
                escape(say_of(job.items_done, job.items)),
                f'<span class="bad">{failed}</span>',
                escape(say_dollars(job.cost_usd)),
                _prose(job.reason),
            )
        )
    heads = ("job", "state", "items", "failed", "USD at work", "why")
    more = len(jobs) - len(rows)
    said = f'<p class="faint">and {say_count(more, "more job")}</p>' if more > 0 else ""
    first = f"Of the first {len(rows)}: " if more > 0 else ""
    ends = f"<p>{_text(first + say_ends(found))}</p>"
    return _page(batch, looked, workload, ends + _table(heads, rows) + said)


def job_page(session: Session, workload: str, job_id: str, looked: Looked) -> str:
    """Return a job and what its code printed (raises SpindownError)."""
    store = session.work_store(workload)
    job = read_progress(job_id, store)
    if job.state is None and not _is_known(session, workload, job_id):
        raise NotFound(f"no job {job_id}")
    facts = [
        ("state", escape(job.word)),
        ("items", escape(say_of(job.items_done, job.items))),
        ("failed", escape(_say_failed(job.items_failed, int(job.state is JobState.FAILED)) or "0")),
        ("USD at work", escape(say_dollars(job.cost_usd))),
        ("why", _text(job.reason)),
    ]
    body = _table((), facts)
    kept: set[tuple[str, int]] = set()
    for log in read_kept(job_id, store):
        if log.text is not None:
            kept.add((log.job_id, log.attempt))
            body += _log(f"Attempt {log.attempt} of {log.job_id}", log.text)
    live = begin_live(session.log_source(workload), [job_id], store, kept, session.aws.clock.now())
    lines: list[str] = []
    try:
        for line in live.look():
            at = f"{line.at:%H:%M:%S}  " if line.at is not None else ""
            lines = [*lines[-_LINES_SHOWN:], at + say_line(line)]
    except NotFound:
        pass
    if lines:
        body += _log("Now", "\n".join(lines))
    elif not kept:
        body += '<p class="faint">It has printed nothing yet.</p>'
    return _page(job_id, looked, workload, body)


def error_page(text: str, looked: Looked) -> str:
    """Return a page that says what is wrong."""
    return _page("Not shown", looked, "", f'<p class="bad">{_text(text)}</p>')


def _is_known(session: Session, workload: str, job_id: str) -> bool:
    try:
        find_workload(session, job_id, workload=workload, argument="JOB")
    except BadInput:
        return False
    return True


def _log(title: str, text: str) -> str:
    shown = text[-_LOG_SHOWN:]
    cut = " (its end)" if len(shown) < len(text) else ""
    return f"<h2>{_text(title)}{cut}</h2><pre>{escape(printable(shown, keep=chr(10)))}</pre>"


def _dashboard(session: Session, title: str, name: str, looked: Looked, details: str) -> str:
    try:
        body = read_dashboard(session.aws.dashboards().body(name))
    except NotFound as exc:
        remedy = f"deploy {session.deployment.name}-insight, or take another name"
        raise BadInput("dashboard", name, remedy) from exc
    until = session.aws.clock.now()
    since = until - (looked.span or body.span)
    alarms = session.aws.alarms().states(f"{session.deployment.name}{SEPARATOR}")
    alone = set(_alone(body.widgets))
    parts = [
        _widget(session, widget, number, since, until, alarms, is_alone=number in alone)
        for number, widget in enumerate(body.widgets)
    ]
    span = f"{_say_span(since, until, looked)}. {_LAST_POINTS}"
    words = f'<p class="faint">{escape(span)}</p>'
    return _page(title, looked, "", f'{words}{details}<div class="grid">{"".join(parts)}</div>')


def _say_span(since: datetime, until: datetime, looked: Looked) -> str:
    day = "" if since.date() == until.date() else f"{until:%Y-%m-%d} "
    anew = "" if looked.every is None else f"; made anew every {format_duration(looked.every)}"
    return f"{since:%Y-%m-%d %H:%M} to {day}{until:%H:%M:%S} UTC{anew}"


def _is_small(widget: Widget) -> bool:
    return widget.kind not in {"text", "alarm"} and widget.width <= _SMALL_COLUMNS


def _alone(widgets: Sequence[Widget]) -> Iterator[int]:
    """Yield the numbers of small graphs beside which a narrow page, with two abreast, has none."""
    abreast = 0
    for number, widget in enumerate(widgets):
        abreast = abreast + 1 if _is_small(widget) else 0
        is_last = number + 1 == len(widgets) or not _is_small(widgets[number + 1])
        if abreast % 2 and is_last:
            yield number


def _widget(
    session: Session,
    widget: Widget,
    number: int,
    since: datetime,
    until: datetime,
    alarms: Mapping[str, str],
    *,
    is_alone: bool,
) -> str:
    place = f"grid-column: {widget.x + 1} / span {widget.width}"
    if widget.kind == "text":
        return f'<div style="{place}">{_markdown(widget.markdown)}</div>'
    if widget.kind == "alarm" and session.is_local:
        topic = resource_name(session.deployment.name, "alarms")
        said = f"the local system has no alarms; what ticks have to tell goes to the topic {topic}"
        return f'<div style="{place}"><h3>{_text(widget.title)}</h3><p>{_text(said)}</p></div>'
    if widget.kind == "alarm":
        shown = "".join(
            f'<span class="alarm {state if state in {"OK", "ALARM"} else ""}">{_text(name)}: '
            f"{_text(state)}</span>"
            for name in widget.alarms
            for state in (alarms.get(name, "not deployed"),)
        )
        return f'<div style="{place}"><h3>{_text(widget.title)}</h3>{shown}</div>'
    series: Sequence[MetricSeries] = session.aws.dashboards().read(
        widget.queries, since=since, until=until
    )
    graph = draw_graph(widget, series, since=since, until=until, name=f"g{number}")
    size = (" small last" if is_alone else " small") if _is_small(widget) else ""
    return f'<div class="graph{size}" style="{place}">{graph}</div>'


def _markdown(text: str) -> str:
    """Return a heading and a paragraph: all that our own texts have."""
    head, _, rest = text.partition("\n")
    words = _EMPHASIS.sub(r"<em>\1</em>", _CODE.sub(r"<code>\1</code>", escape(rest)))
    return f'<h2>{escape(head.removeprefix("## "))}</h2><p class="faint">{words}</p>'


def say_to_do(status: Status) -> Iterator[str]:
    """Yield what a person has to do: of dead letters, and of what stops work."""
    if status.dead_letters:
        yield say_dead_letters(status.dead_letters, status.workload)
    yield from status.troubles


def _workload_table(session: Session, looked: Looked) -> str:
    rows = []
    for name in session.deployment.workloads:
        status = session.status(name)
        span = say_span_until(status.at, status.begun, status.cost_days)
        cost = say_item_cost(status.cost_window, span, status.last_week)
        rows.append(
            (
                _link(looked, "w", name),
                f"{status.backlog.visible:,}",
                f"{status.backlog.in_flight:,}",
                f"{sum(one.is_present for one in status.workers):,}",
                f"{status.today.items:,}",
                escape(say_usd(status.today.dollars)),
                _prose(cost),
                _prose(say_saving(status.saving, shortly=True)),
                "<br>".join(
                    f'<span class="bad">{_told(session, x)}</span>' for x in say_to_do(status)
                ),
            )
        )
    heads = ("workload", "waiting", "in flight", "workers", "items today", "USD today")
    explanation = f'<p class="faint">{escape(f"{ALL_IN} {SAVED}")}</p>'
    return _table((*heads, "an item", "saved in 7 days", "to do"), rows) + explanation


def _jobs(session: Session, workload: str, looked: Looked) -> str:
    status = session.status(workload)
    at = f", {status.decided_at:%H:%M:%S} UTC" if status.decided_at is not None else ""
    body = f"<h2>Last decision{at}</h2><p>{_told(session, status.decision)}</p>"
    for trouble in say_to_do(status):
        body += f'<p class="bad">{_told(session, trouble)}</p>'
    held = list(_held(status, workload, looked))
    if held:
        heads = ("job in hand", "items", "worker", "offer", "state", "age")
        body += f"<h2>Who works on what</h2>{_table(heads, held)}"
    view = session.ledger(workload).read()
    failing = [
        (_link(looked, "j", workload, one.job_id), say_count(one.failures, "time"))
        for one in islice(view.requeued_jobs.values(), _JOBS_SHOWN)
        if one.failures
    ]
    if failing:
        body += f"<h2>Waits after a failure</h2>{_table(('job', 'failed'), failing)}"
    return body + _batches(session, workload, looked, status.at)


def _held(status: Status, workload: str, looked: Looked) -> Iterator[tuple[str, ...]]:
    for entry in status.workers:
        if not entry.is_present:
            continue
        worker = entry.worker
        of_worker = (
            _text(worker.instance_id),
            _text(str(worker.pool)),
            _text(entry.word),
            escape(format_seconds(status.at - worker.launched_at)),
        )
        if not entry.leases:
            yield ("", "", *of_worker)
        for lease in entry.leases:
            items = escape(say_of(lease.items_done, lease.items or None))
            yield (_link(looked, "j", workload, lease.job_id), items, *of_worker)


def _batches(session: Session, workload: str, looked: Looked, now: datetime) -> str:
    stores = {workload: session.work_store(workload)}
    found = find_newest(stores, limit=_BATCHES_SHOWN, before=None)
    if not found:
        return ""
    read = read_batches(found, stores, {workload: session.outlook(workload)})
    heads = ("batch", "state", "jobs", "items", "failed", "USD at work", "done in (range)")
    rows = [_batch_row(one, workload, looked, now) for one in read]
    return f"<h2>Batches</h2>{_table(heads, rows)}"


def _say_failed(items: int, given_up: int) -> str:
    """Return how many items failed, and jobs that were given up, whose items have no result."""
    parts = [say_count(items, "item")] if items else []
    return ", ".join([*parts, f"{say_count(given_up, 'job')} given up"] if given_up else parts)


def _batch_row(one: BatchStatus, workload: str, looked: Looked, now: datetime) -> tuple[str, ...]:
    failed = _say_failed(one.items_failed or 0, one.jobs_given_up or 0)
    return (
        _link(looked, "b", workload, one.batch_id),
        _text(str(one.state or one.fault)),
        escape(say_of(one.jobs_over, one.jobs)),
        escape(say_of(one.items_done, one.items)),
        f'<span class="bad">{failed}</span>',
        "" if one.dollars is None else escape(say_dollars(one.dollars)),
        escape(say_eta(one.eta, now)),
    )


def _text(text: str) -> str:
    """Return whatever was stored as HTML that says it and does nothing."""
    return escape(printable(text))


def _told(session: Session, text: str) -> str:
    """Return what we say as HTML; the commands that it names find the same deployment."""
    return _text(place_commands(text, session.options))


def _prose(text: str) -> str:
    """Return a cell of words, which is not squeezed into a column of single ones."""
    return f'<div class="prose">{_text(text)}</div>' if text else ""


def _link(looked: Looked, *path: str) -> str:
    text = _text(path[-1])
    if not looked.root:
        return text
    return f'<a href="{looked.root}{"/".join(quote(part, safe="") for part in path)}">{text}</a>'


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are HTML."""
    titles = "".join(f"<th>{head}</th>" for head in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    head = f"<tr>{titles}</tr>" if titles else ""
    return f'<div class="scroll"><table>{head}{lines}</table></div>'


def _page(title: str, looked: Looked, workload: str, body: str) -> str:
    nav = ""
    if looked.root:
        up = _link(looked, "w", workload) if workload else ""
        spans = " ".join(f'<a href="?since={span}">{span}</a>' for span in _SPANS)
        nav = f'<nav><a href="{looked.root}">deployment</a>{up} {"" if workload else spans}</nav>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)} - Spindown</title><style>{_CSS}</style></head>"
        f"<body><h1>{_text(title)}</h1>{nav}{body}"
        f'<p class="faint">Spindown {escape(__version__)}</p></body></html>\n'
    )
