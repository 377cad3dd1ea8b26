"""Whether EC2 would give an instance now: offered, not dry, within quota and maximum price.

Pure decisions over the scenario and what already runs; the market asks once per instance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType, Pool
from spindown.local.market.catalogue import instance_types, is_offered
from spindown.local.market.instance import MarketInstance, State
from spindown.local.market.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """EC2 gives no instance of a pool: an error code and its text."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One vCPU quota of Service Quotas."""

    code: str
    name: str
    #: UsageMetric dimension Class, by which a client finds the quota of a type.
    usage_class: str
    #: Of a new AWS account.
    default: float


#: Codes, names and defaults as AWS publishes them. Which spot quota P6 draws on is disputed in
#: public code; this market books it under P5's.
QUOTAS = (
    Quota(
        code="L-3819A6DF",
        name="All G and VT Spot Instance Requests",
        usage_class="G/Spot",
        default=0.0,
    ),
    Quota(
        code="L-7212CCBC",
        name="All P4, P3 and P2 Spot Instance Requests",
        usage_class="P/Spot",
        default=0.0,
    ),
    Quota(
        code="L-C4BD4855",
        name="All P5 Spot Instance Requests",
        usage_class="P5/Spot",
        default=0.0,
    ),
    Quota(
        code="L-34B43A08",
        name="All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        usage_class="Standard/Spot",
        default=5.0,
    ),
    Quota(
        code="L-DB2E81BA",
        name="Running On-Demand G and VT instances",
        usage_class="G/OnDemand",
        default=0.0,
    ),
    Quota(
        code="L-417A185B",
        name="Running On-Demand P instances",
        usage_class="P/OnDemand",
        default=0.0,
    ),
    Quota(
        code="L-1216C47A",
        name="Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        usage_class="Standard/OnDemand",
        default=5.0,
    ),
)
_BY_CLASS = {quota.usage_class: quota for quota in QUOTAS}


def quota_of(instance_type: str, capacity_type: CapacityType) -> Quota:
    """Return the vCPU quota that an instance of this type draws on."""
    family = instance_type.partition(".")[0]
    if capacity_type is CapacityType.ON_DEMAND:
        group = family[0].upper() if family.startswith(("g", "p")) else "Standard"
        return _BY_CLASS["G/OnDemand" if family.startswith("vt") else f"{group}/OnDemand"]
    if family.startswith(("g", "vt")):
        return _BY_CLASS["G/Spot"]
    if family.startswith(("p5", "p6")):
        return _BY_CLASS["P5/Spot"]
    return _BY_CLASS["P/Spot" if family.startswith("p") else "Standard/Spot"]


def quota_limit(scenario: Scenario, quota: Quota) -> float:
    """Return a quota's vCPUs in this scenario."""
    return scenario.quota.get(quota.code, quota.default)


def headroom(
    scenario: Scenario,
    pool: Pool,
    *,
    since_start: timedelta,
    alive: Iterable[MarketInstance],
) -> tuple[float, str]:
    """Return how many more instances a pool holds now, and the error code once it is zero."""
    room, code = float("inf"), "InsufficientInstanceCapacity"
    taken = sum(instance.pool == pool for instance in alive)
    for dry in scenario.dry:
        is_now = dry.from_ <= since_start and (dry.until is None or since_start < dry.until)
        is_meant = dry.capacity_type in {"*", pool.capacity_type} and dry.covers(
            pool.instance_type, pool.zone
        )
        if is_now and is_meant:
            left = max(dry.capacity - taken, 0)
            if left < room:
                room, code = left, dry.code
    return room, code


def refusal(
    scenario: Scenario,
    pool: Pool,
    *,
    now: datetime,
    started_at: datetime,
    price: float | None,
    max_price: float | None,
    instances: Mapping[str, MarketInstance],
    dry_until: Mapping[Pool, datetime],
) -> Refusal | None:
    """Return why EC2 would not launch one instance in the pool now; None when it would."""
    if not is_offered(pool.instance_type, pool.zone):
        return _not_offered(pool)
    if price is None:
        return Refusal(
            code="UnfulfillableCapacity",
            message="Unable to fulfill capacity due to your request configuration.",
        )
    if pool.capacity_type is CapacityType.SPOT and max_price is not None and max_price < price:
        return Refusal(
            code="SpotMaxPriceTooLow",
            message=(
                f"Your Spot request price of {max_price:g} is lower than the minimum required "
                f"Spot request fulfillment price of {price:g}."
            ),
        )
    over = _over_quota(scenario, pool, instances.values())
    if over is not None:
        return over
    alive = [instance for instance in instances.values() if instance.state.is_alive]
    room, code = headroom(scenario, pool, since_start=now - started_at, alive=alive)
    if room < 1 or now < dry_until.get(pool, now):
        return Refusal(code=code, message=_capacity_text(pool, code))
    return None


def _not_offered(pool: Pool) -> Refusal:
    return Refusal(
        code="InvalidFleetConfiguration",
        message=(
            f"Your requested instance type ({pool.instance_type}) is not supported in your "
            f"requested Availability Zone ({pool.zone})."
        ),
    )


def _over_quota(
    scenario: Scenario, pool: Pool, instances: Iterable[MarketInstance]
) -> Refusal | None:
    quota = quota_of(pool.instance_type, pool.capacity_type)
    limit = quota_limit(scenario, quota)
    # A request keeps counting until EC2 has closed it, so an instance that is only just shutting
    # down still blocks its own replacement.
    used = sum(
        instance.vcpus
        for instance in instances
        if instance.state not in {State.TERMINATED, State.STOPPED}
        and instance.region == pool.zone[:-1]
        and quota_of(instance.instance_type, instance.capacity_type) == quota
    )
    if used + instance_types()[pool.instance_type].vcpus <= limit:
        return None
    if pool.capacity_type is CapacityType.SPOT:
        return Refusal(
            code="MaxSpotInstanceCountExceeded", message="Max spot instance count exceeded"
        )
    return Refusal(
        code="VcpuLimitExceeded",
        message=(
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} "
            "allows for the instance bucket that the specified instance type belongs to."
        ),
    )


def _capacity_text(pool: Pool, code: str) -> str:
    if code != "InsufficientInstanceCapacity":
        return f"The scenario answers {code} for {pool}."
    if pool.capacity_type is CapacityType.SPOT:
        return "There is no Spot capacity available that matches your request."
    return (
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability "
        f"Zone you requested ({pool.zone})."
    )
