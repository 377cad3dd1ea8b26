"""Turn the ledger's learned sums into what the domain calls knowledge."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import median

from spindown.contract import row as rows
from spindown.contract.codec import decode
from spindown.contract.row import RateRow, control_partition, parse_processor_kind, pool_sort_key
from spindown.contract.settings import WorkloadSettings
from spindown.domain.bake_or_bootstrap import ImageHistory, find_image
from spindown.domain.boot import BootPhase
from spindown.domain.fleet import Worker
from spindown.domain.learning import (
    JobSizes,
    Knowledge,
    PoolRecord,
    ThroughputRecord,
    TypeKnowledge,
    add_types,
    interruption_rate,
)
from spindown.domain.offer import CapacityType, Pool, Processor
from spindown.error import ContractError
from spindown.port import Key, Table

_POOL = f"{rows.RATE}pool#"
#: What a row and a record of throughput both have.
_ALIKE = {*rows.names_of(ThroughputRecord)} & {*rows.names_of(RateRow)}


def read_knowledge(
    rates: Mapping[str, RateRow],
    *,
    slots: str,
    stop_grace: timedelta = timedelta(0),
    workers: Iterable[Worker] = (),
    is_baked: bool = False,
) -> Knowledge:
    """Return what a workload has shown so far.

    Args:
        rates: sort key -> row, as the ledger holds them; an unknown key is left out.
        slots: ``run.slots`` of the workload.
        stop_grace: what its program has to end.
        workers: those that there are.
        is_baked: whether instances start from a baked image: then boots are as those were, once
            any is known.
    """
    empty = RateRow()
    types = _types(rates)
    is_typed = len(types) > 1
    is_baked = is_baked and rows.BAKED_RATE in rates
    return Knowledge(
        **add_types(list(types.values())),
        types=types if is_typed else {},
        pools=dict(_pools(rates)),
        alive=frozenset(w.processor for w in workers if w.is_live),
        boots=rates.get(rows.BAKED_RATE if is_baked else rows.BOOT_RATE, empty).samples,
        check_ins=rates.get(rows.CHECK_IN_RATE, empty).samples,
        boot_phases=read_phases(rates, rows.BAKED_PHASE if is_baked else rows.BOOT_PHASE),
        gaps=rates.get(rows.GAP_RATE, empty).samples,
        checkpoints=rates.get(rows.CHECKPOINT_RATE, empty).samples,
        slots=slots,
        stop_grace=stop_grace,
    )


def starts_baked(
    images: Mapping[str, ImageHistory], settings: WorkloadSettings, region: str, now: datetime
) -> bool:
    """Tell whether instances in a region start from an image that the functions had baked."""
    bake = settings.bake
    return bake is not None and any(
        find_image(images.get(each), stamp=bake.stamp, region=region, now=now)[0]
        for each in bake.pipelines
    )


def install_seconds(rates: Mapping[str, RateRow], phases: str) -> float | None:
    """Return the median of installs at boots; None: none was measured.

    ``phases`` is how the sort keys begin: ``BOOT_PHASE`` or ``BAKED_PHASE``.
    """
    known = read_phases(rates, phases).get(BootPhase.INSTALL)
    return median(known) if known else None


def read_phases(
    rates: Mapping[str, RateRow], phases: str = rows.BOOT_PHASE
) -> Mapping[BootPhase, tuple[float, ...]]:
    """Return the seconds of each phase of the last boots, as far as they are known."""
    known = {phase: rates.get(f"{phases}{phase}") for phase in BootPhase}
    return {phase: row.samples for phase, row in known.items() if row is not None}


def read_interruption_rate(table: Table, workload: str, worker: Worker) -> float:
    """Return how often EC2 takes an instance of this worker's pool, per hour; 0 on demand.

    A row that cannot be read says nothing: no worker must end for it.
    """
    if worker.capacity_type is not CapacityType.SPOT:
        return 0.0
    key = Key(partition=control_partition(workload), sort=pool_sort_key(worker.pool))
    try:
        rate = decode(RateRow, table.get(key) or {})
    except ContractError:
        rate = RateRow()
    return interruption_rate(PoolRecord(interruptions=rate.count, hours=rate.hours), None)


def _types(rates: Mapping[str, RateRow]) -> dict[str, TypeKnowledge]:
    """Return what jobs of each type have shown; "": those without one, which is always there."""
    speeds: dict[str, dict[Processor, ThroughputRecord]] = {"": {}}
    sizes = {"": _sizes(rates.get(rows.JOB_RATE, RateRow()))}
    for sort, row in rates.items():
        name, text = "", sort.removeprefix(rows.THROUGHPUT)
        if sort.startswith(rows.TYPE_JOB):
            sizes[sort.removeprefix(rows.TYPE_JOB)] = _sizes(row)
            continue
        if sort.startswith(rows.TYPE_THROUGHPUT):
            name, _, text = sort.removeprefix(rows.TYPE_THROUGHPUT).partition("#")
        elif text == sort:
            continue
        kind = parse_processor_kind(text)
        if kind is not None:
            speeds.setdefault(name, {})[kind] = _throughput(row)
    return {
        name: TypeKnowledge(throughput=speeds.get(name, {}), jobs=sizes.get(name, JobSizes()))
        for name in sorted(speeds.keys() | sizes.keys())
    }


def _sizes(row: RateRow) -> JobSizes:
    return JobSizes(items=row.count, jobs=row.jobs, largest=row.samples)


def _throughput(row: RateRow) -> ThroughputRecord:
    return ThroughputRecord(
        items=row.count, rates=row.samples, **{name: getattr(row, name) for name in _ALIKE}
    )


def _pools(rates: Mapping[str, RateRow]) -> list[tuple[Pool, PoolRecord]]:
    found = []
    for sort, row in rates.items():
        pool = parse_pool(sort.removeprefix(_POOL)) if sort.startswith(_POOL) else None
        if pool is not None:
            found.append((pool, PoolRecord(interruptions=row.count, hours=row.hours)))
    return found


@lru_cache(maxsize=4096)
def parse_pool(text: str) -> Pool | None:
    """Return the pool that ``str(pool)`` wrote; None if it is no such text."""
    parts = text.split("/")
    if len(parts) != len(("type", "zone", "capacity type")) or parts[2] not in set(CapacityType):
        return None
    return Pool(instance_type=parts[0], zone=parts[1], capacity_type=CapacityType(parts[2]))
