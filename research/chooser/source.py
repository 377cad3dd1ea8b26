"""Offers and measured throughput of real GPUs, from files that lie outside of the project.

``aws_gpu_offers_by_region.csv``: prices and reclaim buckets of every region;
``aws_llamabench_throughput.csv``: tokens per second that llama-bench measured on EC2. Types with
one GPU alone, since the measurement runs one program on all GPUs of an instance.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from spindown.domain.offer import CapacityType, InstanceType, Offer, extra_price_per_hour

#: The file's name of a GPU -> EC2's, and what both peers can parse.
_GPUS = {
    "NVIDIA Tesla M60": "M60",
    "NVIDIA T4 Tensor Core": "T4",
    "NVIDIA A10G": "A10G",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA Tesla V100": "V100",
    "NVIDIA GB202": "RTX PRO Server 6000",
}
#: Model -> VRAM that it needs, GiB.
MODELS = {
    "SmolLM-135M.Q4_K_M": 1,
    "qwen1_5-0_5b-chat-q4_k_m": 1,
    "gemma-2b.Q4_K_M": 3,
    "llama-7b.Q4_K_M": 6,
    "phi-4-q4": 11,
}
METRICS = {"prompt": "prompt512_tok_s", "generation": "gen128_tok_s"}
#: Upper limits of the advisor's buckets, as ``spindown.aws.advisor`` takes them.
_SHARES = {"0": 0.05, "1": 0.11, "2": 0.16, "3": 0.22, "4": 0.33}
VOLUME_GIB = 100


@dataclass(frozen=True, slots=True)
class Workload:
    """One model in one phase."""

    model: str
    metric: str
    vram_gib: int
    #: Instance type -> tokens per second.
    speed: Mapping[str, float]


def read_offers(data: Path) -> tuple[Offer, ...]:
    """Return spot and on-demand offers of types with one GPU that was measured."""
    measured = {row["instance_type"] for row in _rows(data / "aws_llamabench_throughput.csv")}
    return tuple(
        offer
        for row in _rows(data / "aws_gpu_offers_by_region.csv")
        if row["instance_type"] in measured and row["gpu_model"] in _GPUS
        if float(row["gpu_count"]) == 1.0
        for offer in _offers(row)
    )


def _offers(row: Mapping[str, str]) -> Iterator[Offer]:
    kind = InstanceType(
        name=row["instance_type"],
        vcpus=int(row["vcpus"]),
        memory_mib=int(float(row["mem_gib"].split()[0]) * 1024),
        architecture="x86_64",
        gpu_name=_GPUS[row["gpu_model"]],
        gpu_manufacturer="NVIDIA",
        gpu_count=1.0,
        gpu_memory_mib=int(float(row["gpu_mem_gib_total"]) * 1024),
    )
    on_demand = float(row["od_usd_h_2025_11_30"]) if row["od_usd_h_2025_11_30"] else None
    prices = {
        CapacityType.SPOT: float(row["spot_usd_h_est"]) if row["spot_usd_h_est"] else None,
        CapacityType.ON_DEMAND: on_demand,
    }
    for capacity_type, price in prices.items():
        if price is not None:
            is_spot = capacity_type is CapacityType.SPOT
            yield Offer(
                instance_type=kind,
                region=row["region"],
                zone=f"{row['region']}a",
                capacity_type=capacity_type,
                instance_price=price,
                extra_price=extra_price_per_hour(VOLUME_GIB),
                on_demand_price=on_demand,
                reclaim_share=_SHARES.get(row["interruption_bucket_2025_06"]) if is_spot else None,
            )


def read_workloads(data: Path, offers: tuple[Offer, ...]) -> tuple[Workload, ...]:
    """Return every model in both phases; a type that was not measured does as its GPU does."""
    kinds = {offer.instance_type.name: offer.instance_type for offer in offers}
    rows = [
        row for row in _rows(data / "aws_llamabench_throughput.csv") if row["backend"] == "CUDA"
    ]
    return tuple(
        Workload(model, metric, vram, _speeds(rows, kinds, model, column))
        for model, vram in MODELS.items()
        for metric, column in METRICS.items()
    )


def _speeds(
    rows: list[dict[str, str]], kinds: Mapping[str, InstanceType], model: str, column: str
) -> Mapping[str, float]:
    found = {
        row["instance_type"]: float(row[column])
        for row in rows
        if row["model"] == model and row["instance_type"] in kinds and row[column]
    }
    by_gpu: dict[str, list[float]] = {}
    for name, speed in found.items():
        by_gpu.setdefault(kinds[name].gpu_name, []).append(speed)
    usual = {gpu: median(speeds) for gpu, speeds in by_gpu.items()}
    return {
        name: found.get(name, usual[kind.gpu_name])
        for name, kind in kinds.items()
        if kind.gpu_name in usual
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
