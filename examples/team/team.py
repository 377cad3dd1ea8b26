"""Four kinds of jobs of one team: an item says its task, and the type of its job where it runs.

{"task": "model", "rows": 100000000}           a model of a table that is held in memory
{"task": "nlp", "texts": ["...", "..."]}       texts compared, on a GPU if there is one
{"task": "forecast", "series": {"a": [1, 2]}}  the next value of each series, on all CPUs
{"task": "sql", "database": "/data/team.db", "query": "select ..."}  one row of a database
"""

import math
import os
import random
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from multiprocessing import get_context
from typing import Any

from spindown.user import Context, Item, Result

Value = Mapping[str, Any]


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Do the task of each item; one that it has not got fails by itself."""
    for item in batch:
        value = item.value
        task = _TASKS.get(value.get("task", "")) if isinstance(value, dict) else None
        if task is None:
            yield Result(item, error=f"an item must have a task: {', '.join(sorted(_TASKS))}")
            continue
        yield Result(item, task(value, item, ctx))


def _model(value: Value, item: Item, ctx: Context) -> dict[str, float]:
    """Fit a line to rows that are all in memory, 16 bytes each."""
    rows, noise = int(value["rows"]), random.Random(item.index)
    xs = array("d", (n / rows for n in range(rows)))
    ys = array("d", (3.0 * x + 1.0 + noise.gauss(0.0, 0.01) for x in xs))
    ctx.progress(1, 2, "table read")
    mean_x, mean_y = math.fsum(xs) / rows, math.fsum(ys) / rows
    above = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    slope = above / math.fsum((x - mean_x) ** 2 for x in xs)
    return {"slope": round(slope, 3), "intercept": round(mean_y - slope * mean_x, 3)}


def _nlp(value: Value, item: Item, ctx: Context) -> dict[str, Any]:
    """Return for each text the one that is most like it, by the words that both have."""
    counts = [Counter(text.lower().split()) for text in value["texts"]]
    words = sorted({word for count in counts for word in count})
    vectors = [[float(count[word]) for word in words] for count in counts]
    likeness, device = _products(vectors)
    nearest = [
        max((n for n in range(len(row)) if n != of), key=row.__getitem__, default=None)
        for of, row in enumerate(likeness)
    ]
    return {"nearest": nearest, "device": device}


def _products(vectors: list[list[float]]) -> tuple[list[list[float]], str]:
    """Return the cosine of each two vectors, and what computed them."""
    units = [[x / (math.hypot(*vector) or 1.0) for x in vector] for vector in vectors]
    try:
        import torch  # noqa: PLC0415 - only this task needs it
    except ImportError:
        return [[_dot(one, other) for other in units] for one in units], "cpu"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix = torch.tensor(units, device=device)
    return (matrix @ matrix.T).tolist(), device


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _forecast(value: Value, item: Item, ctx: Context) -> dict[str, float]:
    """Return the next value of each series; each process takes some of them."""
    series = value["series"]
    with get_context("fork").Pool(os.cpu_count()) as pool:
        return dict(zip(series, pool.map(_next_value, series.values()), strict=True))


def _next_value(series: Sequence[float]) -> float:
    """Smooth a series by the share that has foretold it best (simple exponential smoothing)."""
    shares = [n / 20 for n in range(1, 20)]
    return min((_smooth(series, share) for share in shares), key=lambda found: found[0])[1]


def _smooth(series: Sequence[float], share: float) -> tuple[float, float]:
    level, missed = series[0], 0.0
    for seen in series[1:]:
        missed += (seen - level) ** 2
        level += share * (seen - level)
    return missed, level


def _sql(value: Value, item: Item, ctx: Context) -> list[Any]:
    """Ask a database and wait for its answer; SQLite stands here for the team's own."""
    with closing(sqlite3.connect(value["database"])) as database:
        return list(database.execute(value["query"]).fetchone() or ())


_TASKS: Mapping[str, Callable[[Value, Item, Context], Any]] = {
    "model": _model,
    "nlp": _nlp,
    "forecast": _forecast,
    "sql": _sql,
}
