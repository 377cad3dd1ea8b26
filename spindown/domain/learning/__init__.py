"""What a workload has shown so far, and what is assumed until it shows something."""

from spindown.domain.learning.knowledge import (
    Knowledge,
    PoolRecord,
    Throughput,
    ThroughputRecord,
    Traffic,
    boot_p50,
    boot_p95,
    check_in_within,
    checkpoint_cost,
    interruption_rate,
    items_per_job,
    published_rate,
    throughput,
    traffic,
    worker_throughput,
    workload_scale,
)
from spindown.domain.learning.prior import GPU_PRIORS, GpuPrior, relative_throughput

__all__ = [
    "GPU_PRIORS",
    "GpuPrior",
    "Knowledge",
    "PoolRecord",
    "Throughput",
    "ThroughputRecord",
    "Traffic",
    "boot_p50",
    "boot_p95",
    "check_in_within",
    "checkpoint_cost",
    "interruption_rate",
    "items_per_job",
    "published_rate",
    "relative_throughput",
    "throughput",
    "traffic",
    "worker_throughput",
    "workload_scale",
]
