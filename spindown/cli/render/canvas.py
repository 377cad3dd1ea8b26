"""How every plot looks, and how it becomes SVG that stands inside a page.

Colours are Okabe and Ito's, which people with any kind of colour blindness can tell apart, and
they differ in lightness, so that they survive a grey printer.
"""

import errno
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

from spindown.error import BadInput
from spindown.installed import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b1f24"
FAINT = "#6a737d"
RULE = "#d8dee4"
OURS = "#0072B2"
OTHERS = "#444c56"

#: What instances are paid for, in the order of a bar; also the states of a worker.
CAUSE_COLOURS = {"work": "#0072B2", "boot": "#E69F00", "redo": "#D55E00", "idle": "#B6BEC7"}

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#eaeef2",
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "legend.frameon": False,
}
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_FONT = re.compile(r"(font(?:-family)?:[^;\"]*?)'DejaVu Sans'[^;\"]*")
_PATH = re.compile(r' d="([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d+")
_FRONT_MATTER = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def check_page(path: Path, *, has_plots: bool = True) -> None:
    """Refuse a page before the long work for it that could not be written after it.

    Raises:
        BadInput: there is no such folder, or it takes no file.
        NotInstalled: it has plots, and the library that draws them is missing.
    """
    if path.is_dir():
        raise BadInput("--html", str(path), f"name a file in this folder, such as {path}/page.html")
    if not path.parent.is_dir():
        raise BadInput("--html", str(path), "name a file in a folder that there is")
    try:
        _check_writable(path)
    except OSError as exc:
        remedy = f"name a file that can be written ({exc.strerror})"
        raise BadInput("--html", str(path), remedy) from exc
    if has_plots:
        require("plot")


def _check_writable(path: Path) -> None:
    """Raise OSError if a file cannot be written; leaves nothing behind."""
    if not path.exists():
        with TemporaryFile(dir=path.parent):
            return
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def drawing(
    width: float,
    height: float,
    rows: int = 1,
    columns: int = 1,
    *,
    layout: Literal["constrained"] | None = "constrained",
    **grid: Any,
) -> "Iterator[tuple[Figure, Sequence[Axes]]]":
    """Give a figure in our style, inches, and its axes row by row.

    The layout measures all that is written, several times; where a page has dozens of figures,
    give None and set the margins.
    """
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and only for the page
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout=layout)
        axes = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, list(axes.flat)


def to_svg(figure: "Figure", *, name: str, label: str) -> str:
    """Return a figure as an SVG element, the same bytes for the same figure.

    Args:
        figure: made by ``drawing``, which is still open.
        name: no two figures of a page share it, so that no two ids collide.
        label: one sentence for those who do not see it.
    """
    import matplotlib as mpl  # noqa: PLC0415

    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = _FRONT_MATTER.sub("", stream.getvalue())
    text = text[text.index("<svg ") :]
    text = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text, count=1)
    # A tenth of a point is finer than any screen; sixteen digits are most of the file.
    text = _PATH.sub(lambda path: f' d="{_NUMBER.sub(_round, path[1])}"', text)
    text = _FONT.sub(rf"\1{_FONTS}", text)
    said = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{said}" ', 1)


def _round(number: "re.Match[str]") -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")
