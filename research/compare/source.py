"""Read the real traces and prices that lie outside of the project; each file keeps its licence.

The directory is always a parameter. Traffic is cut by time: the first 70 % to tune a policy on,
the rest to report.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

from spindown.domain.offer import InstanceType
from spindown.simulator import Arrival, Listing, Zone
from spindown.simulator.scenario import DAY, Steps

TUNED_SHARE = 0.7
#: Longest job that is kept of a trace of training jobs, and the work of one of its items.
_LONGEST_SECONDS = 7200.0
_ITEM_SECONDS = 60.0


class Part(StrEnum):
    """Which part of a trace."""

    TUNE = "tune"
    REPORT = "report"


def cut(arrivals: Iterable[Arrival], part: Part) -> tuple[Arrival, ...]:
    """Return one part of a trace by time, from second 0 on."""
    ordered = sorted(arrivals, key=lambda each: each.at)
    at = ordered[0].at + TUNED_SHARE * (ordered[-1].at - ordered[0].at)
    kept = [each for each in ordered if (each.at < at) is (part is Part.TUNE)]
    first = kept[0].at if part is Part.TUNE else at
    return tuple(replace(each, at=each.at - first) for each in kept)


def image_requests(data: Path) -> Iterator[Arrival]:
    """Yield the requests of GenTD26 that succeeded: one item each, its time as measured."""
    for row in _rows(data / "gentd26_image_requests_first_half.csv.gz"):
        if row["status"] == "SUCCEED" and float(row["exec_s"]) > 0:
            yield Arrival(at=float(row["submit_s"]), item_seconds=float(row["exec_s"]))


def training_jobs(data: Path, virtual_cluster: str) -> Iterator[Arrival]:
    """Yield the jobs of one virtual cluster of Philly: one GPU, at most two hours."""
    for row in _rows(data / "philly_jobs_first_half.csv.gz"):
        seconds = float(row["duration_s"])
        if row["virtual_cluster"] != virtual_cluster or row["gpus"] != "1":
            continue
        if 0 < seconds <= _LONGEST_SECONDS:
            items = max(1, round(seconds / _ITEM_SECONDS))
            yield Arrival(at=float(row["submit_s"]), items=items, item_seconds=seconds / items)


def loaded(arrivals: tuple[Arrival, ...], load: float, *, seed: int) -> tuple[Arrival, ...]:
    """Return a trace with its load changed: thinned, or laid over itself, each layer turned."""
    random = Random(f"{seed}/load")
    if load <= 1.0:
        return tuple(each for each in arrivals if random.random() < load)
    length = arrivals[-1].at + 1.0
    found = list(arrivals)
    for _ in range(round(load) - 1):
        turn = random.random() * length
        found += [replace(each, at=(each.at + turn) % length) for each in arrivals]
    return tuple(sorted(found, key=lambda each: each.at))


#: Speeds relative to a T4: prefill of Llama 7B (gpu_relative_throughput.csv), which is the
#: nearer to batch inference; hardware from EC2's type list. Types that are sold today: P3 is not
#: among them, whose price stays as it was last told.
_TYPES = {
    "g4dn.xlarge": ("T4", 16_384, 4, 1.0),
    "g6.xlarge": ("L4", 22_888, 4, 2.09),
    "g5.xlarge": ("A10G", 22_888, 4, 2.90),
    "g6e.xlarge": ("L40S", 45_776, 4, 7.52),
}


def spot_market(data: Path, *, first_day: int, days: int) -> tuple[Listing, ...]:
    """Return real daily spot prices of four types in three regions.

    Zones a, b and c of a region take the day's lowest, mean and highest price.

    Args:
        data: the directory.
        first_day: days since 2024-02-01 of second 0.
        days: how many.
    """
    listed = {
        (row["instance_type"], row["region"]): float(row["od_usd_h_2025_11_30"])
        for row in _rows(data / "aws_gpu_offers_by_region.csv")
        if row["od_usd_h_2025_11_30"]
    }
    steps: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in _rows(data / "spot_daily_gpu_3regions.csv.gz"):
        day, name = int(row["day_since_2024_02_01"]) - first_day, row["instance_type"]
        if name in _TYPES and 0 <= day < days:
            zones = steps.setdefault((name, row["region"]), {"a": [], "b": [], "c": []})
            for zone, column in zip("abc", ("low_usd_h", "avg_usd_h", "high_usd_h"), strict=True):
                zones[zone].append((day * DAY, float(row[column])))
    return tuple(
        _listing(name, region, listed.get((name, region)), zones)
        for (name, region), zones in sorted(steps.items(), key=lambda each: each[0][::-1])
    )


def last_price_day(data: Path) -> int:
    """Return the last day of the spot prices, in days since 2024-02-01."""
    rows = _rows(data / "spot_daily_gpu_3regions.csv.gz")
    return max(int(row["day_since_2024_02_01"]) for row in rows)


def _listing(
    name: str,
    region: str,
    on_demand: float | None,
    zones: Mapping[str, list[tuple[float, float]]],
) -> Listing:
    gpu, memory, vcpus, speed = _TYPES[name]
    return Listing(
        instance_type=InstanceType(
            name=name,
            vcpus=vcpus,
            memory_mib=vcpus * 4096,
            architecture="x86_64",
            gpu_name=gpu,
            gpu_manufacturer="NVIDIA",
            gpu_count=1.0,
            gpu_memory_mib=memory,
        ),
        region=region,
        on_demand=on_demand,
        speed=speed,
        zones={
            f"{region}{letter}": Zone(spot=tuple(sorted(prices)), reclaims_per_hour=0.02)
            for letter, prices in zones.items()
        },
    )


def spot_capacity(data: Path, *, kind: str, zone: str, most: int = 1, first: float = 0.0) -> Steps:
    """Return how many V100s one zone gives over time, as a probe saw it; ``first`` is second 0."""
    found = _probe(data, kind, zone, most)
    steps: list[tuple[float, float]] = []
    at = -first
    for nodes, ticks in found["rle"]:
        ends = at + ticks * found["gap_s"]
        if ends > 0.0:
            steps.append((max(at, 0.0), float(nodes)))
        at = ends
    return tuple(steps)


def first_second(
    data: Path, part: Part, seed: int, *, zone: str, most: int = 1, length: float
) -> float:
    """Draw where in a part of a zone's availability trace a span of some length begins."""
    found = _probe(data, "availability", zone, most)
    whole = found["gap_s"] * sum(ticks for _, ticks in found["rle"])
    cut_at = TUNED_SHARE * whole
    low, high = (0.0, cut_at) if part is Part.TUNE else (cut_at, whole)
    return float(round(Random(f"{seed}/first").uniform(low, max(high - length, low))))


def v100_price(data: Path, region: str) -> tuple[float, float]:
    """Return what a V100 costs in a region on demand and as spot, USD per hour (2025)."""
    rows = _rows(data / "aws_gpu_offers_by_region.csv")
    row = next(x for x in rows if (x["instance_type"], x["region"]) == ("p3.2xlarge", region))
    return float(row["od_usd_h_2025_11_30"]), float(row["spot_usd_h_est"])


def _probe(data: Path, kind: str, zone: str, most: int) -> Any:
    with gzip.open(data / "skypilot_spot_traces_v100.json.gz", "rt") as file:
        traces = json.load(file)
    wanted = (kind, zone, most)
    return next(x for x in traces if (x["kind"], x["zone"], x["max_nodes"]) == wanted)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    is_packed = path.suffix == ".gz"
    with gzip.open(path, "rt") if is_packed else path.open() as file:
        yield from csv.DictReader(file)
