"""Write the page: figures, table and assumptions around the plots; no script, no network."""

from collections.abc import Iterator
from html import escape

from spindown import __version__
from spindown.cli.render.screen import format_wait
from spindown.cli.simulate.alternative import Role
from spindown.cli.simulate.comparison import Comparison, ComparisonRow
from spindown.cli.simulate.page.bill import plot_bill
from spindown.cli.simulate.page.frontier import plot_frontier
from spindown.cli.simulate.page.timeline import busiest_day, plot_day, plot_span
from spindown.cli.simulate.table import (
    ceiling_sentence,
    format_days,
    say_dollars,
    say_done,
    say_times,
    say_work,
    speed_sentence,
    unfinished_sentences,
    work_alone_sentence,
)

_CSS = """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1b1f24; line-height: 1.5; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 20px; margin: 48px 0 4px; }
p { margin: 0 0 12px; max-width: 70ch; }
.lead, .caption, footer { color: #57606a; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px;
  margin: 28px 0 8px; }
.tile { border: 1px solid #d8dee4; border-radius: 8px; padding: 14px 16px; }
.tile b { display: block; font-size: 26px; line-height: 1.2; color: #0072b2; }
.tile span { color: #57606a; font-size: 14px; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; margin-top: 8px; }
.scroll { overflow-x: auto; }
th, td { text-align: right; padding: 7px 10px; border-bottom: 1px solid #eaeef2;
  font-variant-numeric: tabular-nums; vertical-align: top; }
th { color: #57606a; font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; min-width: 270px; }
td small { display: block; color: #57606a; font-size: 13px; line-height: 1.35; max-width: 44ch; }
tr.ours td { font-weight: 600; } tr.ours td:first-child { color: #0072b2; }
tr.ours small { font-weight: 400; }
figure { margin: 12px 0 0; overflow-x: auto; } figure + p { margin-top: 12px; }
figure svg { width: 100%; min-width: 660px; height: auto; display: block; }
ul { padding-left: 20px; margin: 8px 0; } li { margin: 2px 0; }
footer { margin-top: 48px; border-top: 1px solid #d8dee4; padding-top: 12px; font-size: 14px; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .92em; }
@media (prefers-color-scheme: dark) {
  :root { color-scheme: dark; }
  body { background: #14171c; color: #e6e9ed; }
  .lead, .caption, footer, .tile span, th, td small { color: #a3abb5; }
  .tile, footer { border-color: #3a424c; } th, td { border-color: #2b323a; }
  .tile b, tr.ours td:first-child { color: #5cb3e4; }
  figure { background: #fff; border-radius: 8px; padding: 12px; }
}
"""

_HEADS = (
    "",
    "USD",
    "times ours",
    "USD per 1,000 items",
    "50 % start within",
    "95 % start within",
    "launches",
    "spent on work",
)


def write_page(comparison: Comparison) -> str:
    """Return the whole page: one HTML document that loads nothing."""
    traffic = comparison.gathered.traffic
    body = "\n".join(_sections(comparison))
    title = f"{comparison.gathered.subject.workload}: {format_days(traffic.length)} simulated"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _sections(comparison: Comparison) -> Iterator[str]:
    gathered, outcomes = comparison.gathered, comparison.outcomes
    traffic = gathered.traffic
    yield from _head(comparison)
    yield _table(comparison)
    if any(one.is_whole for one in outcomes):
        yield from _delay(comparison)
    yield "<h2>The bill by cause</h2>"
    yield (
        '<p class="caption">Every billed second of an instance is boot, work, work that an '
        "interruption undid and that was done again (redo), or idle.</p>"
    )
    yield _figure(plot_bill(outcomes))
    yield "<h2>Queue and fleet over time</h2>"
    yield f'<p class="caption">This policy, over {format_days(traffic.length)}.</p>'
    end = max(traffic.length, comparison.ours.seconds if comparison.ours.jobs_done else 0.0)
    yield _figure(plot_span(outcomes[0], start=traffic.start, end=min(end, traffic.length * 1.2)))
    begin, until = busiest_day(traffic.arrivals, traffic.length)
    yield "<h2>The busiest day, side by side</h2>"
    yield (
        '<p class="caption">The same work on the same market: blue is paid for work, orange for '
        "boots, grey for nothing.</p>"
    )
    yield _figure(plot_day(outcomes, start=traffic.start, begin=begin, end=until))
    yield from _foot(comparison)


