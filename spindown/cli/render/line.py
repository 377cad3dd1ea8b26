"""Lines that need nothing but text; a command that is slow to load prints its first by this.

Whoever waits sees what is being done: each command that may be silent for long says so by
``noted_if_slow``, ``told_if_slow`` or ``told_by_steps``.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from shutil import get_terminal_size

import typer

from spindown.cli.option import place_given
from spindown.error import printable

#: Is given what is being done from now on.
Tell = Callable[[str], None]

#: Somebody who has typed a command wonders after about so long. Before this module is there a
#: process has taken a tenth of a second or two.
_PATIENCE_SECONDS = 0.3
#: Of a note that comes later: what is quick shall not flicker.
_PATIENCE_AT_LEAST = 0.1
#: From one look of a note on a terminal to the next.
_TERMINAL_SECONDS = 1.0
#: In a file: silence before a note, which is a line there; and the same once it has been there for
#: a minute, so that a wait of hours fills no log.
_FILE_SECONDS, _LATER_SECONDS, _LATER = 4.0, 30.0, 60.0
_BEGUN = time.monotonic()


def print_line(text: str) -> None:
    """Print a line to stdout, whatever was stored in it."""
    clear_note()
    print(printable(text))


def print_aside(text: str) -> None:
    """Print a line of ours to stderr at once, whatever was stored in it.

    The commands that it names find the same deployment.
    """
    clear_note()
    sys.stderr.write(printable(f"spindown: {place_given(text)}") + "\n")
    sys.stderr.flush()


def confirm(question: str, *, err: bool) -> None:
    """Ask, and go on after a yes alone (raises typer.Abort).

    What nobody types ends no line, so that what is said next begins one.
    """
    is_typed = sys.stdin.isatty()
    try:
        typer.confirm(question, abort=True, err=err)
    except typer.Abort as exc:
        # Its context is what cut the answer short, as a Ctrl-C.
        is_typed = is_typed and exc.__context__ is None
        raise
    finally:
        if not is_typed:
            typer.echo(err=err)


def clear_note() -> None:
    """Leave the line of a terminal empty for what is printed now."""
    _NOTE.give_way()


def file_pause(seconds: float) -> float:
    """Return how long a file is silent beside what has gone on for so many seconds."""
    return _LATER_SECONDS if seconds >= _LATER else _FILE_SECONDS


def told_if_slow(*, local: bool, patience: float | None = None) -> AbstractContextManager[Tell]:
    """Say who is being asked, until there is an answer.

    Args:
        local: whether it is the local system.
        patience: as ``noted_if_slow`` has it.
    """
    whom = "the local system" if local else "AWS"
    return noted_if_slow(f"asking {whom} ...", patience=patience)


@contextmanager
def noted_if_slow(text: str, *, patience: float | None = None) -> Iterator[Tell]:
    """Say what is being done while nothing else is printed; give what changes that.

    On a terminal it is a line that is written over and leaves nothing, elsewhere a line on stderr
    now and then. Inside another note nothing is said.

    Args:
        text: what is being done.
        patience: seconds in which nothing is said; None: on a terminal until somebody who has
            typed the command wonders, elsewhere until nothing was printed for some seconds.
    """
    if not _NOTE.begin(text, patience):
        yield lambda _: None
        return
    try:
        yield _NOTE.change
    finally:
        _NOTE.end()


@contextmanager
def goes_on(what: str) -> Iterator[None]:
    """Say at a Ctrl-C what goes on all the same, or what is left; the process ends by it."""
    try:
        yield
    except KeyboardInterrupt:
        print_aside(what)
        raise


@contextmanager
def told_by_steps() -> Iterator[Tell]:
    """Give what tells a step as it begins, after the seconds until then; a long one is repeated."""
    began = time.monotonic()
    with noted_if_slow("starting ...") as note:

        def tell(step: str) -> None:
            note(f"still {step} ...")
            print_aside(f"{_seconds_since(began)}{step} ...")

        yield tell


def _seconds_since(began: float) -> str:
    return f"{time.monotonic() - began:3.0f} s  "


class _Note:
    """What is being done, and a thread that says so while a command is silent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Of the note that is there; None: none is.
        self._ended: threading.Event | None = None
        self._text = ""
        self._began = self._changed_at = 0.0
        self._is_terminal = False
        #: When a line was printed last, and when the note is shown next.
        self._printed_at = _BEGUN
        self._due_at = 0.0
        #: How many characters of it stand on the terminal.
        self._shown = 0

    def begin(self, text: str, patience: float | None) -> bool:
        """Let a note be shown once it is due; False: another one is there."""
        with self._lock:
            if self._ended is not None:
                return False
            self._ended = ended = threading.Event()
            self._text = place_given(text)
            self._began = self._changed_at = time.monotonic()
            self._is_terminal = sys.stderr.isatty()
            if patience is None:
                wanted = _PATIENCE_SECONDS if self._is_terminal else _FILE_SECONDS
                silent = self._began - self._printed_at
                patience = max(wanted - silent, _PATIENCE_AT_LEAST)
            self._due_at = self._began + patience
        threading.Thread(target=self._show_when_due, args=[ended], daemon=True).start()
        return True

    def change(self, text: str) -> None:
        """Say this from the next time on; "": nothing."""
        text = place_given(text)
        with self._lock:
            if text != self._text:
                self._text, self._changed_at = text, time.monotonic()

    def give_way(self) -> None:
        """Leave the line empty, and come again when nothing more is printed."""
        with self._lock:
            self._clear()
            self._printed_at = time.monotonic()
            self._due_at = self._printed_at + self._pause()

    def end(self) -> None:
        """Leave the line empty, and show nothing any more."""
        with self._lock:
            if self._ended is not None:
                self._ended.set()
            self._ended = None
            self._clear()

    def _show_when_due(self, ended: threading.Event) -> None:
        while not ended.wait(max(self._due_at - time.monotonic(), 0.0)):
            with self._lock:
                if not ended.is_set() and time.monotonic() >= self._due_at:
                    self._show()

    def _show(self) -> None:
        self._due_at = time.monotonic() + self._pause()
        if not self._text:
            self._clear()
            return
        is_slow = time.monotonic() - self._began >= 1.0
        seconds = _seconds_since(self._began) if is_slow else ""
        text = printable(f"spindown: {seconds}{self._text}")
        if self._is_terminal:
            text = text[: get_terminal_size().columns - 1]
            sys.stderr.write(f"\r{text.ljust(self._shown)}")
            self._shown = max(self._shown, len(text))
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _pause(self) -> float:
        if self._is_terminal:
            return _TERMINAL_SECONDS
        return file_pause(time.monotonic() - self._changed_at)

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write(f"\r{' ' * self._shown}\r")
            sys.stderr.flush()
            self._shown = 0


_NOTE = _Note()
