"""Who waits at a terminal is told who is being asked; nothing of it stays."""

import io
import threading
from contextlib import redirect_stderr

import pytest
import typer
from typer.testing import CliRunner

from spindown.cli.option import GIVEN
from spindown.cli.render.line import (
    confirm,
    noted_if_slow,
    print_aside,
    told_by_steps,
    told_if_slow,
)


class Screen(io.StringIO):
    """A terminal that keeps its lines as they are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        self.is_written.set()
        return written

    def seen(self) -> list[str]:
        lines = []
        for line in self.getvalue().split("\n"):
            shown = ""
            for text in line.split("\r"):
                shown = text + shown[len(text) :]
            lines.append(shown.rstrip())
        return lines


def test_a_slow_answer_is_waited_for_in_sight() -> None:
    with redirect_stderr(screen := Screen()), told_if_slow(local=False, patience=0.0):
        assert screen.is_written.wait(60.0)
        assert "AWS" in screen.seen()[0]
    assert screen.seen() == [""]


def test_a_quick_answer_is_all_that_is_seen() -> None:
    with redirect_stderr(screen := Screen()), told_if_slow(local=False, patience=3600.0):
        pass
    assert screen.getvalue() == ""


def test_one_who_waits_is_told_once() -> None:
    with redirect_stderr(screen := Screen()), told_if_slow(local=False, patience=0.0):
        assert screen.is_written.wait(60.0)
        told = screen.getvalue()
        with told_if_slow(local=False, patience=0.0):
            pass
        assert screen.getvalue() == told


def test_what_is_said_meanwhile_has_its_line_alone() -> None:
    with redirect_stderr(screen := Screen()), told_if_slow(local=True, patience=0.0):
        assert screen.is_written.wait(60.0)
        print_aside("careful")
    assert screen.seen() == ["spindown: careful", ""]


def test_commands_of_a_line_find_the_same_deployment() -> None:
    given = GIVEN.set(" --local")
    try:
        with redirect_stderr(screen := Screen()):
            print_aside("see `spindown status`")
            with noted_if_slow("nothing", patience=0.0) as note:
                note("ask `spindown why`")
                while "why" not in screen.getvalue():
                    screen.is_written.clear()
                    assert screen.is_written.wait(60.0)
    finally:
        GIVEN.reset(given)

    assert "`spindown status --local`" in screen.getvalue()
    assert "`spindown why --local`" in screen.getvalue()


class File(io.StringIO):
    """A file that tells when a whole line is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_line = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        self.has_line.set()
        return written


def test_a_file_has_a_line_of_what_takes_long() -> None:
    with redirect_stderr(file := File()), told_if_slow(local=False, patience=0.0):
        assert file.has_line.wait(60.0)
    assert set(file.getvalue().splitlines()) == {"spindown: asking AWS ..."}


def test_a_file_has_nothing_of_what_is_quick() -> None:
    with redirect_stderr(file := File()), told_if_slow(local=False, patience=3600.0):
        pass
    assert file.getvalue() == ""


def test_what_is_waited_for_comes_again_after_a_line() -> None:
    with redirect_stderr(screen := Screen()), noted_if_slow("a machine", patience=0.0) as note:
        assert screen.is_written.wait(60.0)
        print_aside("refused")
        note("another machine")
        screen.is_written.clear()
        assert screen.is_written.wait(60.0)
        line, shown = screen.seen()
        assert (line, shown.endswith("another machine")) == ("spindown: refused", True)


def test_a_note_of_nothing_is_not_shown() -> None:
    with redirect_stderr(screen := Screen()), noted_if_slow("a machine", patience=0.0) as note:
        assert screen.is_written.wait(60.0)
        screen.is_written.clear()
        note("")
        assert screen.is_written.wait(60.0)
        assert screen.seen() == [""]


def test_a_step_that_takes_long_is_told_again() -> None:
    with redirect_stderr(screen := Screen()), told_by_steps() as tell:
        tell("deploying")
        screen.is_written.clear()
        assert screen.is_written.wait(60.0)
        begun, shown = screen.seen()
        assert begun.endswith("deploying ...")
        assert shown.endswith("still deploying ...")
    assert screen.seen() == [begun, ""]


def test_whoever_waits_for_a_command_to_load_sees_that_it_does() -> None:
    with redirect_stderr(screen := Screen()), noted_if_slow("loading ...", patience=0.0):
        assert screen.is_written.wait(60.0)
        assert screen.seen() == ["spindown: loading ..."]
    with redirect_stderr(screen), told_if_slow(local=False, patience=0.0):
        pass
    assert screen.seen() == [""]


@pytest.mark.parametrize("typed", ["", "n\n", "y\n"], ids=["nobody", "no", "yes"])
def test_what_follows_a_question_begins_a_line(typed: str) -> None:
    asking = typer.Typer()

    @asking.command()
    def ask() -> None:
        confirm("Go on?", err=True)
        typer.echo("done", err=True)

    lines = CliRunner().invoke(asking, input=typed).stderr.splitlines()

    assert lines[0].startswith("Go on? [y/N]:")
    assert lines[1].startswith("done" if typed == "y\n" else "Aborted")
