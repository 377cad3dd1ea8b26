"""The jobs of the field's third story on a market with real prices, as far as there are any.

Types, sizes and what people ask for are those of ``research.size``. Lengths are drawn from real
traces: of a training cluster (Philly) for models and forecasts, of image requests (GenTD26) for the
others, each without its shortest and longest 5 %, scaled to the mean of the type. The hours of the
day are those at which Philly's jobs were sent.
"""

import csv
import gzip
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random

from research.compare.source import last_price_day
from research.size import KINDS, Kind
from spindown.domain.offer import InstanceRequirements, InstanceType, extra_price_per_hour
from spindown.domain.policy import JobNeeds, JobType, Policy, Rightsize
from spindown.domain.relative_throughput import VCPU_SHARE
from spindown.domain.rightsizing.type_size import SYSTEM_GIB, hour_of_week
from spindown.simulator import Arrival, Boot, Listing, SimScenario, TrueNeed, Zone
from spindown.simulator.hardware import find_type
from spindown.simulator.scenario import DAY

REGION = "us-east-1"
#: Seconds from a launch to its first job, of all who are compared.
BOOT = Boot(at_least=30.0, median=60.0, sigma=0.36)
#: USD per vCPU and hour on demand (aws.amazon.com/ec2/pricing, 2025), and the sizes that are sold.
_PER_VCPU = {"c7i": 0.044625, "m7i": 0.0504, "r7i": 0.06615, "x2iedn": 0.20844}
_SIZES = ("large", *(f"{n}xlarge" for n in ("", 2, 4, 8, 12, 16, 24)))
#: Of memory-optimised machines that ``find_type`` does not know: 32 GiB a vCPU.
_X2_SIZES = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge", "24xlarge")
_VCPUS = {"large": 2, "xlarge": 4}
#: One GPU each. Speeds relative to a T4: prefill of Llama 7B (gpu_relative_throughput.csv).
_GPU_TYPES = ("g4dn.xlarge", "g4dn.4xlarge", "g5.xlarge", "g5.4xlarge", "g6.xlarge", "g6.4xlarge")
_GPU_TYPES_ALL = (*_GPU_TYPES, "g6e.xlarge", "g6e.4xlarge")
_SPEEDS = {"T4": 1.0, "L4": 2.09, "A10G": 2.90, "L40S": 7.52}
_GIB = 1024
#: That of machines without a GPU. Images with NVIDIA's drivers take more, whose price is added to
#: that of the machines which have them: the market of a simulation has one size of root volumes.
ROOT_GIB, _GPU_ROOT_GIB = 30, 100
_MORE_ROOT = extra_price_per_hour(_GPU_ROOT_GIB) - extra_price_per_hour(ROOT_GIB)
#: How often EC2 takes a spot instance, per hour.
_RECLAIMS = 0.02
#: Share of a trace at either end that is left out.
_LEFT_OUT = 0.05
#: Types with the lengths of training jobs.
_TRAINING = frozenset({"model", "forecast"})
#: A month of prices that every run begins with.
_PRICE_DAYS = 34
#: Zone -> (second, USD an hour).
Zones = Mapping[str, Sequence[tuple[float, float]]]
_ZONES = {"a": "low_usd_h", "b": "avg_usd_h", "c": "high_usd_h"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryJob:
    """One job as it is; ``need`` is told to the oracle alone."""

    at: float
    kind: Kind
    need: TrueNeed
    #: Seconds on the reference GPU.
    seconds: float

    def takes(self, machine: InstanceType) -> float:
        """Return the seconds that it computes on a machine."""
        return self.seconds / self.need.speed(machine, _SPEEDS.get(machine.gpu_name, 0.0))


def scenario(
    seed: int, days: int, data: Path, *, jobs: Sequence[StoryJob] | None = None, told: bool = False
) -> SimScenario:
    """Return the month as the simulator plays it.

    Args:
        seed: of jobs.
        days: how many, from a Monday.
        data: where the traces are.
        jobs: in place of those of the seed.
        told: each message asks for what its job needs, as who knows it would.
    """
    jobs = story_jobs(seed, days, data) if jobs is None else jobs
    listings = market(data)
    best = BestMachines(listings, mean_prices(listings)) if told else None
    return SimScenario(
        name="told" if told else "story",
        arrivals=tuple(_arrival(job, best) for job in jobs),
        listings=listings,
        length=days * DAY,
        boot=BOOT,
        requirements=InstanceRequirements(gpu_count_min=0.0, architectures=frozenset({"x86_64"})),
        root_volume_gib=ROOT_GIB,
    )


def policy(rightsize: Rightsize) -> Policy:
    """Return the settings: the types as people declare them, and room for them all."""
    return Policy(
        types=tuple(JobType(name=kind.name, needs=kind.asked) for kind in KINDS),
        requirements_at_most=JobNeeds(memory_gib=1024, vcpus=96),
        rightsize=rightsize,
        start_within=timedelta(minutes=10),
        max_workers=1_000,
        max_price_per_hour=50.0,
    )


def story_jobs(seed: int, days: int, data: Path) -> tuple[StoryJob, ...]:
    """Return the jobs of some days, in order."""
    random, lengths = Random(f"{seed}/story"), _lengths(data)
    weights = _hours(data)
    start = SimScenario(name="", arrivals=(), listings=(), length=0.0).start
    found = []
    for hour in range(days * 24):
        at = start + timedelta(hours=hour)
        for kind in KINDS:
            for _ in range(_poisson(kind.jobs_per_day * weights[hour % 24], random)):
                more = kind.peak_hours.get(hour_of_week(at), 1.0)
                found.append(_job(kind, more, hour, lengths[kind.name], random))
    return tuple(sorted(found, key=lambda job: job.at))


class BestMachines:
    """Finds for each job the machine on which it costs least, of those that have what it needs."""

    def __init__(self, sold: Sequence[Listing], prices: Mapping[str, float]) -> None:
        """Know what is sold, at USD an hour by type."""
        self._sold = [x.instance_type for x in sold]
        self._prices = prices
        #: How the work is done -> (USD for a second on the reference GPU, machine), cheapest first.
        self._rates: dict[float | None, list[tuple[float, InstanceType]]] = {}

    def of(self, job: StoryJob) -> tuple[float, InstanceType]:
        """Return what a job costs at least, and on which machine."""
        for rate, machine in self._rates_of(job.need):
            if is_enough(machine, job.need):
                return rate * job.seconds, machine
        raise ValueError(f"no machine has {job.need}")

    def _rates_of(self, need: TrueNeed) -> list[tuple[float, InstanceType]]:
        if need.parallel not in self._rates:
            found = [
                (self._prices[x.name] / 3600.0 / speed, x)
                for x in self._sold
                if (speed := need.speed(x, _SPEEDS.get(x.gpu_name, 0.0))) > 0.0
            ]
            self._rates[need.parallel] = sorted(found, key=lambda pair: (pair[0], pair[1].name))
        return self._rates[need.parallel]


def is_enough(machine: InstanceType, need: TrueNeed) -> bool:
    """Tell whether a machine has the memory that a job needs, and the GPU."""
    if need.parallel is None and machine.is_without_gpu:
        return False
    return (
        need.memory_gib + SYSTEM_GIB <= machine.memory_mib / _GIB
        and need.vram_gib <= machine.gpu_memory_mib / _GIB
    )


def market(data: Path) -> tuple[Listing, ...]:
    """Return what is sold in one region.

    GPU machines have real daily spot prices; zones a, b and c take the day's lowest, mean and
    highest. Of machines without a GPU there are none in the data: their spot price is the list
    price times the mean ratio of the GPU machines on that day and in that zone.
    """
    listed = {
        row["instance_type"]: float(row["od_usd_h_2025_11_30"])
        for row in _rows(data / "aws_gpu_offers_by_region.csv")
        if row["region"] == REGION and row["od_usd_h_2025_11_30"]
    }
    first, ratios = (
        last_price_day(data) - _PRICE_DAYS + 1,
        defaultdict[tuple[int, str], list[float]](list),
    )
    spot: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in _rows(data / "spot_daily_gpu_3regions.csv.gz"):
        name, day = row["instance_type"], int(row["day_since_2024_02_01"]) - first
        if name not in _GPU_TYPES_ALL or row["region"] != REGION or day < 0:
            continue
        for zone, column in _ZONES.items():
            price = float(row[column])
            spot.setdefault(name, {}).setdefault(zone, []).append((day * DAY, price))
            ratios[day, zone].append(price / listed[name])
    found = [
        _listing(name, listed[name] + _MORE_ROOT, _dearer(spot[name])) for name in _GPU_TYPES_ALL
    ]
    days = sorted({day for day, _ in ratios})
    for name, price in _cpu_prices().items():
        steps = {
            zone: [(day * DAY, round(price * _mean(ratios[day, zone]), 5)) for day in days]
            for zone in _ZONES
        }
        found.append(_listing(name, price, steps))
    return tuple(found)


def _dearer(zones: Zones) -> Zones:
    """Return prices with the larger root volume that a machine with a GPU has."""
    return {
        zone: [(at, price + _MORE_ROOT) for at, price in steps] for zone, steps in zones.items()
    }


def mean_prices(sold: Sequence[Listing], *, spot: bool = True) -> Mapping[str, float]:
    """Return USD an hour of each type: the mean of its cheapest zone, or its list price.

    With the root volume and the address, which every machine has.
    """
    extra = extra_price_per_hour(ROOT_GIB)
    if not spot:
        return {x.instance_type.name: (x.on_demand or math.inf) + extra for x in sold}
    return {
        x.instance_type.name: extra
        + min(_mean([p for _, p in zone.spot]) for zone in x.zones.values())
        for x in sold
    }


def prices_of_day(sold: Sequence[Listing], day: int) -> Mapping[str, float]:
    """Return USD an hour of each type in its cheapest zone at the begin of a day, likewise."""
    extra = extra_price_per_hour(ROOT_GIB)
    return {
        x.instance_type.name: extra
        + min(
            next(p for at, p in reversed(zone.spot) if at <= day * DAY) for zone in x.zones.values()
        )
        for x in sold
    }


def _listing(name: str, price: float, steps: Zones) -> Listing:
    machine = _machine(name)
    zones = {
        f"{REGION}{zone}": Zone(spot=tuple(sorted(prices)), reclaims_per_hour=_RECLAIMS)
        for zone, prices in steps.items()
    }
    # vCPUs do the work of a job without a GPU, wherever it runs (``TrueNeed.speed``).
    speed = _SPEEDS.get(machine.gpu_name, 1.0)
    return Listing(
        instance_type=machine, region=REGION, on_demand=round(price, 5), speed=speed, zones=zones
    )


def _machine(name: str) -> InstanceType:
    family, _, size = name.partition(".")
    if family == "x2iedn":
        vcpus = _vcpus(size)
        return InstanceType(
            name=name, vcpus=vcpus, memory_mib=vcpus * 32 * _GIB, architecture="x86_64"
        )
    found = find_type(name)
    if found is None:
        raise ValueError(name)
    return found


def _cpu_prices() -> Mapping[str, float]:
    return {
        f"{family}.{size}": price * _vcpus(size)
        for family, price in _PER_VCPU.items()
        for size in (_X2_SIZES if family == "x2iedn" else _SIZES)
    }


def _vcpus(size: str) -> int:
    return _VCPUS.get(size) or 4 * int(size.removesuffix("xlarge"))


def _arrival(job: StoryJob, best: BestMachines | None) -> Arrival:
    return Arrival(
        at=job.at,
        item_seconds=job.seconds,
        job_type=job.kind.name,
        requirements=None if best is None else _true_needs(job, best),
        need=job.need,
    )


def _true_needs(job: StoryJob, best: BestMachines) -> JobNeeds:
    """Return what who knows the job asks for: its memory, and the vCPUs that are worth it."""
    _, machine = best.of(job)
    needs = JobNeeds(memory_gib=math.ceil(job.need.memory_gib + SYSTEM_GIB), vcpus=machine.vcpus)
    if not job.need.vram_gib:
        return needs
    return replace(needs, gpus=1, gpu_memory_gib=math.ceil(job.need.vram_gib))


def _job(kind: Kind, more: float, hour: int, lengths: Sequence[float], random: Random) -> StoryJob:
    is_on_gpu = kind.vram_gib > 0.0
    length = kind.seconds * lengths[int(random.random() * len(lengths))]
    return StoryJob(
        at=(hour + random.random()) * 3600.0,
        kind=kind,
        # Of work without a GPU the seconds are those of one vCPU of c5.
        seconds=length if is_on_gpu else length * VCPU_SHARE,
        need=TrueNeed(
            memory_gib=kind.gib * more * random.lognormvariate(0.0, kind.sigma),
            vram_gib=kind.vram_gib,
            parallel=None if is_on_gpu else kind.parallel,
            peaks_at=random.uniform(0.3, 1.0),
        ),
    )


def _lengths(data: Path) -> Mapping[str, Sequence[float]]:
    """Return by type lengths as shares of their mean, each as likely."""
    training = [
        float(row["duration_s"])
        for row in _rows(data / "philly_jobs_first_half.csv.gz")
        if float(row["duration_s"]) > 0
    ]
    images = [
        float(row["exec_s"])
        for row in _rows(data / "gentd26_image_requests_first_half.csv.gz")
        if row["status"] == "SUCCEED" and float(row["exec_s"]) > 0
    ]
    shares = {True: _scaled(training), False: _scaled(images)}
    return {kind.name: shares[kind.name in _TRAINING] for kind in KINDS}


def _scaled(values: list[float]) -> Sequence[float]:
    values.sort()
    cut = int(len(values) * _LEFT_OUT)
    kept = values[cut : len(values) - cut]
    mean = _mean(kept)
    return [value / mean for value in kept]


def _hours(data: Path) -> Sequence[float]:
    """Return the share of a day's jobs that is sent in each hour of it."""
    rows = _rows(data / "philly_jobs_first_half.csv.gz")
    counts = Counter(int(float(row["submit_s"]) // 3600) % 24 for row in rows)
    return [counts[hour] / counts.total() for hour in range(24)]


def _poisson(mean: float, random: Random) -> int:
    at, count = random.expovariate(1.0), 0
    while at < mean:
        at, count = at + random.expovariate(1.0), count + 1
    return count


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)
