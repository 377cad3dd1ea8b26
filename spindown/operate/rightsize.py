"""What the jobs of the last days have used, and what the machines that have enough would cost."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.contract.usage import OTHER_TYPES, UsageRecord
from spindown.control.market import load_catalogue
from spindown.control.policy_edit import current_policy
from spindown.control.rightsizing import list_price, read_learned, seen_attempt
from spindown.control.usage import read_usage
from spindown.domain.dispatch_cost import (
    DispatchCost,
    MachineTerms,
    PastJob,
    compare_dispatches,
)
from spindown.domain.idle import idle_timeout
from spindown.domain.learning import Knowledge, boot_p50
from spindown.domain.offer import HOURS_PER_MONTH, Catalogue, InstanceRequirements, slot_count
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy, Rightsize
from spindown.domain.ranking import Candidate
from spindown.domain.reason import Reason
from spindown.domain.rightsizing.type_size import LEARNED, TypeSize, are_few, holds
from spindown.domain.rightsizing.workload_size import (
    JobUse,
    RequirementAdvice,
    advise_requirements,
    fit,
)
from spindown.domain.shape import Sized, dispatch_of_type, settle, shape_of, size_up
from spindown.ledger import Ledger
from spindown.ledger.knowledge import read_knowledge
from spindown.operate.plan import plan_next_tick
from spindown.port import Cache, ControlPorts, LiveEdit, SettingsStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSizing:
    """What jobs of one type are given, beside what they use."""

    #: "": of jobs without a type.
    name: str
    #: Whether the policy has such a type: only of these something is learned.
    is_declared: bool
    jobs: int
    #: By the type; a message may ask for something else.
    asked: JobNeeds
    #: The most memory of a machine, and VRAM of a GPU; None: not seen.
    used: JobNeeds
    #: Mean cores, which are no whole number; None: not seen.
    cores: float | None
    #: In force now: what is asked for, or what is learned.
    given: JobNeeds
    #: What evidence speaks for; None: too little is known.
    advised: JobNeeds
    #: Hour of the week, from Monday 00:00 UTC -> GiB of memory, where it needs more.
    hours: Mapping[int, int]
    #: USD a month that its jobs cost, at the size in force; at the size asked for; at the advised
    #: one, in as much time. None: no machine of such a size is listed.
    dollars: float
    dollars_asked: float | None
    dollars_advised: float | None
    reasons: tuple[Reason, ...]
    #: How its jobs come to machines, and what each way would have cost, the cheapest first.
    dispatch: Dispatch
    dispatches: tuple[DispatchCost, ...]

    @property
    def is_short(self) -> bool:
        """Tell whether a job has used more memory than is asked for."""
        asked, used = self.asked.memory_gib, self.used.memory_gib
        return asked is not None and used is not None and used > asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Rightsizing:
    """How well the requirements of a workload fit what its jobs use."""

    workload: str
    at: datetime
    days: int
    jobs: int
    #: Time that slots were held, and USD that it cost.
    seconds: float
    dollars: float
    #: The types that it ran on.
    types: tuple[str, ...]
    #: None: nothing was seen.
    advice: RequirementAdvice | None = None
    #: What an item costs least on now, and on what has enough; None: nothing fits.
    now: Candidate | None = None
    then: Candidate | None = None
    #: By type, if it declares any; then of types that it declares no more, and of jobs without one.
    sizings: tuple[TypeSizing, ...] = ()
    #: What becomes of the sizes that are learned for types.
    mode: Rightsize = Rightsize.ADVISE
    #: Without types: how jobs come to machines, and what each way would have cost.
    dispatch: Dispatch = Dispatch.POOL
    dispatches: tuple[DispatchCost, ...] = ()

    @property
    def saving(self) -> float:
        """Return the share of an item's cost that would be saved; 0: none."""
        if self.now is None or self.then is None:
            return 0.0
        return max(0.0, 1.0 - self.then.cost_per_item / self.now.cost_per_item)


def rightsize(workload: str, ports: ControlPorts, *, days: int) -> Rightsizing:
    """Compare what is required with what was used in the last ``days``; change nothing."""
    now = ports.clock.now()
    records = read_usage(workload, ports.objects, since=now - timedelta(days=days), until=now)
    settings, policy = current_policy(workload, ports)
    known = RightsizingInput(
        settings=settings,
        policy=policy,
        catalogue=load_catalogue(ports.objects),
        knowledge=read_knowledge(
            Ledger(ports.table, workload).read().rates, slots=settings.run.slots
        ),
    )
    uses = [_use(record) for record in records]
    found = Rightsizing(
        workload=workload,
        at=now,
        days=days,
        jobs=len({record.job_id for record in records}),
        seconds=sum(record.seconds for record in records),
        dollars=sum(record.dollars for record in records),
        types=tuple(sorted({record.instance_type for record in records})),
        # What types need is told for each of them.
        advice=None
        if policy.types
        else advise_requirements(uses, settings.requirements, settings.run.slots),
        sizings=tuple(_sizings(records, known, ports, days)) if policy.types else (),
        mode=policy.rightsize,
        dispatch=policy.dispatch,
        dispatches=() if policy.types else _compare(records, JobNeeds(), known),
    )
    if found.advice is None:
        return found
    enough = fit(settings.requirements, found.advice)
    return replace(found, now=_best(workload, ports), then=_best(workload, ports, enough))


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsizingInput:
    """What is read once, however many types there are."""

    settings: WorkloadSettings
    policy: Policy
    catalogue: Catalogue | None
    knowledge: Knowledge


