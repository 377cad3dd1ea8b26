"""A bar that shows how far something is; in a file, a line now and then."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from spindown.cli.render.line import print_aside
from spindown.cli.render.screen import TextConsole

#: Is given the words, how much is done, and of how much; None: not known.
ShowProgress = Callable[[str, int, int | None], None]


def open_bar(*, lines_every: int) -> AbstractContextManager[ShowProgress]:
    """Open a bar on stderr; in a file, every so many calls are a line if the words have changed."""
    return _open_bar() if sys.stderr.isatty() else _open_lines(lines_every)


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
def _open_lines(every: int) -> Iterator[ShowProgress]:
    calls, shown = 0, ""

    def show(words: str, done: int, of: int | None) -> None:  # noqa: ARG001 - the words have both
        nonlocal calls, shown
        if calls % every == 0 and words != shown:
            shown = words
            print_aside(shown)
        calls += 1

    yield show
