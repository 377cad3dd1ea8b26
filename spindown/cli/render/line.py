"""Lines that need nothing but text; a command that is slow to load prints its first by this."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spindown.error import printable

#: Somebody who has typed a command wonders after about so long.
_PATIENCE_SECONDS = 0.4


def print_line(text: str) -> None:
    """Print a line to stdout, whatever was stored in it."""
    _NOTE.take_back()
    print(printable(text))


def print_aside(text: str) -> None:
    """Print a line of ours to stderr at once, whatever was stored in it."""
    _NOTE.take_back()
    sys.stderr.write(printable(f"spindown: {text}") + "\n")
    sys.stderr.flush()


@contextmanager
def told_if_slow(*, local: bool, patience: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Say on a terminal who is being asked, until there is an answer, or a line is printed.

    Args:
        local: whether it is the local system.
        patience: seconds in which nothing is said.
    """
    if not sys.stderr.isatty() or not _NOTE.allow():
        yield
        return
    whom = "the local system" if local else "AWS"
    timer = threading.Timer(patience, _NOTE.show, [f"spindown: asking {whom} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _NOTE.take_back()


class _Note:
    """A text on the terminal, in the line that is printed next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_allowed = False
        self._shown = ""

    def allow(self) -> bool:
        """Let the next text be shown; tell whether that is new."""
        with self._lock:
            was_allowed, self._is_allowed = self._is_allowed, True
        return not was_allowed

    def show(self, text: str) -> None:
        """Show a text, unless it comes too late."""
        with self._lock:
            if self._is_allowed:
                self._shown = text
                sys.stderr.write(text)
                sys.stderr.flush()

    def take_back(self) -> None:
        """Leave the line empty, and let no text come any more."""
        with self._lock:
            self._is_allowed = False
            if self._shown:
                sys.stderr.write(f"\r{' ' * len(self._shown)}\r")
                sys.stderr.flush()
                self._shown = ""


_NOTE = _Note()