#: So many types that nobody declares are told one by one, those with most records: a worker may
#: make up any number.
_UNDECLARED_TOLD = 20


def _by_type(
    records: Sequence[UsageRecord], policy: Policy
) -> Mapping[JobType, Sequence[UsageRecord]]:
    """Return the records of each type: those declared, then others, then jobs without a type."""
    found: dict[str, list[UsageRecord]] = {}
    for record in records:
        found.setdefault(record.type, []).append(record)
    declared = {each: found.pop(each.name, []) for each in policy.types}
    untyped = {JobType(name=name): found.pop(name) for name in [""] if name in found}
    rest = found.pop(OTHER_TYPES, [])
    most = sorted(found, key=lambda name: (-len(found[name]), name))
    told = {JobType(name=name): found[name] for name in sorted(most[:_UNDECLARED_TOLD])}
    rest += [record for name in most[_UNDECLARED_TOLD:] for record in found[name]]
    return {**declared, **told, **({JobType(name=OTHER_TYPES): rest} if rest else {}), **untyped}


def _sizings(
    records: Sequence[UsageRecord], known: RightsizingInput, ports: ControlPorts, days: int
) -> Iterator[TypeSizing]:
    settings, policy, catalogue = known.settings, known.policy, known.catalogue
    learned, now = read_learned(settings.name, ports.objects), ports.clock.now()
    first = min((record.started_at for record in records), default=now)
    months = min(max((now - first).total_seconds(), _DAY), days * _DAY) / _MONTH
    for declared, own in _by_type(records, policy).items():
        size = learned.sizes.get(declared.name)
        dispatch = dispatch_of_type(declared, policy)
        if size is None or not holds(size, declared, policy, settings.run.slots):
            size = TypeSize(of=declared.needs, dispatch=dispatch)
        applies = policy.rightsize is Rightsize.APPLY
        needs = size.needs if applies else JobNeeds()
        sized = Sized(of=size.of, dispatch=dispatch, needs=needs)
        is_declared = declared in policy.types
        given = settle(declared.name if is_declared else "", None, policy, sized).needs
        jobs = len({record.job_id for record in own})
        is_known = size.advised != JobNeeds() and not are_few(jobs)
        wanted = _as_asked(size.advised, declared.needs)
        advised = settle(declared.name, wanted, policy).needs if is_known else JobNeeds()
        seen = [one for record in own if (one := seen_attempt(record)[1]) is not None]
        dollars = sum(record.dollars for record in own) / months

        def cost(
            needs: JobNeeds,
            given: JobNeeds = given,
            dollars: float = dollars,
            dispatch: Dispatch = dispatch,
        ) -> float | None:
            if catalogue is None:
                return None
            here, there = (
                list_price(shape_of(each, dispatch), settings, catalogue, policy.shared_slots)
                for each in (given, needs)
            )
            return None if here is None or there is None else dollars * there / here

        held = sum(one.seconds for one in seen if one.cores is not None)
        spent = sum((one.cores or 0.0) * one.seconds for one in seen)
        yield TypeSizing(
            name=declared.name,
            is_declared=is_declared,
            jobs=jobs,
            asked=declared.needs,
            used=JobNeeds(
                memory_gib=max(
                    (one.memory_gib for one in seen if one.memory_gib is not None), default=None
                ),
                gpu_memory_gib=max(
                    (one.vram_gib for one in seen if one.vram_gib is not None), default=None
                ),
            ),
            cores=spent / held if held else None,
            given=given,
            advised=advised,
            hours={int(hour): gib for hour, gib in size.hours.items()},
            dollars=dollars,
            dollars_asked=cost(declared.needs),
            dollars_advised=cost(advised) if is_known else None,
            reasons=size.reasons if applies else (),
            dispatch=dispatch,
            # Nobody could choose another for what is declared no more.
            dispatches=_compare(own, given, known) if is_declared or not declared.name else (),
        )


def _as_asked(advised: JobNeeds, asked: JobNeeds) -> JobNeeds:
    """Return what is advised; what is asked for stays where its size is the one that is advised.

    Sizes are on a scale, to which what people ask for is rounded up: beyond what jobs may ask for.
    """
    same = {
        need: value
        for need in LEARNED
        if (value := getattr(asked, need)) is not None
        and getattr(advised, need) == size_up(need, value)
    }
    return replace(advised, **same)


