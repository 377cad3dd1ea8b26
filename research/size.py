"""What learned sizes save: jobs of a month at asked, learned and known sizes, in dollars.

Run: ``python -m research.size``; it writes docs/bench/rightsize.json. The shipped functions learn
and decide each hour (``learn_types``, ``sized_at``, ``settle``, ``larger_needs``). What is modelled
is the world: each job has a machine of its own, the cheapest listed one of its shape, and pays its
boot; one that runs out of memory has paid a part of its time and goes on with the next step.
Capacity, spot prices and queues are left out: they are the same for all sizes.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random

from spindown.contract.learned_size import LearnedSizes
from spindown.contract.settings import WorkloadSettings
from spindown.control.rightsizing import learn_types
from spindown.domain.offer import Catalogue, InstanceRequirements, InstanceType
from spindown.domain.out_of_memory import larger_needs
from spindown.domain.policy import JobNeeds, JobType, Policy, Rightsize
from spindown.domain.requirement import misfit
from spindown.domain.rightsizing.type_size import SYSTEM_GIB, SeenAttempt, hour_of_week, sized_at
from spindown.domain.shape import Shape, requirements_of, settle, shape_of

#: A Monday.
BEGIN = datetime(2026, 2, 2, tzinfo=UTC)
WEEKS = 4
#: Seconds that a machine is paid for before its job begins, and at least (EC2 On-Demand pricing).
BOOT, PAID_LEAST = 60.0, 60.0
_HOURS_PER_WEEK = 168
_GIB = 1024
REGION = "us-east-1"
#: USD per vCPU and hour on demand in us-east-1, GiB per vCPU (aws.amazon.com/ec2/pricing, 2025).
_FAMILIES = {"c7i": (0.044625, 2), "m7i": (0.0504, 4), "r7i": (0.06615, 8), "x2iedn": (0.20844, 32)}
_VCPUS = (2, 4, 8, 16, 32, 48, 64, 96)
#: Type -> vCPUs, GiB, GPU, VRAM in GiB, USD per hour.
_GPUS: Mapping[str, tuple[int, int, str, int, float]] = {
    "g4dn.xlarge": (4, 16, "T4", 16, 0.526),
    "g6.xlarge": (4, 16, "L4", 22, 0.8048),
    "g6.4xlarge": (16, 64, "L4", 22, 1.3232),
    "g6e.xlarge": (4, 32, "L40S", 44, 1.861),
    "g6e.4xlarge": (16, 128, "L40S", 44, 3.00424),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A type of jobs: what people ask for, and what its jobs are like."""

    name: str
    asked: JobNeeds
    jobs_per_day: int
    #: Seconds on one core, the mean; share of it that any number of cores speeds up.
    seconds: float
    parallel: float
    #: Median peak, and the spread of its logarithm.
    gib: float
    sigma: float
    #: Times the peak in one hour of the week.
    peak_hours: Mapping[int, float] = field(default_factory=dict)
    vram_gib: float = 0.0


