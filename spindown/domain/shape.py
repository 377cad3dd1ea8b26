"""Which shape of machine a job goes to, and so which queue: by its needs, each on a fixed scale.

A workload that declares types has one queue for each shape. Only needs that a message or its type
states make the shape: what the workload itself requires holds for every machine that it buys, so
the shape of a job that states nothing is ``Shape()``. ``settle`` joins what the message, its type
and what was learned say of memory, VRAM and cores, and judges that by the workload's ceilings
(``requirements_at_most``).

Also decided in: ``rightsizing`` (what is learned), ``out_of_memory`` (the next size after it).
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from spindown.domain.offer import InstanceRequirements, InstanceType
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.requirement import misfit

#: Need -> the sizes that a shape may have of it. Between two powers of two lies at most one more,
#: since machines are sold so; VRAM has the sizes of GPUs that are sold, as EC2 tells them, rounded
#: down to a GiB. No machine that is sold has more than the last size.
SCALES: Mapping[str, tuple[int, ...]] = {
    "vcpus": (0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512),
    "memory_gib": (
        *(0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512),
        *(768, 1024, 1536, 2048, 3072, 4096, 6144, 8192),
    ),
    "gpus": (0, 1, 2, 4, 8, 16),
    "gpu_memory_gib": (
        *(0, 2, 4, 5, 6, 8, 11, 12, 15, 16, 20, 22, 24, 32, 40, 44, 48),
        *(64, 80, 96, 128, 141, 179, 192, 256, 268, 288),
    ),
}
_MIB_PER_GIB = 1024
#: How many times its own price the machine of a job may cost that is given another size.
DEARER_AT_MOST = 2.0
#: How an architecture is written in a name.
_ARCHITECTURES = {"x86_64": "x", "arm64": "a"}
_DISPATCHES = {Dispatch.DEDICATED: "d", Dispatch.SHARED: "s"}
_NAME = re.compile(r"c(\d{1,3})m(\d{1,4})(?:g(\d{1,2})v(\d{1,3}))?([xa]?)([ds]?)")


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Shape:
    """What machines of one queue have at least for a job; 0 and "": what the workload requires."""

    vcpus: int = 0
    memory_gib: int = 0
    gpus: int = 0
    #: Of one GPU.
    gpu_memory_gib: int = 0
    #: The only architecture that will do; "": any that the workload allows.
    architecture: str = ""
    #: How its jobs come to machines.
    dispatch: Dispatch = Dispatch.POOL

    @property
    def name(self) -> str:
        """Return its name, by which its queue is called: ``c4m16``, ``c8m32g1v22xd``.

        At most 18 characters, so that a queue's name keeps to the 80 that SQS allows.
        """
        gpu = f"g{self.gpus}v{self.gpu_memory_gib}" if self.gpus or self.gpu_memory_gib else ""
        letters = _ARCHITECTURES.get(self.architecture, "") + _DISPATCHES.get(self.dispatch, "")
        return f"c{self.vcpus}m{self.memory_gib}{gpu}{letters}"

    def covers(self, other: "Shape") -> bool:
        """Tell whether a machine of this shape can do what another shape is asked for."""
        is_as_large = all(getattr(self, need) >= getattr(other, need) for need in SCALES)
        is_same = self.dispatch is other.dispatch
        return is_as_large and is_same and other.architecture in {"", self.architecture}


def parse_shape(name: str) -> Shape | None:
    """Return the shape of a name; None: it is none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    vcpus, memory, gpus, vram = (int(text or 0) for text in found.groups()[:4])
    letters = {letter: architecture for architecture, letter in _ARCHITECTURES.items()}
    dispatches = {letter: dispatch for dispatch, letter in _DISPATCHES.items()}
    shape = Shape(
        vcpus=vcpus,
        memory_gib=memory,
        gpus=gpus,
        gpu_memory_gib=vram,
        architecture=letters.get(found[5], ""),
        dispatch=dispatches.get(found[6], Dispatch.POOL),
    )
    return shape if shape.name == name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledNeeds:
    """What a message comes to: its needs and their shape, or why it may not be done."""

    needs: JobNeeds = field(default_factory=JobNeeds)
    shape: Shape = field(default_factory=Shape)
    #: NO_REASON: it may.
    rejected: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """What jobs of a type get that is other than their type says (``rightsizing.type_size``)."""

    #: The needs of the type as they stood, and how its jobs came to machines: once people change
    #: either, their word counts.
    of: JobNeeds
    dispatch: Dispatch = Dispatch.POOL
    #: Learned sizes that replace those of `of`; a field that is None: unchanged.
    needs: JobNeeds = field(default_factory=JobNeeds)
    reasons: tuple[Reason, ...] = ()


