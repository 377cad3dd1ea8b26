"""The report of `spindown verify` as one HTML file: no script, no network, safe to attach."""

from collections.abc import Iterable, Sequence
from html import escape

from spindown import __version__
from spindown.domain.verification import CheckResult, VerifyRun
from spindown.error import printable
from spindown.reason_text import say_check

_CSS = """
body { max-width: 900px; margin: 0 auto; padding: 32px 24px; line-height: 1.5; font-size: 15px;
  font-family: system-ui, "Segoe UI", Roboto, Arial, sans-serif; color: #1b1f24; }
table { border-collapse: collapse; width: 100%; margin: 8px 0 28px; }
th, td { text-align: left; padding: 6px 10px 6px 0; border-bottom: 1px solid #eaeef2;
  vertical-align: top; }
th { color: #57606a; font-weight: 600; }
.passed { color: #1a7f37; } .failed { color: #cf222e; font-weight: 600; }
.unknown { color: #9a6700; }
footer { color: #57606a; font-size: 13px; }
"""


def word_of(result: CheckResult) -> str:
    """Return a verdict as a word."""
    if result.passed is None:
        return "unknown"
    return "passed" if result.passed else "failed"


def render_page(
    run: VerifyRun, results: Sequence[CheckResult], *, heading: str, notes: Sequence[str]
) -> str:
    """Return the page; ``notes`` say what a reader must know besides."""
    checks = _table(
        ("check", "verdict", "what was seen"),
        [
            (one.check.value, f'<span class="{word_of(one)}">{word_of(one)}</span>', _text(one))
            for one in results
        ],
    )
    machines = _table(
        ("instance", "offer", "launched", "checked in", "ended", "USD/h", "charged", "free"),
        [
            (
                escape(one.instance_id),
                escape(one.offer),
                f"{one.launched_at:%H:%M:%S}",
                f"{one.checked_in_at:%H:%M:%S}" if one.checked_in_at else "never",
                f"{one.ended_at:%H:%M:%S}" if one.ended_at else "runs",
                f"{one.price_per_hour:.4f}",
                f"{one.charged_usd:.4f}",
                f"{one.refunded_usd:.4f}",
            )
            for one in run.machines
        ],
    )
    alarms = _table(
        ("alarm", "state"),
        [(escape(name), escape(state)) for name, state in sorted((run.alarms or {}).items())],
    )
    paragraphs = "".join(f"<p>{escape(printable(note))}</p>" for note in notes)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(heading)}</title>'
        f"<style>{_CSS}</style><h1>{escape(heading)}</h1>{paragraphs}<h2>Checks</h2>{checks}"
        f"<h2>Machines, UTC</h2>{machines}<h2>Alarms</h2>{alarms}"
        f"<footer>Spindown {escape(__version__)}, begun {run.sent_at:%Y-%m-%d %H:%M:%S} UTC"
        "</footer></html>\n"
    )


def _text(result: CheckResult) -> str:
    return escape(say_check(result))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; its cells are HTML."""
    titles = "".join(f"<th>{title}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"