#: The story of a data-science team: 4,000 jobs a day, each asked for too much.
KINDS = (
    Kind(
        name="model",
        asked=JobNeeds(vcpus=32, memory_gib=512),
        jobs_per_day=40,
        seconds=40_000.0,
        parallel=0.9,
        gib=140.0,
        sigma=0.25,
    ),
    Kind(
        name="nlp",
        asked=JobNeeds(vcpus=16, memory_gib=64, gpus=1, gpu_memory_gib=40),
        jobs_per_day=160,
        seconds=1_800.0,
        parallel=0.3,
        gib=9.0,
        sigma=0.1,
        vram_gib=11.0,
    ),
    Kind(
        name="forecast",
        asked=JobNeeds(vcpus=48, memory_gib=128),
        jobs_per_day=300,
        seconds=14_000.0,
        parallel=0.95,
        gib=18.0,
        sigma=0.2,
    ),
    Kind(
        name="hourly",
        asked=JobNeeds(vcpus=8, memory_gib=64),
        jobs_per_day=500,
        seconds=1_500.0,
        parallel=0.5,
        gib=5.5,
        sigma=0.1,
        peak_hours={6: 8.0},
    ),
    Kind(
        name="sql",
        asked=JobNeeds(vcpus=4, memory_gib=16),
        jobs_per_day=3_000,
        seconds=400.0,
        parallel=0.1,
        gib=1.0,
        sigma=0.3,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as it is."""

    kind: Kind
    at: datetime
    gib: float
    #: On one core.
    seconds: float
    #: Share of its time after which it runs out of memory that is too small.
    dies_after: float

    def takes(self, vcpus: int) -> float:
        """Return the seconds that it computes on so many cores (Amdahl's law)."""
        return self.seconds * (1.0 - self.kind.parallel + self.kind.parallel / vcpus)


@dataclass(slots=True)
class Account:
    """What a month has cost."""

    dollars: list[float] = field(default_factory=lambda: [0.0] * WEEKS)
    by_kind: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    killed: list[int] = field(default_factory=lambda: [0] * WEEKS)
    jobs: list[int] = field(default_factory=lambda: [0] * WEEKS)

    def pay(self, job: Job, dollars: float) -> None:
        """Note what an attempt has cost."""
        self.dollars[week_of(job)] += dollars
        self.by_kind[job.kind.name] += dollars


def week_of(job: Job) -> int:
    """Return the week in which a job was sent, from 0."""
    return (job.at - BEGIN) // timedelta(weeks=1)


def catalogue() -> Catalogue:
    """Return the machines that are sold."""
    kinds: dict[str, InstanceType] = {}
    prices: dict[str, float] = {}
    for family, (per_vcpu, per_core) in _FAMILIES.items():
        for vcpus in _VCPUS:
            name = f"{family}.{vcpus}"
            prices[name] = per_vcpu * vcpus
            kinds[name] = InstanceType(
                name=name, vcpus=vcpus, memory_mib=per_core * vcpus * _GIB, architecture="x86_64"
            )
    for name, (vcpus, gib, gpu, vram, dollars) in _GPUS.items():
        prices[name] = dollars
        kinds[name] = InstanceType(
            name=name,
            vcpus=vcpus,
            memory_mib=gib * _GIB,
            architecture="x86_64",
            gpu_name=gpu,
            gpu_manufacturer="NVIDIA",
            gpu_count=1.0,
            gpu_memory_mib=vram * _GIB,
        )
    return Catalogue(taken_at=BEGIN, instance_types=kinds, offerings={}, on_demand={REGION: prices})


CATALOGUE = catalogue()
SETTINGS = WorkloadSettings(
    name="story",
    queue_url="",
    dlq_url="",
    log_group="",
    regions={},
    requirements=InstanceRequirements(gpu_count_min=0.0),
)
POLICY = replace(
    Policy(),
    types=tuple(JobType(name=kind.name, needs=kind.asked) for kind in KINDS),
    requirements_at_most=JobNeeds(memory_gib=1024, vcpus=96),
    rightsize=Rightsize.APPLY,
)


@cache
def machines(shape: Shape) -> tuple[tuple[InstanceType, float], ...]:
    """Return the machines that a shape allows with their prices, the cheapest first."""
    wanted = requirements_of(shape, SETTINGS.requirements)
    found = [
        (kind, CATALOGUE.on_demand[REGION][kind.name])
        for kind in CATALOGUE.instance_types.values()
        if misfit(kind, wanted) is None and (shape.gpus or kind.is_without_gpu)
    ]
    return tuple(sorted(found, key=lambda pair: (pair[1], pair[0].name)))


def jobs_of(hour: int, random: Random) -> Iterator[Job]:
    """Yield the jobs that are sent in one hour of the month."""
    at = BEGIN + timedelta(hours=hour)
    for kind in KINDS:
        expected = kind.jobs_per_day / 24
        count = int(expected) + (random.random() < expected % 1)
        for _ in range(count):
            more = kind.peak_hours.get(hour_of_week(at), 1.0)
            yield Job(
                kind=kind,
                at=at,
                gib=kind.gib * more * random.lognormvariate(0.0, kind.sigma),
                seconds=kind.seconds * random.lognormvariate(-0.125, 0.5),
                dies_after=random.uniform(0.3, 1.0),
            )


def play(job: Job, needs: JobNeeds, account: Account) -> Iterator[SeenAttempt]:
    """Do a job with what it was given, as often as it takes; yield what workers see."""
    asked: JobNeeds | None = None
    while True:
        shape = shape_of(needs)
        machine, price = machines(shape)[0]
        fits = job.gib + SYSTEM_GIB <= machine.memory_mib / _GIB
        computed = job.takes(machine.vcpus) * (1.0 if fits else job.dies_after)
        dollars = price * max(computed + BOOT, PAID_LEAST) / 3600.0
        account.pay(job, dollars)
        larger = None
        if not fits:
            larger = larger_needs(
                job.kind.name,
                asked,
                shape=shape.name,
                memory_gib=machine.memory_mib / _GIB,
                policy=POLICY,
            )
            account.killed[week_of(job)] += 1
        yield SeenAttempt(
            at=job.at,
            shape=shape,
            vcpus=float(machine.vcpus),
            cores=job.seconds / job.takes(machine.vcpus),
            memory_gib=min(job.gib, machine.memory_mib / _GIB),
            vram_gib=job.kind.vram_gib or None,
            seconds=computed,
            dollars=dollars,
            items=float(fits),
            ends_job=fits,
            ran_out=not fits,
        )
        if larger is None:
            return
        asked = larger
        needs = replace(needs, memory_gib=larger.memory_gib)


def known(job: Job, account: Account) -> None:
    """Do a job on the machine that is cheapest for it, by one who knows its need."""
    kind = job.kind
    least = Shape(
        memory_gib=math.ceil(job.gib + SYSTEM_GIB),
        gpus=1 if kind.vram_gib else 0,
        gpu_memory_gib=math.ceil(kind.vram_gib),
    )
    account.pay(
        job,
        min(
            price * max(job.takes(machine.vcpus) + BOOT, PAID_LEAST) / 3600.0
            for machine, price in machines(least)
        ),
    )


def run(seed: int, hours: int) -> tuple[dict[str, Account], LearnedSizes]:
    """Play some hours at the sizes asked for, learned and known."""
    random, learned = Random(seed), LearnedSizes()
    accounts = {name: Account() for name in ("asked", "applied", "known")}
    asked = {kind.name: settle(kind.name, None, POLICY).needs for kind in KINDS}
    for hour in range(hours):
        seen: list[tuple[str, SeenAttempt | None]] = []
        for job in jobs_of(hour, random):
            name = job.kind.name
            for account in accounts.values():
                account.jobs[week_of(job)] += 1
            for _ in play(job, asked[name], accounts["asked"]):
                continue
            known(job, accounts["known"])
            size = learned.sizes.get(name)
            sized = None if size is None else sized_at(size, job.at)
            needs = settle(name, None, POLICY, sized).needs
            seen += [(name, one) for one in play(job, needs, accounts["applied"])]
        now = BEGIN + timedelta(hours=hour + 1)
        learned = learn_types(learned, seen, SETTINGS, POLICY, CATALOGUE, now)
    return accounts, learned


def main() -> None:
    """Print what a month costs, and keep it."""
    accounts, learned = run(1, WEEKS * _HOURS_PER_WEEK)
    figures: dict[str, object] = {}
    for name, account in accounts.items():
        figures[name] = {
            "dollars_by_week": [round(dollars, 2) for dollars in account.dollars],
            "dollars_by_type": {k: round(v, 2) for k, v in sorted(account.by_kind.items())},
            "killed_by_week": account.killed,
        }
        print(f"{name:8}", *(f"{dollars:10,.2f}" for dollars in account.dollars), account.killed)
    sizes = {
        kind.name: settle(kind.name, None, POLICY, sized_at(learned.sizes[kind.name], BEGIN)).needs
        for kind in KINDS
    }
    for name, needs in sizes.items():
        hours = dict(learned.sizes[name].hours)
        print(f"{name:9} {needs.vcpus} vCPU, {needs.memory_gib:g} GiB", hours or "")
    figures["sizes"] = {
        name: {
            "vcpus": needs.vcpus,
            "memory_gib": needs.memory_gib,
            "gpu_memory_gib": needs.gpu_memory_gib,
            "hours": dict(learned.sizes[name].hours),
        }
        for name, needs in sizes.items()
    }
    figures["jobs_by_week"] = accounts["applied"].jobs
    out = Path(__file__).parents[1] / "docs" / "bench" / "rightsize.json"
    out.write_text(json.dumps({"figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
