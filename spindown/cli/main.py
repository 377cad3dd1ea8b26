"""The entry point of ``spindown``: the one place where errors become words."""

import sys
from collections.abc import Sequence

import typer

from spindown.error import SpindownError

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a mistake is one sentence on stderr and exit code 1."""
    try:
        from spindown.cli.app import app  # noqa: PLC0415 - slow enough to be interrupted

        # Without standalone mode typer returns the code of --help and of Ctrl-C, and raises the
        # rest; what a command itself returns is nothing.
        sys.exit(app(arguments, standalone_mode=False))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except (SpindownError, typer.TyperException, typer.Abort, OSError) as exc:
        sys.stderr.write(_sentence(exc))
        sys.exit(1)


def _sentence(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        # Empty when a command was called bare and has printed its help.
        said = error.format_message()
        return f"spindown: {said}\n" if said else ""
    if isinstance(error, typer.Abort):
        return "spindown: nothing was done\n"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"spindown: {where}{error.strerror}\n"
    return f"spindown: {error or type(error).__doc__}\n"
