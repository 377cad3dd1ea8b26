"""Learn how large jobs of each type are, from what workers have measured since the last hour.

Each run folds the records written since the last one into the history of their type, has
``domain.rightsizing.type_size`` decide anew, and writes both as one object. A run that fails leaves
the object as it was, and the next one reads the same records. What workers write is read as hostile
(``control.usage``).
"""

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from spindown.contract.learned_size import LearnedSizes, decode_sizes, encode_sizes, sizes_key
from spindown.contract.settings import WorkloadSettings
from spindown.contract.usage import UsageEnd, UsageRecord
from spindown.control.market import current_offers, holdable_types, load_catalogue
from spindown.control.policy_edit import current_policy
from spindown.control.usage import ReadBounds, ReadTo, read_written
from spindown.domain.account_pricing import open_to_paid
from spindown.domain.offer import Catalogue, InstanceType, trusted
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy, Rightsize
from spindown.domain.requirement import misfit
from spindown.domain.rightsizing.type_size import (
    LEARNED,
    MEMORY,
    VCPUS,
    VRAM,
    SeenAttempt,
    SizeInForce,
    SizeRange,
    TypeHistory,
    TypeSize,
    begin,
    decide,
    holds,
    learn,
)
from spindown.domain.shape import (
    SCALES,
    Shape,
    dispatch_of_type,
    jobs_at_once,
    most_of,
    parse_shape,
    pool_slots,
    requirements_of,
    shape_of,
    size_up,
)
from spindown.domain.wasted_work import is_ever_allowed
from spindown.error import ContractError, NotFound, SpindownError
from spindown.port import ControlPorts, ObjectStore

#: An object may be listed a little later than S3 says that it was written.
_SETTLED_AFTER = timedelta(minutes=1)
#: How far back a first run looks, or one after a long silence.
_BACK_AT_MOST = timedelta(days=2)
#: Of one workload and run.
_BOUNDS = ReadBounds(objects=5_000, bytes=128 * 1024 * 1024, records=20_000)
_MIB_PER_GIB = 1024.0
_SECONDS_PER_HOUR = 3600.0
_ENDED = frozenset({UsageEnd.COMPLETED, UsageEnd.FAILED})
_log = logging.getLogger(__name__)


def learn_sizes(
    workload: str, ports: ControlPorts, *, has_time: Callable[[], bool] = lambda: True
) -> Mapping[str, Sequence[str]]:
    """Learn the sizes of one workload's types; return the codes of what has changed, by type.

    What there is no time to read is for the next call.
    """
    deployed, _ = ports.settings.workload(workload)
    if not deployed.policy.types:
        return {}
    settings, policy = current_policy(workload, ports)
    if policy.rightsize is Rightsize.OFF:
        return {}
    known, now = _read_known(workload, ports.objects), ports.clock.now()
    until = now - _SETTLED_AFTER
    since = ReadTo(now - _BACK_AT_MOST)
    if known.read_to is not None:
        since = max(since, ReadTo(known.read_to, known.read_key))
    seen, end = read_written(
        workload,
        ports.objects,
        seen_attempt,
        since=since,
        until=until,
        bounds=_BOUNDS,
        has_time=has_time,
    )
    catalogue = load_catalogue(ports.objects)
    quotas = trusted(catalogue, now).quotas if catalogue else {}
    learned = learn_types(
        known,
        seen,
        settings,
        policy,
        catalogue,
        now,
        holdable=holdable_types(catalogue, quotas, settings, policy),
        buyable=_buyable(quotas, settings, policy, ports, now),
    )
    if end.key:
        _log.warning("sizes_read_later: %s: what was written after %s", workload, end.at)
    data = encode_sizes(replace(learned, read_to=end.at, read_key=end.key))
    # What cannot be read again would take all that was learned with it; so nothing is written.
    decode_sizes(data)
    ports.objects.put(sizes_key(workload), data)
    return {
        name: [reason.code.value for reason in size.reasons]
        for name, size in learned.sizes.items()
        if name not in known.sizes or known.sizes[name].needs != size.needs
        if size.reasons
    }


