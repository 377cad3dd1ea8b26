"""The plot of ``spindown usage``: each attempt against what it had and what was asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindown.cli.render.canvas import drawing
from spindown.cli.render.line import print_aside
from spindown.error import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Title, what is drawn, what there was and what was asked for (None: nothing is).
_PANELS = (
    ("CPU, cores (95th percentile)", "cpu_p95", "vcpus", "asked_vcpus"),
    ("Memory, GiB (most)", "memory_max", "memory_gib", "asked_memory_gib"),
    ("GPU, % of the time (mean)", "gpu_mean", None, None),
    ("VRAM, GiB (most)", "vram_max", "vram_gib", None),
)
_WIDTH, _HEIGHT = 9.0, 2.6
#: Points.
_DOT, _TICK = 3.5, 9.0
_SUFFIXES = (".png", ".svg", ".pdf")


def draw_usage(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw attempts over the time of their begin, and say where the plot is.

    A panel of which nothing was seen is left out.

    Raises:
        BadInput: the file cannot be written, or its name does not say what it is.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise BadInput("--plot", str(path), f"end its name with {', '.join(_SUFFIXES)}")
    panels = [one for one in _PANELS if any(row[one[1]] is not None for row in records)]
    if not panels:
        raise BadInput("--plot", str(path), "nothing was seen of what jobs used; see --json")
    from matplotlib.dates import (  # noqa: PLC0415 - heavy, and only for the plot
        AutoDateLocator,
        ConciseDateFormatter,
    )

    with drawing(_WIDTH, _HEIGHT * len(panels), rows=len(panels), sharex=True) as (figure, axes):
        for axis, (title, name, had, asked) in zip(axes, panels, strict=True):
            _draw(axis, records, name, "o", "used")
            for column, label in ((had, "had"), (asked, "asked")):
                if column is not None:
                    _draw(axis, records, column, "_", label)
            axis.set_title(title, loc="left")
            axis.set_ylim(bottom=0.0)
            axis.legend(loc="upper right")
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes[-1].xaxis.set_major_locator(locator)
        axes[-1].xaxis.set_major_formatter(
            ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        )
        try:
            figure.savefig(path)
        except OSError as exc:
            remedy = f"name a file that can be written ({exc.strerror})"
            raise BadInput("--plot", str(path), remedy) from exc
    print_aside(f"the plot is in {path}")


def _draw(
    axis: "Axes", records: Sequence[Mapping[str, Any]], name: str, marker: str, label: str
) -> None:
    size = _DOT if marker == "o" else _TICK
    seen = [(row["started_at"], row[name]) for row in records if row[name] is not None]
    if seen:
        times, values = zip(*seen, strict=True)
        axis.plot(times, values, marker, markersize=size, label=label)
