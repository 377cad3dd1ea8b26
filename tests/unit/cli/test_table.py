"""A table says the same on every terminal: no number is cut, and no word."""

import io

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spindown.cli.render.table import make_table

ROWS = (
    ("night-20261128", "waiting for day-20261128", "1,200/12,000", "0.000123", "2m (1m to 5m)"),
    ("day-20261128", "complete", "1/1", "1,234.5678", ""),
)


def _table() -> Table:
    table = make_table("batch", "state", numbers=("items", "USD at work"))
    table.add_column("done in")
    for row in ROWS:
        table.add_row(*map(Text, row), style="bold")
    return table


def _shown(width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(_table())
    return captured.get()


@pytest.mark.parametrize("width", range(30, 120))
def test_no_word_is_cut_on_a_narrow_terminal(width: int) -> None:
    shown = _shown(width)
    assert set(" ".join(cell for row in ROWS for cell in row).split()) <= set(
        shown.replace(";", " ").split()
    )
    assert max(map(len, shown.splitlines())) <= width


def test_texts_are_wrapped_before_a_row_becomes_a_block() -> None:
    lines = _shown(72).splitlines()
    assert lines[0].split() == ["batch", "state", "items", "USD", "at", "work", "done", "in"]
    assert [line.split()[0] for line in lines[1:]] == [
        "night-20261128",
        "day-20261128",
        "day-20261128",
    ]


def test_a_block_names_what_has_no_head() -> None:
    assert [line.strip() for line in _shown(60).splitlines()] == [
        "night-20261128",
        "state waiting for day-20261128; items 1,200/12,000;",
        "USD at work 0.000123; done in 2m (1m to 5m)",
        "day-20261128",
        "state complete; items 1/1; USD at work 1,234.5678",
    ]
