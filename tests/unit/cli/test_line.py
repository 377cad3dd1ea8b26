"""Who waits at a terminal is told who is being asked; nothing of it stays."""

import io
import threading
from contextlib import redirect_stderr

import pytest

from spindown.cli.render.line import noted_if_slow, print_aside, told_if_slow


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


def test_a_file_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with told_if_slow(local=False, patience=0.0):
        pass
    assert capsys.readouterr().err == ""


def test_whoever_waits_for_a_command_to_load_sees_that_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with redirect_stderr(screen := Screen()), noted_if_slow("loading ...", patience=0.0):
        assert screen.is_written.wait(60.0)
        assert screen.seen() == ["spindown: loading ..."]
    with redirect_stderr(screen), told_if_slow(local=False, patience=0.0):
        pass
    assert screen.seen() == [""]