def _compare(
    records: Sequence[UsageRecord],
    given: JobNeeds,
    known: RightsizingInput,
) -> tuple[DispatchCost, ...]:
    """Return what each way to dispatch these jobs would have cost, at the prices listed.

    Side by side a job needs what it is given of one machine, or the most that was seen.
    """
    settings, policy, catalogue = known.settings, known.policy, known.catalogue
    if catalogue is None:
        return ()
    beside = needs_beside_others(records, given, policy.shared_slots)
    gpus = max(1.0, settings.requirements.gpu_count_min, shape_of(given).gpus)
    pool = replace(policy, dispatch=Dispatch.POOL)
    terms = MachineTerms(
        alone=list_price(shape_of(given), settings, catalogue),
        shared=None
        if beside is None
        else list_price(
            shape_of(beside, Dispatch.SHARED), settings, catalogue, policy.shared_slots
        ),
        pool_slots=slot_count(gpus, settings.run.slots),
        shared_slots=policy.shared_slots,
        boot=boot_p50(known.knowledge, policy),
        idle=idle_timeout(known.knowledge, pool),
        start_within=policy.start_within,
    )
    jobs = [
        PastJob(at=record.started_at, took=timedelta(seconds=record.seconds)) for record in records
    ]
    return compare_dispatches(jobs, terms)


def needs_beside_others(
    records: Sequence[UsageRecord], given: JobNeeds, slots: int
) -> JobNeeds | None:
    """Return what one of several jobs on a machine needs; None: it is not known.

    Nor is it known how long jobs would take whose GPU has no time for others.

    Args:
        records: of the jobs.
        given: what they are given of one machine; what is left out there is what was seen.
        slots: jobs side by side.
    """
    memory, vcpus = given.memory_gib, given.vcpus
    if memory is None:
        memory = max((x.memory_max for x in records if x.memory_max is not None), default=None)
    if vcpus is None:
        cores = (math.ceil(one.cpu_p95) for one in records if one.cpu_p95 is not None)
        vcpus = max(cores, default=None)
    if memory is None or vcpus is None:
        return None
    needs = replace(given, memory_gib=memory, vcpus=vcpus)
    of_gpu = [one for one in records if one.gpu_count and one.vram_max != 0.0]
    if not of_gpu:
        return needs
    vram = max((one.vram_max or 0.0) / max(one.gpu_count, 1.0) for one in of_gpu)
    busy = [100.0 if one.gpu_mean is None else one.gpu_mean for one in of_gpu]
    if not vram or max(busy) * slots > _WHOLE:
        return None
    return replace(needs, gpus=given.gpus or 1, gpu_memory_gib=given.gpu_memory_gib or vram)


#: Percent.
_WHOLE = 100.0
_DAY = 86400.0
_MONTH = HOURS_PER_MONTH * 3600.0


def _use(record: UsageRecord) -> JobUse:
    """Return a record in cores and MiB."""

    def mib(gib: float | None, over: float = 1.0) -> float | None:
        return None if gib is None else gib * _MIB_PER_GIB / over

    def share(used: float | None, whole: float | None) -> float | None:
        return None if used is None or not whole else 100.0 * used / whole

    # A GPU that slots share has all of its memory for each.
    gpus = max(record.gpu_count, 1.0)
    return JobUse(
        seconds=record.seconds,
        cpu_mean=record.cpu_mean,
        cpu_max=record.cpu_max,
        memory_mib_mean=mib(record.memory_mean),
        memory_mib_max=mib(record.memory_max),
        memory_share_max=share(record.memory_max, record.memory_gib),
        vram_mib_mean=mib(record.vram_mean, gpus),
        vram_mib_max=mib(record.vram_max, gpus),
        vram_share_max=share(record.vram_max, record.vram_gib),
        gpu_mean=record.gpu_mean,
    )


_MIB_PER_GIB = 1024.0


def _best(
    workload: str, ports: ControlPorts, requirements: InstanceRequirements | None = None
) -> Candidate | None:
    if requirements is not None:
        settings = _Loosened(ports.settings, requirements)
        ports = replace(ports, settings=settings, cache=Cache())
    return plan_next_tick(workload, ports).candidates.best


@dataclass(frozen=True, slots=True)
class _Loosened:
    """The settings of a deployment whose workloads require something else."""

    settings: SettingsStore
    requirements: InstanceRequirements

    def deployment(self) -> DeploymentSettings:
        return self.settings.deployment()

    def workload(self, name: str) -> tuple[WorkloadSettings, LiveEdit | None]:
        deployed, edit = self.settings.workload(name)
        return replace(deployed, requirements=self.requirements), edit

    def put_live(self, name: str, text: str) -> int:
        return self.settings.put_live(name, text)

    def history(self, name: str) -> Sequence[LiveEdit]:
        return self.settings.history(name)
