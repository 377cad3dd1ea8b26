"""Lines that need nothing but text; a command that is slow to load prints its first by this."""

import sys

from spindown.error import printable


def print_line(text: str) -> None:
    """Print a line to stdout, whatever was stored in it."""
    print(printable(text))


def print_aside(text: str) -> None:
    """Print a line of ours to stderr at once, whatever was stored in it."""
    sys.stderr.write(printable(f"spindown: {text}") + "\n")
    sys.stderr.flush()