def read_learned(workload: str, objects: ObjectStore) -> LearnedSizes:
    """Return what is learned; nothing, if this version can read none."""
    try:
        return decode_sizes(objects.get(sizes_key(workload)).data)
    except (NotFound, ContractError):
        return LearnedSizes()


def _read_known(workload: str, objects: ObjectStore) -> LearnedSizes:
    """Return what is learned; of what this version cannot read nothing is left, which is told."""
    try:
        return decode_sizes(objects.get(sizes_key(workload)).data)
    except NotFound:
        return LearnedSizes()
    except ContractError as exc:
        _log.warning("sizes_not_read: %s", exc)
        return LearnedSizes()


def _buyable(
    quotas: Mapping[str, float],
    settings: WorkloadSettings,
    policy: Policy,
    ports: ControlPorts,
    now: datetime,
) -> Collection[str] | None:
    """Return the types of instances that may be bought at present prices; None: not known."""
    if policy.rightsize is not Rightsize.APPLY:
        return None
    home = ports.deployment().region
    opened = open_to_paid(policy, settings.pricing, settings.run.root_volume_gib)
    try:
        found = current_offers(settings, policy, home_region=home, ports=ports, now=now).offers
    except SpindownError as exc:
        _log.warning("prices_not_read: %s", exc)
        return None
    return frozenset(
        offer.instance_type.name
        for offer in found
        if (policy.regions is None or offer.region in policy.regions)
        and offer.instance_price > 0.0
        and offer.instance_type.vcpus <= quotas.get(offer.quota_class, math.inf)
        and is_ever_allowed(opened, offer.capacity_type, offer.price, offer.instance_type.gpu_count)
    )


def learn_types(
    known: LearnedSizes,
    seen: Sequence[tuple[str, SeenAttempt | None]],
    settings: WorkloadSettings,
    policy: Policy,
    catalogue: Catalogue | None,
    now: datetime,
    *,
    holdable: Collection[str] | None = None,
    buyable: Collection[str] | None = None,
) -> LearnedSizes:
    """Return what is learned with further attempts: of the types that there are, and no other.

    Args:
        known: what was learned before.
        seen: type and attempt.
        settings: of the workload.
        policy: in force.
        catalogue: what is sold; None: not known.
        now: the present.
        holdable: the types of instances of which the account's quotas hold one; None: not known.
        buyable: of these, those that may be bought at present prices; None: not known.
    """
    sizes: dict[str, TypeSize] = {}
    histories: dict[str, TypeHistory] = {}
    applies = policy.rightsize is Rightsize.APPLY
    price = _highest_price(catalogue)
    sold = None if catalogue is None else _of_kinds(catalogue, holdable)
    for declared in policy.types:
        history = known.histories.get(declared.name)
        slots = settings.run.slots
        if history is None or not holds(history, declared, policy, slots):
            dispatch = dispatch_of_type(declared, policy)
            history = begin(declared.needs, now, dispatch, pool_slots(dispatch, slots))
        own = [
            _within(one, policy.max_lifetime + policy.lifetime_grace, price)
            for name, one in seen
            if name == declared.name and one is not None
        ]
        history = learn(history, own, now)
        before = known.sizes.get(declared.name)
        is_known = before is not None and holds(before, declared, policy, slots)
        beside = _least_of(before) if before is not None and is_known else JobNeeds()
        ranges = ranges_of(declared, beside, settings, policy, catalogue)
        if applies and sold is not None:
            ranges = _sold_together(
                ranges, declared, history.sizes, settings, policy, sold, buyable
            )
        histories[declared.name], sizes[declared.name] = decide(
            history, ranges, now, applies=applies
        )
    return LearnedSizes(read_to=now, sizes=sizes, histories=histories)


def _within(one: SeenAttempt, lifetime: timedelta, price: float) -> SeenAttempt:
    """Return an attempt that takes and costs no more than can be.

    Args:
        one: as a worker says.
        lifetime: the longest that a machine lives.
        price: USD per hour of the most expensive machine.
    """
    seconds = min(one.seconds, lifetime.total_seconds())
    cores = None if one.cores is None else min(one.cores, float(SCALES[VCPUS][-1]))
    dollars = min(one.dollars, price * seconds / _SECONDS_PER_HOUR)
    return replace(one, seconds=seconds, cores=cores, dollars=dollars)