def _delay(comparison: Comparison) -> Iterator[str]:
    yield "<h2>Cost against delay</h2>"
    yield (
        '<p class="caption">Left is faster, down is cheaper; both scales are logarithmic. The line '
        "is this policy with other values of <code>start_within</code> and "
        "<code>drain_within</code>.</p>"
    )
    yield _figure(plot_frontier(comparison.outcomes))
    if comparison.frontier and (said := speed_sentence(comparison)):
        yield f"<p>{escape(said)}</p>"


def _head(comparison: Comparison) -> Iterator[str]:
    gathered, ours = comparison.gathered, comparison.ours
    traffic = gathered.traffic
    yield f"<h1>{escape(gathered.subject.workload)}: what {format_days(traffic.length)} cost</h1>"
    yield (
        f'<p class="lead">{escape(say_work(comparison))}. '
        f"Traffic: {escape(traffic.source)}. Prices: {escape(gathered.prices.source)}. "
        f"Policy: {escape(gathered.subject.source)}.</p>"
    )
    tiles = [
        (f"${ours.dollars:,.2f}", f"for {format_days(traffic.length)}"),
    ]
    if ours.items_done:
        tiles += [
            (f"${ours.dollars_per_item * 1000:,.3g}", "for 1,000 items, all in"),
            (format_wait(ours.wait.p95), "within which 95 % of jobs start"),
        ]
    if left := ours.jobs - ours.jobs_done:
        tiles.insert(0, (f"{left:,} of {ours.jobs:,}", "jobs were left undone"))
    if comparison.ratio is not None:
        alone = say_dollars(comparison.work_alone)
        tiles.append((f"{comparison.ratio:.2f} x", f"the work alone, {alone} at the lowest price"))
    others = [
        (row.wait_p95 > ours.wait.p95, row.times_ours, row.name, row.wait_p95)
        for row in comparison.rows
        if row.role is Role.BASELINE and row.times_ours is not None
    ]
    if others:
        is_slower, times, name, wait = min(others)
        words = f"is what {name} costs, the cheapest other way"
        speed = f"; none is as fast, it takes {format_wait(wait)}" if is_slower else " as fast"
        tiles.insert(2, (f"{times:.2f} x", words + speed))
    yield '<div class="tiles">'
    for figure, words in tiles:
        yield f'<div class="tile"><b>{escape(figure)}</b><span>{escape(words)}</span></div>'
    yield "</div>"


def _table(comparison: Comparison) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEADS)
    rows = "\n".join(map(_row, comparison.rows))
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>'
        "</table></div>"
    )


def _row(row: ComparisonRow) -> str:
    name = f"{escape(row.name)}<small>{escape(row.title)}</small>"
    cells = (
        f"{row.dollars:,.2f}",
        say_times(row),
        *say_done(row),
        f"{row.launches:,}",
        "-" if row.overhead is None else f"{1.0 - row.overhead:.0%}",
    )
    mark = ' class="ours"' if row.role is Role.OURS else ""
    return f"<tr{mark}><td>{name}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def _foot(comparison: Comparison) -> Iterator[str]:
    yield "<h2>How far to trust this</h2>"
    if said := work_alone_sentence(comparison):
        yield f"<p>{escape(said)}</p>"
    if said := ceiling_sentence(comparison.ours, comparison.outcomes[0].alternative.policy):
        yield f"<p>{escape(said)}</p>"
    yield "<ul>"
    for note in comparison.gathered.notes:
        yield f"<li>Assumed: {escape(note)}.</li>"
    for said in unfinished_sentences(comparison):
        yield f"<li>{escape(said)}</li>"
    yield (
        "<li>Control plane and workers are the code that runs on AWS; instances, prices and "
        "reclaims are simulated. The other ways are simple models, treated kindly where their "
        "sources leave a choice.</li></ul>"
    )
    yield (
        f"<footer>Spindown {escape(__version__)}, seed {comparison.gathered.seed}. The same inputs "
        "and seed give this page byte for byte.</footer>"
    )
