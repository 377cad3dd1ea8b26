"""A bar that shows how far something is; in a file, a line now and then."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic

from spindown.cli.render.line import file_pause, print_aside
from spindown.cli.render.screen import TextConsole

#: Is given the words, how much is done, and of how much; None: not known.
ShowProgress = Callable[[str, int, int | None], None]


def open_bar() -> AbstractContextManager[ShowProgress]:
    """Open a bar on stderr; in a file, a line after some seconds, later less often."""
    return _open_bar() if sys.stderr.isatty() else open_lines()


@contextmanager
def _open_bar() -> Iterator[ShowProgress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = TextConsole(file=sys.stderr)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(words: str, done: int, of: int | None) -> None:
            progress.update(task, description=words, completed=done, total=of)

        yield show


@contextmanager
def open_lines(now: Callable[[], float] = monotonic) -> Iterator[ShowProgress]:
    """Give what prints a line now and then, also if nothing has changed: somebody waits."""
    began = told_at = now()

    def show(words: str, done: int, of: int | None) -> None:  # noqa: ARG001 - the words have both
        nonlocal told_at
        at = now()
        if at - told_at >= file_pause(at - began):
            told_at = at
            print_aside(f"{at - began:3.0f} s  {words}")

    yield show
