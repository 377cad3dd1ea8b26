"""How far a stream is, shown while it is read: in a notebook, on a terminal, or as told."""

import html
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from spindown.client.stream import ShowItems
from spindown.reason_text import say_items


@dataclass(frozen=True)
class Shown:
    """What shows it, and what ends that."""

    show: ShowItems | None
    close: Callable[[], object]


def open_progress(name: str, asked: "bool | ShowItems | None") -> Shown:
    """Return what shows how far a batch is.

    Args:
        name: the batch.
        asked: whether to show it, or what is told; None: a notebook shows it.
    """
    if callable(asked):
        return Shown(asked, lambda: None)
    display = _find_notebook() if asked is not False else None
    if display is not None:
        return Shown(_NotebookLine(name, display), lambda: None)
    if not asked:
        return Shown(None, lambda: None)
    from spindown.cli.render.bar import open_bar  # noqa: PLC0415 - not on instances

    stack = ExitStack()
    bar = stack.enter_context(open_bar())

    def show(done: int, failed: int, total: int | None) -> None:
        bar(f"{name}: {say_items(done, failed, total)}", done + failed, total)

    return Shown(show, stack.close)


def _find_notebook() -> "Callable[..., Any] | None":
    """Return what displays something in the notebook that this runs in; None: there is none."""
    loaded: Any = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    return sys.modules["IPython.display"].display  # type: ignore[no-any-return]  # of the notebook


class _ProgressCell:
    """One line of a notebook's output."""

    def __init__(self, words: str, done: int, total: int | None) -> None:
        self._words = words
        self._done = done
        self._total = total

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        known = "" if self._total is None else f' max="{self._total}" value="{self._done}"'
        return f"<progress{known}></progress> {html.escape(self._words)}"


class _NotebookLine:
    """Shows how far it is in one line of a notebook, written anew when it changes."""

    def __init__(self, name: str, display: Callable[..., Any]) -> None:
        self._name = name
        self._display = display
        self._handle: Any = None
        self._shown = ""

    def __call__(self, done: int, failed: int, total: int | None) -> None:
        words = f"{self._name}: {say_items(done, failed, total)}"
        if words == self._shown:
            return
        self._shown = words
        cell = _ProgressCell(words, done + failed, total)
        if self._handle is None:
            self._handle = self._display(cell, display_id=True)
        else:
            self._handle.update(cell)
