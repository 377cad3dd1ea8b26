"""The catalogue: types, zones, list prices, reclaim shares and quotas, refreshed as a whole.

Each source is read separately. If one fails, its last good part stays, with the time when it was
read. So a fault in one API never empties the catalogue.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from spindown.contract.codec import decode, encode, from_json, to_json
from spindown.contract.metric import DEPLOYMENT, SOURCE
from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.control.unresponsive_region import SLOW
from spindown.domain.account_pricing import open_to_paid
from spindown.domain.offer import (
    Catalogue,
    InstanceRequirements,
    InstanceType,
    extra_price_per_hour,
    quota_class,
    trusted,
)
from spindown.domain.policy import Policy
from spindown.domain.requirement import is_considered, limit_types
from spindown.domain.spot_or_on_demand import allows
from spindown.domain.wasted_work import is_ever_allowed
from spindown.error import ContractError, NotFound, SpindownError, Unreachable
from spindown.port import CATALOGUE_FOR, AnswerKind, ControlPorts, Datum, ObjectStore

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Fields of a catalogue that are read.
_PARTS = tuple(each.name for each in fields(Catalogue) if each.name != "taken_at")
#: Parts of the catalogue that a launch needs.
_NEEDED = ("instance_types", "offerings", "on_demand")

CATALOGUE_KEY = "offers/catalogue.json"
SCHEMA = 1

#: Add no further region after this time: one takes half a minute, and a tick two at most.
_ADD_WITHIN = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """The outcome of a refresh."""

    catalogue: Catalogue
    #: Source as ``{region}/{part}`` -> why it could not be read.
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownCatalogue:
    """A catalogue that is remembered, and the refresh of it that nobody has stored yet."""

    catalogue: Catalogue
    unstored: Refreshed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitedCatalogue:
    """A catalogue as one workload needs it, and what it was made from."""

    whole: Catalogue
    requirements: InstanceRequirements
    catalogue: Catalogue


_LIMITED: AnswerKind[_LimitedCatalogue] = AnswerKind("limited catalogue", CATALOGUE_FOR)
#: When a catalogue was forgotten, since it had no CPU types.
_RENEWED: AnswerKind[None] = AnswerKind("renewed catalogue", CATALOGUE_FOR)
#: The catalogue for readers that may not ask the market.
_STORED: AnswerKind[Catalogue] = AnswerKind("stored catalogue", CATALOGUE_FOR)
_CATALOGUE: AnswerKind[_KnownCatalogue] = AnswerKind("catalogue", CATALOGUE_FOR)


def refresh(ports: ControlPorts) -> Refreshed:
    """Read the market in every region where workers may run; write the catalogue.

    Raises:
        SpindownError: nothing could be read, and there is no older catalogue.
    """
    refreshed = survey(ports)
    store(refreshed, ports)
    ports.cache.forget(_CATALOGUE, "")
    return refreshed


def store(refreshed: Refreshed, ports: ControlPorts) -> None:
    """Write the catalogue of a refresh."""
    deployment = ports.deployment()
    regions = sorted(refreshed.catalogue.offerings)
    body = {**encode(refreshed.catalogue), "schema": SCHEMA}
    ports.objects.put(CATALOGUE_KEY, to_json(body).encode())
    if (last := ports.cache.last(_CATALOGUE, "")) is not None:
        ports.cache.keep(_CATALOGUE, "", last[0], replace(last[1], unstored=None))
    ports.metrics.emit(_data(deployment.name, refreshed, regions))


def survey(ports: ControlPorts) -> Refreshed:
    """Read the market like ``refresh``, but write nothing."""
    known = load_catalogue(ports.objects)
    regions, wanted = _places(ports.deployment(), ports, known)
    reading = _CatalogueReading(ports, known, ports.clock.now(), wanted)
    for region in regions:
        reading.read(region)
        if len(regions) > 1:
            reading.read_transfer(region)
    return reading.result()


def load_catalogue(objects: ObjectStore) -> Catalogue | None:
    """Return the stored catalogue; None if this version can read none."""
    try:
        body = from_json(CATALOGUE_KEY, objects.get(CATALOGUE_KEY).data)
        if body.get("schema") != SCHEMA:
            return None
        return decode(Catalogue, body)
    except (NotFound, ContractError, AttributeError):
        return None


def types_on_sale(
    settings: WorkloadSettings, ports: ControlPorts, now: datetime
) -> Mapping[InstanceType, float]:
    """Return the types that any region of a workload sells, by the stored catalogue.

    Each with the lowest price that is listed, in USD per hour; infinity: none is.

    None at all: nobody can tell, since there is none yet, or one without a part that counts.
    """
    known = _stored(ports, now)
    if known is None:
        return {}
    is_short = settings.requirements.allows_no_gpu and not _has_cpu(known)
    if is_short or not _is_whole(known) or not settings.regions.keys() <= known.offerings.keys():
        return {}
    sold = {name for zones in known.offerings.values() for some in zones.values() for name in some}
    listed = known.on_demand.values()
    return {
        kind: min((prices[name] for prices in listed if name in prices), default=math.inf)
        for name, kind in known.instance_types.items()
        if name in sold
    }


def _stored(ports: ControlPorts, now: datetime) -> Catalogue | None:
    """Return the stored catalogue, as it was some minutes ago; None: there is none to read."""
    last = ports.cache.last(_STORED, "")
    if last is not None and now - last[0] < _STORED.keep_for:
        return last[1]
    try:
        known = load_catalogue(ports.objects)
    except SpindownError as exc:
        _log.warning("catalogue_not_read: %s", exc)
        return None
    return None if known is None else ports.cache.keep(_STORED, "", now, known)


def types_within_reach(
    sold: Mapping[InstanceType, float],
    settings: WorkloadSettings,
    policy: Policy,
    ports: ControlPorts,
    now: datetime,
) -> Collection[InstanceType]:
    """Return the types on sale of which quotas and ceilings allow one, at the listed price.

    Args:
        sold: as of ``types_on_sale``.
        settings: of the workload.
        policy: in force.
        ports: the ports of the deployment.
        now: the present.
    """
    known = _stored(ports, now)
    if known is None:
        return frozenset()
    held = holdable_types(known, trusted(known, now).quotas, settings, policy)
    opened = open_to_paid(policy, settings.pricing, settings.run.root_volume_gib)
    extra = extra_price_per_hour(settings.run.root_volume_gib)
    return frozenset(
        kind
        for kind, price in sold.items()
        if (held is None or kind.name in held)
        and any(
            is_ever_allowed(opened, way, price + extra, kind.gpu_count)
            for way in kind.capacity_types
        )
    )


def holdable_types(
    catalogue: Catalogue | None,
    quotas: Mapping[str, float],
    settings: WorkloadSettings,
    policy: Policy,
) -> Collection[str] | None:
    """Return the types of instances of which quotas hold one, whatever it costs; None: not known.

    Args:
        catalogue: what is sold; None: not known.
        quotas: class -> vCPUs; one that is not known holds any.
        settings: of the workload.
        policy: in force.
    """
    if catalogue is None or not quotas:
        return None
    opened = open_to_paid(policy, settings.pricing, settings.run.root_volume_gib)

    def is_held(kind: InstanceType, region: str) -> bool:
        ways = (way for way in kind.capacity_types if allows(opened, way))
        classes = (quota_class(kind.name, region, way) for way in ways)
        return any(kind.vcpus <= quotas.get(name, math.inf) for name in classes)

    offered = {
        (region, name)
        for region, place in settings.regions.items()
        if policy.regions is None or region in policy.regions
        for zone in place.subnets
        for name in catalogue.offerings.get(region, {}).get(zone, ())
    }
    types = catalogue.instance_types
    return {name for region, name in offered if name in types and is_held(types[name], region)}


def unstored_catalogue(ports: ControlPorts) -> Refreshed | None:
    """Return the refresh by which ``current_catalogue`` goes, if it is to be stored yet."""
    last = ports.cache.last(_CATALOGUE, "")
    return None if last is None else last[1].unstored


def current_catalogue(
    ports: ControlPorts,
    now: datetime,
    *,
    regions: Collection[str] = (),
    requirements: InstanceRequirements | None = None,
) -> Catalogue:
    """Return the catalogue, cached for a while; read the market if there is none yet.

    It stores nothing. ``regions`` that it lacks, because their outposts are newer, are read while
    there is time: reading all of them may take longer than a function may run.

    Args:
        ports: what it is read by.
        now: the present.
        regions: must be in it.
        requirements: of a workload; types without a GPU must be in it if they may do.
    """
    needs_cpu = requirements is not None and requirements.allows_no_gpu

    def read() -> _KnownCatalogue:
        known = load_catalogue(ports.objects)
        if known is not None and _is_whole(known) and (_has_cpu(known) or not needs_cpu):
            return _KnownCatalogue(catalogue=known)
        refreshed = survey(ports)
        return _KnownCatalogue(catalogue=refreshed.catalogue, unstored=refreshed)

    if needs_cpu:
        _renew_without_cpu(ports, now)
    known = ports.cache.recall(_CATALOGUE, "", now, read)
    found = known.catalogue
    missing = sorted(region for region in regions if region not in found.offerings)
    if not missing:
        return found
    give_up_at = ports.clock.now() + _ADD_WITHIN
    for region in missing:
        if ports.clock.now() < give_up_at:
            found = _add(region, found, ports)
    ports.cache.keep(_CATALOGUE, "", now, replace(known, catalogue=found))
    return found


def _renew_without_cpu(ports: ControlPorts, now: datetime) -> None:
    """Forget a cached catalogue without CPU types: it is older than the workload that needs them.

    Once in a while, since EC2 may not say what types there are.
    """
    last, renewed = ports.cache.last(_CATALOGUE, ""), ports.cache.last(_RENEWED, "")
    if last is None or _has_cpu(last[1].catalogue):
        return
    if renewed is None or now - renewed[0] >= _RENEWED.keep_for:
        ports.cache.keep(_RENEWED, "", now, None)
        ports.cache.forget(_CATALOGUE, "")


def limited_catalogue(
    workload: str,
    requirements: InstanceRequirements,
    whole: Catalogue,
    ports: ControlPorts,
    now: datetime,
) -> Catalogue:
    """Return the catalogue with the types alone that a workload's ranking looks at.

    It is kept as long as catalogue and requirements stay the same.
    """

    def read() -> _LimitedCatalogue:
        types = limit_types(whole.instance_types, requirements)
        same = len(types) == len(whole.instance_types)
        catalogue = whole if same else replace(whole, instance_types=types)
        return _LimitedCatalogue(whole=whole, requirements=requirements, catalogue=catalogue)

    kept = ports.cache.recall(_LIMITED, workload, now, read)
    if kept.whole is not whole or kept.requirements != requirements:
        kept = ports.cache.keep(_LIMITED, workload, now, read())
    return kept.catalogue


def _add(region: str, known: Catalogue, ports: ControlPorts) -> Catalogue:
    """Read a region that a catalogue lacks, and the transfer prices of all regions.

    If the read fails, nothing is on sale there until the cache expires.
    """
    _, wanted = _places(ports.deployment(), ports, known)
    reading = _CatalogueReading(ports, known, ports.clock.now(), wanted)
    reading.read(region)
    for one in sorted({region, *known.offerings} - known.transfer_price.keys()):
        reading.read_transfer(one)
    return reading.add_to(known)


def _is_whole(catalogue: Catalogue) -> bool:
    """Tell whether every source has been read at least once in each region.

    Without one nothing can be bought. That must not wait for the next hourly refresh.
    """
    parts = [*catalogue.offerings.values(), *catalogue.on_demand.values()]
    return bool(catalogue.instance_types) and all(parts)


def _has_cpu(catalogue: Catalogue) -> bool:
    return any(kind.is_without_gpu for kind in catalogue.instance_types.values())


def _places(
    deployment: DeploymentSettings, ports: ControlPorts, known: Catalogue | None
) -> tuple[tuple[str, ...], tuple[InstanceRequirements, ...] | None]:
    """Return the regions where workers may run, and what the workloads require of them.

    All known regions, and no requirements (None), if a workload cannot be read. Its own ticks say
    why it cannot be read. The other workloads need their prices.
    """
    found = {deployment.region}
    wanted: list[InstanceRequirements] = []
    is_unread = False
    for name in deployment.workloads:
        try:
            settings, _ = ports.settings.workload(name)
        except SpindownError:
            found.update(known.offerings if known else ())
            is_unread = True
        else:
            found.update(settings.regions)
            wanted.append(settings.requirements)
    return tuple(sorted(found)), None if is_unread else tuple(wanted)


class _CatalogueReading:
    """One refresh in progress: parts read now, or kept with their age."""

    def __init__(
        self,
        ports: ControlPorts,
        known: Catalogue | None,
        now: datetime,
        wanted: tuple[InstanceRequirements, ...] | None,
    ) -> None:
        self._ports = ports
        #: What the workloads require; None: not known, so that every type stays.
        self._wanted = wanted
        self._known = known or Catalogue(
            taken_at=now, instance_types={}, offerings={}, on_demand={}
        )
        self._now = now
        self._first_error: SpindownError | None = None
        self._types: dict[str, InstanceType] = {}
        self._offerings: dict[str, Mapping[str, frozenset[str]]] = {}
        self._on_demand: dict[str, Mapping[str, float]] = {}
        self._shares: dict[str, Mapping[str, float]] = {}
        self._volumes: dict[str, float] = {}
        self._quotas: dict[str, float] = {}
        self._transfers: dict[str, Mapping[str, float]] = {}
        self._stale: dict[str, datetime] = {}
        self._failures: dict[str, str] = {}
        #: Region -> what it said after it had kept us waiting: nothing more is read there.
        self._hung: dict[str, str] = {}

    def read(self, region: str) -> None:
        """Read all sources of one region."""
        market, known = self._ports.market, self._known
        types = self._part(
            f"{region}/instance_types",
            lambda: {
                kind.name: kind
                for kind in market.instance_types(region=region)
                if self._is_wanted(kind)
            },
            known.instance_types,
        )
        self._types.update(types)
        self._offerings[region] = self._part(
            f"{region}/offerings",
            lambda: market.offerings(region=region),
            known.offerings.get(region),
        )
        self._on_demand[region] = self._part(
            f"{region}/on_demand",
            lambda: market.on_demand_prices(region=region),
            known.on_demand.get(region),
        )
        self._read_more(region)

    def _is_wanted(self, kind: InstanceType) -> bool:
        """Tell whether any workload may buy a type, or at least ranks it.

        Types without a GPU are ten times as many as others, which a deployment for GPUs alone need
        not store and read.
        """
        if self._wanted is None:
            return True
        return any(is_considered(kind, each) for each in self._wanted)

    def read_transfer(self, region: str) -> None:
        """Read the prices of data transfer out of a region; a usual price is used without them."""
        market, known = self._ports.market, self._known
        self._transfers[region] = self._part(
            f"{region}/transfer_price",
            lambda: market.transfer_prices(region=region),
            known.transfer_price.get(region),
            may_be_empty=True,
        )

    def _read_more(self, region: str) -> None:
        """Read what the ranking does not need: reclaim shares, the price of volumes, quotas."""
        ports, known = self._ports, self._known
        last = known.reclaim_share.get(region)
        advisor = ports.advisor
        self._shares[region] = (
            self._part(
                f"{region}/reclaim_share", lambda: advisor.reclaim_shares(region=region), last
            )
            if advisor is not None
            else last or {}
        )
        price = known.volume_price.get(region)
        self._volumes |= self._part(
            f"{region}/volume_price",
            lambda: {region: ports.market.volume_price(region=region)},
            None if price is None else {region: price},
        )
        self._quotas |= self._part(
            f"{region}/quotas",
            lambda: {
                f"{region}/{name}": quota.vcpus
                for name, quota in ports.market.quotas(region=region).items()
            },
            {k: v for k, v in known.quotas.items() if k.startswith(f"{region}/")},
            may_be_empty=True,
        )

    def result(self) -> Refreshed:
        """Return the catalogue; raise the first error if there is nothing to offer."""
        if not self._types and self._first_error is not None:
            raise self._first_error
        return Refreshed(catalogue=self._catalogue(), failures=self._failures)

    def add_to(self, known: Catalogue) -> Catalogue:
        """Return a catalogue with the newly read parts added."""
        read = self._catalogue()
        parts: dict[str, Any] = {
            name: {**getattr(known, name), **getattr(read, name)} for name in _PARTS
        }
        return replace(known, **parts)

    def _catalogue(self) -> Catalogue:
        for region in self._offerings:
            self._trim(region)
        return Catalogue(
            taken_at=self._now,
            instance_types=self._types,
            offerings=self._offerings,
            on_demand=self._on_demand,
            reclaim_share=self._shares,
            volume_price=self._volumes,
            quotas=self._quotas,
            transfer_price=self._transfers,
            stale_since=self._stale,
        )

    def _trim(self, region: str) -> None:
        """Drop what is told of types that no workload may buy.

        Not if the types could not be read: one may be new.
        """
        if f"{region}/instance_types" in self._failures:
            return
        self._offerings[region] = {
            zone: frozenset(names & self._types.keys())
            for zone, names in self._offerings[region].items()
        }
        for part in (self._on_demand, self._shares):
            part[region] = {k: v for k, v in part[region].items() if k in self._types}

    def _part(
        self,
        source: str,
        read: Callable[[], Mapping[str, T]],
        last: Mapping[str, T] | None,
        *,
        may_be_empty: bool = False,
    ) -> Mapping[str, T]:
        region, begun = source.partition("/")[0], self._ports.clock.now()
        try:
            if region in self._hung:
                raise Unreachable(f"not read: {self._hung[region]}")
            part = read()
            if part or may_be_empty:
                return part
            reason = "it is empty"
        except SpindownError as exc:
            self._first_error = self._first_error or exc
            reason = str(exc)
            if self._ports.clock.now() - begun > SLOW:
                self._hung[region] = reason
        self._failures[source] = reason
        if last:
            self._stale[source] = self._known.stale_since.get(source, self._known.taken_at)
        return last or {}


def _data(deployment: str, refreshed: Refreshed, regions: Sequence[str]) -> list[Datum]:
    catalogue = refreshed.catalogue
    dimensions: dict[str, Any] = {DEPLOYMENT: deployment}
    always = {f"{region}/{part}" for region in regions for part in _NEEDED}
    return [
        Datum(name="CatalogueTypes", value=len(catalogue.instance_types), dimensions=dimensions),
        # CloudWatch bills each source as a metric: optional ones are measured only when stale.
        *(
            Datum(
                name="CatalogueSourceAge",
                value=catalogue.age(source, catalogue.taken_at).total_seconds(),
                dimensions={**dimensions, SOURCE: source},
            )
            for source in sorted(always | catalogue.stale_since.keys())
        ),
    ]
