"""The rows: whole windows of at least 1,000 jobs, one part to search on and one to report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from research.compare.source import Part
from research.compare.world.traffic import bursts, images, office, shock, stream, training
from research.compare.world.trouble import hot, starved
from spindown.simulator import SimScenario
from spindown.simulator.scenario import DAY

#: Seed of the search where traffic is generated, so that it has no first part of its own.
SEARCH_SEED = 101
#: Longer than any trace.
_WHOLE = 99.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario."""

    title: str
    build: Callable[[int, Path, Part], SimScenario]


def _busy_queue(seed: int, data: Path, part: Part) -> SimScenario:
    # The last part is five times as dense: two days of it, and the whole of the first.
    days = 2.0 if part is Part.REPORT else _WHOLE
    found = training("6c71a0", days)(seed, data, part)
    assert found.arrivals[-1].at < found.length + DAY
    return found


ROWS: Mapping[str, Row] = {
    "S1": Row(title="office batches, a month of 200 GPU-hours", build=office),
    "S2": Row(title="image requests (GenTD26)", build=images(1.0, _WHOLE)),
    "S2 x10": Row(title="image requests (GenTD26), ten layers", build=images(10.0, 0.8)),
    "S3": Row(title="training jobs (Philly 6c71a0)", build=_busy_queue),
    "S4": Row(title="rare bursts, fitted to Alibaba 2023", build=bursts),
    "S5": Row(title="4,000 jobs a day", build=stream),
    "S7": Row(title="image requests, V100 as scarce as seen", build=starved),
    "S8": Row(title="training jobs, instances live 0.7 to 2.3 h", build=hot),
    "S9": Row(title="600 jobs a day, real prices of 4 months", build=shock),
}