def _highest_price(catalogue: Catalogue | None) -> float:
    """Return USD per hour of the most expensive machine; if none is known, infinity."""
    listed = catalogue.on_demand.values() if catalogue else ()
    return max((price for prices in listed for price in prices.values()), default=math.inf)


def seen_attempt(record: UsageRecord) -> tuple[str, SeenAttempt | None]:
    """Return the type of an attempt, and it as the machine had to bear it: by all slots at once.

    Of a machine that jobs share only the job's own part counts: the shape is of one job. A job that
    failed, or of which every item did, says nothing of how much those need that go well. None: its
    machine had no shape.
    """
    shape = parse_shape(record.shape)
    if shape is None:
        return record.type, None
    slots = 1 if shape.dispatch is Dispatch.SHARED else record.slots
    is_useless = record.end is UsageEnd.FAILED or 0 < record.items <= record.items_failed
    seen = SeenAttempt(
        at=record.routed_at or record.started_at,
        shape=shape,
        vcpus=record.vcpus * slots,
        cores=None if record.cpu_mean is None else record.cpu_mean * slots,
        memory_gib=None if record.memory_max is None or is_useless else record.memory_max * slots,
        vram_gib=None
        if record.vram_max is None or is_useless
        else record.vram_max / max(record.gpu_count, 1.0),
        seconds=record.seconds,
        dollars=record.dollars,
        items=float(record.items),
        ends_job=record.end in _ENDED,
        has_failed=is_useless,
        ran_out=record.end is UsageEnd.OUTGROWN,
        ran_out_of_vram=record.end is UsageEnd.OUTGROWN_GPU,
        stated=frozenset(record.stated.split()),
    )
    return record.type, seen


def ranges_of(
    declared: JobType,
    beside: JobNeeds,
    settings: WorkloadSettings,
    policy: Policy,
    catalogue: Catalogue | None,
) -> Mapping[str, SizeRange]:
    """Return between which sizes each need of a type may move, and what each size costs.

    Each need is priced on machines that have the others at the sizes of ``beside``. The least is
    what the workload requires of all machines, the most what a message of the type may ask for.
    """
    of, others, wanted = declared.needs, shape_of(beside), settings.requirements
    shape = replace(
        shape_of(of),
        memory_gib=others.memory_gib,
        gpu_memory_gib=others.gpu_memory_gib,
        vcpus=others.vcpus,
        dispatch=dispatch_of_type(declared, policy),
    )
    floors = {
        MEMORY: wanted.memory_mib_min / _MIB_PER_GIB,
        VRAM: wanted.gpu_memory_mib_min / _MIB_PER_GIB,
        VCPUS: wanted.vcpus_min,
    }

    def least(need: str) -> int:
        asked, floor = getattr(of, need), size_up(need, max(floors[need], 1.0))
        return min(floor, size_up(need, asked)) if asked else 0

    return {
        need: SizeRange(
            need=need,
            least=least(need),
            most=size_up(need, most_of(need, of, policy.requirements_at_most)),
            stated=size_up(need, getattr(of, need)),
            prices=_prices(need, shape, settings, catalogue, policy.shared_slots),
        )
        for need in LEARNED
    }


