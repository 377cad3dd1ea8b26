"""The entry point of ``spindown``: the only place that prints errors.

It imports next to nothing before it can take a Ctrl-C, which may come early.
"""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error prints one sentence on stderr, with exit code 1."""
    try:
        _run(arguments)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _run(arguments: Sequence[str] | None) -> None:
    import typer  # noqa: PLC0415 - slow enough to be interrupted, as what follows

    from spindown.error import SpindownError  # noqa: PLC0415

    _write_whatever_comes()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        _check_bytes(given)
        from spindown.cli import option  # noqa: PLC0415
        from spindown.cli.app import app  # noqa: PLC0415

        option.GIVEN.set(option.place_of(given))

        # Without standalone mode typer returns the exit code of --help and of Ctrl-C, and raises
        # all other errors. Commands return None.
        sys.exit(app(arguments, standalone_mode=False, prog_name="spindown"))
    except (SpindownError, typer.TyperException, typer.Abort, OSError) as exc:
        from spindown.cli.error import describe  # noqa: PLC0415

        sys.stderr.write(describe(exc, given))
        sys.exit(_exit_code(exc))


def _exit_code(error: Exception) -> int:
    """Return the exit code of an error; typer makes an error of a Ctrl-C at a question."""
    return _INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else 1


def _write_whatever_comes() -> None:
    """Let stdout escape characters that its encoding lacks, as stderr does, and not fail."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _check_bytes(arguments: Sequence[str]) -> None:
    """Refuse arguments with bytes that Python cannot decode: no request can carry them."""
    from spindown.contract.location import is_whole  # noqa: PLC0415
    from spindown.error import BadInput  # noqa: PLC0415

    for text in arguments:
        if not is_whole(text):
            raise BadInput("argument", text, "write it in UTF-8")