def settle(
    type_name: str, asked: JobNeeds | None, policy: Policy, sized: Sized | None = None
) -> SettledNeeds:
    """Settle what a job needs by its type, what is learned of it and what its message asks for.

    What the message asks for takes the place of what its type says. It may ask for less than that,
    and for more up to ``requirements_at_most``; where that says nothing, for no more. What is
    learned takes the place of what the type says, within the same ceilings.

    Args:
        type_name: the message's ``type``; "": it has none.
        asked: its ``requirements``; None: it has none.
        policy: the types, and the ceilings.
        sized: what is learned of the type; None: nothing.
    """
    if not policy.types and (type_name or asked is not None):
        named = "type" if type_name else "requirements"
        return SettledNeeds(rejected=Reason(ReasonCode.NO_TYPES, {"field": named}))
    declared = {each.name: each for each in policy.types}
    if type_name and type_name not in declared:
        about = {"type": type_name, "known": ", ".join(sorted(declared))}
        return SettledNeeds(rejected=Reason(ReasonCode.TYPE_UNKNOWN, about))
    declared_type = declared.get(type_name, JobType(name=""))
    usual, asked = declared_type.needs, asked or JobNeeds()
    dispatch = dispatch_of_type(declared_type, policy)
    if sized is not None and sized.dispatch is not dispatch:
        sized = None
    needs = _instead(_resized(usual, sized, policy.requirements_at_most), asked)
    rejected = _above(asked, usual, policy.requirements_at_most) or _beyond_scale(needs)
    if rejected:
        return SettledNeeds(rejected=rejected)
    return SettledNeeds(needs=needs, shape=shape_of(needs, dispatch))


def dispatch_of_type(job_type: JobType, policy: Policy) -> Dispatch:
    """Return how jobs of a type come to machines: as it says, or as the workload does."""
    return job_type.dispatch or policy.dispatch


def jobs_at_once(dispatch: Dispatch, shared_slots: int) -> int:
    """Return how many jobs a machine is bought for."""
    return shared_slots if dispatch is Dispatch.SHARED else 1


def declared_shapes(policy: Policy) -> frozenset[str]:
    """Return the names of shapes of jobs that ask for nothing beside their types, as declared."""
    return frozenset(
        shape_of(each.needs, dispatch_of_type(each, policy)).name for each in policy.types
    )


def own_shapes(
    policy: Policy, sized: Mapping[str, Iterable[Sized]] = MappingProxyType({})
) -> frozenset[Shape]:
    """Return the shapes of jobs that ask for nothing beside their types: no sender made them up.

    Args:
        policy: the types, and the ceilings.
        sized: type -> what its jobs get by what is learned.
    """
    return frozenset(
        settle(each.name, None, policy, one).shape
        for each in (JobType(name=""), *policy.types)
        for one in (None, *sized.get(each.name, ()))
    )


def own_shape(policy: Policy) -> Shape:
    """Return the shape of jobs that state no needs."""
    return Shape(dispatch=policy.dispatch)


def of_dispatch(policy: Policy, shape: str) -> Policy:
    """Return a policy as the machines of a shape follow it; "": those of no shape.

    Args:
        policy: of the workload.
        shape: its name, as the tag of an instance has it.
    """
    known = parse_shape(shape)
    if known is None or known.dispatch is policy.dispatch:
        return policy
    return replace(policy, dispatch=known.dispatch)


def slots_of(policy: Policy, usual: str) -> str:
    """Return how many slots machines have, as ``domain.offer.slot_count`` takes it."""
    match policy.dispatch:
        case Dispatch.POOL:
            return usual
        case Dispatch.DEDICATED:
            return "per-instance"
        case Dispatch.SHARED:
            return str(policy.shared_slots)


def pool_slots(dispatch: Dispatch, run_slots: str) -> str:
    """Return how many slots a machine of a pool has, as people have set it; "": it is of none."""
    return run_slots if dispatch is Dispatch.POOL else ""


