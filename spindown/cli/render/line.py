"""Lines that need nothing but text; a command that is slow to load prints its first by this."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from spindown.error import printable

#: Somebody who has typed a command wonders after about so long. Before this module is there a
#: process has taken a tenth of a second or two.
_PATIENCE_SECONDS = 0.3
#: Of a note that comes later: what is quick shall not flicker.
_PATIENCE_AT_LEAST = 0.1
_BEGUN = time.monotonic()


def print_line(text: str) -> None:
    """Print a line to stdout, whatever was stored in it."""
    _NOTE.take_back()
    print(printable(text))


def print_aside(text: str) -> None:
    """Print a line of ours to stderr at once, whatever was stored in it."""
    _NOTE.take_back()
    sys.stderr.write(printable(f"spindown: {text}") + "\n")
    sys.stderr.flush()


def told_if_slow(*, local: bool, patience: float | None = None) -> AbstractContextManager[None]:
    """Say on a terminal who is being asked, until there is an answer, or a line is printed.

    Args:
        local: whether it is the local system.
        patience: as ``noted_if_slow`` has it.
    """
    whom = "the local system" if local else "AWS"
    return noted_if_slow(f"asking {whom} ...", patience=patience)


@contextmanager
def noted_if_slow(text: str, *, patience: float | None = None) -> Iterator[None]:
    """Say on a terminal what is being done, until it is, or a line is printed.

    Args:
        text: what is being done.
        patience: seconds in which nothing is said; None: until somebody who has typed the command
            wonders.
    """
    if not sys.stderr.isatty() or not _NOTE.allow():
        yield
        return
    if patience is None:
        patience = max(_PATIENCE_SECONDS - (time.monotonic() - _BEGUN), _PATIENCE_AT_LEAST)
    timer = threading.Timer(patience, _NOTE.show, [f"spindown: {text}"])
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
