"""A view that goes on is read on a screen, in a log and through a pipe."""

import io
from collections.abc import Iterator

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from spindown.cli.render.screen import TextConsole, show_live
from spindown.cli.render.table import make_table


def test_a_file_gets_each_look_when_it_is_there_and_none_twice() -> None:
    file = io.StringIO()
    seen: list[str] = []

    def looks() -> Iterator[Text]:
        for line in ("one runs", "one runs", "none runs"):
            yield Text(line)
            seen.append(file.getvalue())

    show_live(Console(file=file), looks())

    assert seen == ["one runs\n", "one runs\n", "one runs\nnone runs\n"]


def test_looks_are_held_against_each_other_by_what_they_show() -> None:
    file = io.StringIO()

    show_live(
        Console(file=file), [Group("one runs", "none waits"), Group("one runs", "none waits")]
    )

    assert file.getvalue() == "one runs\nnone waits\n"


def test_a_terminal_replaces_the_last_look_by_the_new_one() -> None:
    file = io.StringIO()

    show_live(
        Console(file=file, force_terminal=True, width=40), [Text("one runs"), Text("none runs")]
    )

    # Between the two the cursor goes back and the line is erased.
    assert "\x1b[2K" in file.getvalue().split("one runs")[1].split("none runs")[0]


#: What would look like a line of ours, if it were one.
FORGED = "broke\nno instances: none is billed"


def test_what_is_stored_makes_no_line_of_its_own() -> None:
    file = io.StringIO()
    text = Text(f"given up: {FORGED}; ").append(FORGED, style="bold")
    table = make_table("job", "why")
    table.add_row("j", Text(FORGED))

    TextConsole(file=file, width=200).print(Panel(Group(text, table, FORGED)))

    lines = [line.strip("│ ") for line in file.getvalue().splitlines()]
    assert not [line for line in lines if line.startswith("no instances")]