def _resized(usual: JobNeeds, sized: Sized | None, most: JobNeeds) -> JobNeeds:
    """Return what is learned instead of what a type says, within its ceilings."""
    if sized is None or sized.of != usual:
        return usual
    bounds = {
        name: most_of(name, usual, most)
        for name in _NUMBERS
        if getattr(sized.needs, name) is not None
    }
    learned = {name: min(getattr(sized.needs, name), bound) for name, bound in bounds.items()}
    return _instead(usual, JobNeeds(**learned))


def _instead(usual: JobNeeds, other: JobNeeds) -> JobNeeds:
    """Return needs with what others say in their place."""
    said = {
        f.name: value for f in fields(JobNeeds) if (value := getattr(other, f.name)) is not None
    }
    return replace(usual, **said)


def shape_of(needs: JobNeeds, dispatch: Dispatch = Dispatch.POOL) -> Shape:
    """Return the smallest shape on the scale that meets some needs."""
    architectures = needs.architectures or frozenset()
    sizes = {need: size_up(need, getattr(needs, need)) for need in SCALES}
    if sizes["gpu_memory_gib"]:
        # VRAM without a GPU is that of one.
        sizes["gpus"] = max(sizes["gpus"], 1)
    only = min(architectures) if len(architectures) == 1 else ""
    return Shape(**sizes, architecture=only, dispatch=dispatch)


def size_up(need: str, value: float | None) -> int:
    """Return the least size of a scale that is no less; the last one of what is beyond it."""
    scale = SCALES[need]
    return scale[min(bisect_left(scale, value or 0), len(scale) - 1)]


def is_possible(shape: Shape, policy: Policy, of: Collection[str] = ("",)) -> bool:
    """Tell whether a job may come to a shape by a policy; without types none does.

    Args:
        shape: of a queue.
        policy: in force.
        of: the types of the jobs that came there, "" for none: those alone that are not declared
            any more have all to be routed again.
    """
    types = (JobType(name=""), *policy.types) if policy.types else ()
    return not {each.name for each in types}.isdisjoint(of) and any(
        replace(
            largest_of(each.name, policy),
            architecture=shape.architecture,
            dispatch=dispatch_of_type(each, policy),
        ).covers(shape)
        for each in types
    )


def largest_of(name: str, policy: Policy) -> Shape:
    """Return the largest shape of jobs of a type: what it needs, or the ceiling."""
    usual = next((each.needs for each in policy.types if each.name == name), JobNeeds())
    most = policy.requirements_at_most
    return shape_of(JobNeeds(**{need: most_of(need, usual, most) for need in _NUMBERS}))


def requirements_of(
    shape: Shape, workload: InstanceRequirements, shared_slots: int = 1
) -> InstanceRequirements:
    """Return what a machine of a shape must have: what the workload requires, and what it says.

    One that jobs share has so much for each of them. A GPU is shared by its VRAM: where a job says
    how much it needs of it, one GPU may serve several; else each job has its own.

    Where the workload requires no GPU, a shape with vCPUs and no GPU is for work that vCPUs do. A
    machine with a GPU would be ranked by that: sixteen SQL jobs an hour on a T4 at three times the
    price of the vCPUs that do the same.
    """
    jobs = jobs_at_once(shape.dispatch, shared_slots)
    vram = shape.gpu_memory_gib * _MIB_PER_GIB
    is_spread = shape.gpus == 1 and vram > 0
    gpus = shape.gpus if is_spread else jobs * shape.gpus
    is_without_gpu = workload.allows_no_gpu and shape.vcpus > 0 and shape.gpus == 0
    return replace(
        workload,
        gpu_count_max=0.0 if is_without_gpu else workload.gpu_count_max,
        vcpus_min=max(workload.vcpus_min, jobs * shape.vcpus),
        memory_mib_min=max(workload.memory_mib_min, jobs * shape.memory_gib * _MIB_PER_GIB),
        gpu_count_min=max(workload.gpu_count_min, float(gpus)),
        gpu_memory_mib_min=max(workload.gpu_memory_mib_min, vram),
        gpu_jobs=jobs if is_spread else 1,
        gpu_memory_mib_each=vram,
        architectures=(
            workload.architectures & {shape.architecture}
            if shape.architecture
            else workload.architectures
        ),
    )