def _sold_together(
    ranges: Mapping[str, SizeRange],
    declared: JobType,
    force: Mapping[str, SizeInForce],
    settings: WorkloadSettings,
    policy: Policy,
    catalogue: Catalogue,
    buyable: Collection[str] | None,
) -> Mapping[str, SizeRange]:
    """Return ranges in which no need goes beyond what is sold beside the others in force.

    ``ranges`` has what is sold beside smaller needs, of which more machines are. Beyond what may be
    bought at present prices no need grows; but none gets smaller by them, since jobs need no less
    memory while it is dear. Beyond the account's quotas none stays: no job would run there that
    tells how large it is. What the type states is never ruled out.

    Args:
        ranges: between which sizes the needs may move by what people have set.
        declared: the type.
        force: need -> the size in force, and the one before.
        settings: of the workload.
        policy: in force.
        catalogue: what is sold, and held by quotas.
        buyable: the types of instances that may be bought at present; None: not known.
    """
    dispatch, slots = dispatch_of_type(declared, policy), policy.shared_slots
    sizes: dict[str, Any] = {need: one.size for need, one in force.items() if one.size}
    stated = shape_of(declared.needs, dispatch)
    now = shape_of(replace(declared.needs, **sizes), dispatch)
    sold = [shape for shape in (now, stated) if any(_fitting(shape, settings, catalogue, slots))]
    if not sold:
        return ranges
    beside, bought, found = sold[0], _of_kinds(catalogue, buyable), {}
    for need, within in ranges.items():
        least = getattr(stated, need)
        had = max(force[need].size, force[need].before, force[need].top)
        most = max((least, *_prices(need, beside, settings, catalogue, slots)))
        grown = max((least, had, *_prices(need, now, settings, bought, slots)))
        found[need] = replace(within, most=min(within.most, most, grown))
        # Of sizes that are not sold together, the first are kept as far as they are.
        kept: dict[str, Any] = {need: min(getattr(now, need), most)}
        beside = replace(beside, **kept)
    return found


def _of_kinds(catalogue: Catalogue, kinds: Collection[str] | None) -> Catalogue:
    """Return a catalogue of some types alone; None: of all."""
    if kinds is None:
        return catalogue
    types = {name: kind for name, kind in catalogue.instance_types.items() if name in kinds}
    return replace(catalogue, instance_types=types)


def _least_of(size: TypeSize) -> JobNeeds:
    """Return of each need what evidence speaks for, or what is in force if that is less.

    Beside a need that is too large, a smaller one of another kind costs no less: no machine with 96
    vCPUs has little memory.
    """
    sizes: dict[str, Any] = {}
    for need in LEARNED:
        advised, now = getattr(size.advised, need), getattr(size.needs, need)
        now = getattr(size.of, need) if now is None else now
        sizes[need] = None if advised is None or now is None else min(advised, now)
    return JobNeeds(**sizes)


def _prices(
    need: str,
    shape: Shape,
    settings: WorkloadSettings,
    catalogue: Catalogue | None,
    shared_slots: int,
) -> Mapping[int, float]:
    """Return size -> list price of the cheapest machine of a shape that has it, for each job.

    List prices, since spot prices would move sizes to and fro.
    """
    if catalogue is None:
        return {}
    nothing: dict[str, Any] = {need: 0}
    jobs = jobs_at_once(shape.dispatch, shared_slots)
    fitting = _fitting(replace(shape, **nothing), settings, catalogue, shared_slots)
    listed = [(_size_of(need, kind) / jobs, price) for kind, price in fitting]
    found = {}
    for size in SCALES[need]:
        price = min((price for has, price in listed if has >= size), default=None)
        if price is not None:
            found[size] = price
    return found


def list_price(
    shape: Shape, settings: WorkloadSettings, catalogue: Catalogue, shared_slots: int = 1
) -> float | None:
    """Return USD per hour of the cheapest machine of a shape, as listed; None: there is none."""
    fitting = _fitting(shape, settings, catalogue, shared_slots)
    return min((price for _, price in fitting), default=None)


def _fitting(
    shape: Shape, settings: WorkloadSettings, catalogue: Catalogue, shared_slots: int = 1
) -> Iterator[tuple[InstanceType, float]]:
    wanted = requirements_of(shape, settings.requirements, shared_slots)
    for kind in catalogue.instance_types.values():
        prices = [p[kind.name] for p in catalogue.on_demand.values() if kind.name in p]
        if prices and misfit(kind, wanted) is None:
            yield kind, min(prices)


def _size_of(need: str, kind: InstanceType) -> float:
    if need == VCPUS:
        return float(kind.vcpus)
    mib = kind.memory_mib if need == MEMORY else kind.gpu_memory_mib
    return mib / _MIB_PER_GIB