def distinct_sizes(
    workload: InstanceRequirements, sold: Mapping[InstanceType, float]
) -> Mapping[InstanceType, float]:
    """Return the types that a workload may have, one of each size: the one that costs least.

    A shape asks for sizes and an architecture only. So ``price_of`` and ``why_not_sold`` say of
    these what they say of all types, and look at 44 to 184 in place of 1,261.

    Args:
        workload: what its machines must have.
        sold: the types of instances on sale, and USD per hour of each.
    """
    found: dict[tuple[Any, ...], tuple[InstanceType, float]] = {}
    for kind, price in sold.items():
        if misfit(kind, workload) is None:
            cores = kind.vcpus, kind.memory_mib, kind.architecture
            size = (*cores, kind.gpu_count, kind.gpu_memory_mib, kind.is_without_gpu)
            if size not in found or price < found[size][1]:
                found[size] = kind, price
    return dict(found.values())


def price_of(
    shape: Shape,
    workload: InstanceRequirements,
    shared_slots: int,
    sold: Mapping[InstanceType, float],
) -> float:
    """Return USD per hour of the cheapest machine of a shape, as listed; infinity: unknown."""
    wanted = requirements_of(shape, workload, shared_slots)
    fitting = (price for kind, price in sold.items() if misfit(kind, wanted) is None)
    return min(fitting, default=math.inf)


def size_on_sale(
    shape: Shape,
    largest: Shape,
    workload: InstanceRequirements,
    shared_slots: int,
    sold: Mapping[InstanceType, float],
    within_reach: Collection[InstanceType] = (),
) -> Shape:
    """Return the size of a machine for a shape that covers it and as many others as can be.

    It is the cheapest machine, or one that may be had at up to ``DEARER_AT_MOST`` times its price.
    So however many shapes there are, these are few. Where no machine is known that fits, it is the
    most that may be asked for, of what the shape asks for.

    Args:
        shape: that a job needs.
        largest: what it may ask for.
        workload: what its machines must have.
        shared_slots: jobs for which a shared machine is bought.
        sold: the types of instances on sale, and USD per hour of each.
        within_reach: those of them that quotas and ceilings allow at that price.
    """
    wanted = requirements_of(shape, workload, shared_slots)
    fitting = [kind for kind in sold if misfit(kind, wanted) is None]
    cheapest = min(fitting, key=lambda kind: (sold[kind], kind.name), default=None)
    near = [
        kind
        for kind in fitting
        if cheapest is None
        or kind is cheapest
        or (kind in within_reach and sold[kind] <= DEARER_AT_MOST * sold[cheapest])
    ]

    def reach(kind: InstanceType) -> tuple[int, float, str]:
        smaller = sum(all(has(kind) >= has(other) for has in _HAS.values()) for other in sold)
        return smaller, -sold[kind], kind.name

    chosen = max(near, key=reach, default=None)

    def is_had(other: Shape) -> bool:
        required = requirements_of(other, workload, shared_slots)
        return chosen is None or misfit(chosen, required) is None

    for need in ("gpus", "gpu_memory_gib", "vcpus", "memory_gib"):
        asked = getattr(shape, need)
        if asked or (chosen and (shape.gpus or need != "gpu_memory_gib")):
            sizes = (x for x in reversed(SCALES[need]) if asked < x <= getattr(largest, need))
            shape = next((y for x in sizes if is_had(y := _with(shape, need, x))), shape)
    return shape


def why_unmet(needs: JobNeeds, workload: InstanceRequirements, disk_gib: float) -> Reason:
    """Return what no machine of a workload has, whatever is bought; NO_REASON: nothing.

    ``disk_gib`` is what a machine has for each job that it does at once (``disk_of_each``).
    """
    known, most = workload.architectures, workload.gpu_count_max
    if needs.architectures is not None and not needs.architectures & known:
        asked = ", ".join(sorted(needs.architectures))
        bound = ", ".join(sorted(known))
        return _too_much("architectures", asked, bound, "requirements.architectures")
    if most is not None and shape_of(needs).gpus > most:
        return _too_much("gpus", shape_of(needs).gpus, most, "requirements.gpu_count_max")
    if needs.disk_gib is not None and needs.disk_gib > disk_gib:
        return _too_much("disk_gib", needs.disk_gib, disk_gib, "image.root_volume_gib")
    return NO_REASON


def unmet_types(
    policy: Policy, workload: InstanceRequirements, root_volume_gib: int
) -> Iterator[tuple[JobType, Reason]]:
    """Yield the types of jobs that no machine of a workload can do, and why."""
    for each in policy.types:
        disk_gib = disk_of_each(root_volume_gib, dispatch_of_type(each, policy), policy)
        unmet = why_unmet(each.needs, workload, disk_gib)
        if unmet:
            yield each, unmet


def disk_of_each(root_volume_gib: int, dispatch: Dispatch, policy: Policy) -> float:
    """Return GiB of the root volume for each of the jobs that a machine does at once."""
    return root_volume_gib / jobs_at_once(dispatch, policy.shared_slots)


def why_not_sold(
    shape: Shape, workload: InstanceRequirements, shared_slots: int, sold: Collection[InstanceType]
) -> Reason:
    """Return in what a shape is larger than any machine on sale; NO_REASON: it is not.

    What is sold and may not be had now, by price, quota or region, is no reason: that may change.
    Nor is it one of the shape that no machine meets what the workload itself requires.
    """
    jobs = jobs_at_once(shape.dispatch, shared_slots)

    def fitting(other: Shape) -> Iterator[InstanceType]:
        wanted = requirements_of(other, workload, shared_slots)
        return (kind for kind in sold if misfit(kind, wanted) is None)

    any_size = Shape(dispatch=shape.dispatch)
    if any(fitting(shape)) or not any(fitting(any_size)):
        return NO_REASON
    asked = {need: size for need in SCALES if (size := getattr(shape, need))}
    # What goes with all the rest tells more; of needs that rule each other out nothing does.
    beside = ((need, _with(shape, need, 0)) for need in asked)
    alone = ((need, any_size) for need in asked)
    for need, other in chain(beside, alone):
        # For each job; 0: no machine fits.
        most = max((_HAS[need](kind) / jobs for kind in fitting(other)), default=0.0)
        if 0.0 < most < asked[need]:
            about: About = {"field": need, "asked": asked[need], "most": most, "slots": jobs}
            return Reason(ReasonCode.NO_SUCH_SIZE, {**about, "shape": shape.name})
    about = {"field": "architectures", "asked": shape.architecture or "any", "most": "another"}
    return Reason(ReasonCode.NO_SUCH_SIZE, {**about, "shape": shape.name})


def as_asked(rejected: Reason, needs: JobNeeds) -> Reason:
    """Return why a size is not sold, with the number of its need before it was rounded up."""
    given = getattr(needs, str(rejected.about.get("field")), None)
    if rejected.code is not ReasonCode.NO_SUCH_SIZE or isinstance(given, frozenset | None):
        return rejected
    return replace(rejected, about={**rejected.about, "given": given})


def _with(shape: Shape, need: str, size: int) -> Shape:
    given: dict[str, Any] = {need: size}
    return replace(shape, **given)


#: Need -> how much a machine has of it.
_HAS: Mapping[str, Callable[[InstanceType], float]] = {
    "vcpus": lambda kind: kind.vcpus,
    "memory_gib": lambda kind: kind.memory_mib / _MIB_PER_GIB,
    "gpus": lambda kind: kind.gpu_count,
    "gpu_memory_gib": lambda kind: kind.gpu_memory_mib / _MIB_PER_GIB,
}

#: Needs that are numbers: a larger one asks for more.
_NUMBERS = tuple(f.name for f in fields(JobNeeds) if f.name != "architectures")


def _above(asked: JobNeeds, usual: JobNeeds, most: JobNeeds) -> Reason:
    """Return which ceiling a message is above; NO_REASON: none."""
    for name in _NUMBERS:
        value, bound = getattr(asked, name), most_of(name, usual, most)
        if value is not None and value > bound:
            return _too_much(name, value, bound, f"policy.requirements_at_most.{name}")
    return NO_REASON


def most_of(name: str, usual: JobNeeds, most: JobNeeds) -> Any:
    """Return the most that a message of a type may ask for."""
    return max(getattr(usual, name) or 0, getattr(most, name) or 0)


def _beyond_scale(needs: JobNeeds) -> Reason:
    """Return what is beyond any machine that is sold; NO_REASON: nothing."""
    for name, scale in SCALES.items():
        value = getattr(needs, name)
        if value is not None and value > scale[-1]:
            return _too_much(name, value, scale[-1])
    return NO_REASON


def _too_much(name: str, asked: str | float, most: str | float, setting: str = "") -> Reason:
    """Return that more is asked for than may be; "": no setting of the workload bounds it."""
    about: About = {"field": name, "asked": asked, "most": most}
    if setting:
        about = {**about, "setting": setting}
    return Reason(ReasonCode.REQUIREMENT_FORBIDDEN, about)
