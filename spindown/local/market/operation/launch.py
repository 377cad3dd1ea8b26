"""CreateFleet, of type instant; of RunInstances only the dry run.

An instant fleet is one synchronous attempt over overrides, which the allocation strategy orders.
A dry pool shows in `Errors` beside the instances of a later one, and a fleet without any instance
is still an answer with HTTP 200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spindown.domain.offer import CapacityType, Pool
from spindown.ec2sim import Ec2Fleet, FleetPart, LaunchOrder, LaunchTemplate, Subnet
from spindown.local.market.catalogue import instance_types
from spindown.local.market.operation.call import (
    Answer,
    ApiCall,
    Operation,
    require_modelled,
    tags_of,
)
from spindown.local.market.wire.protocol import ApiError, decoded
from spindown.port import Refusal

_REQUEST = {
    "Type",
    "ClientToken",
    "DryRun",
    "LaunchTemplateConfigs",
    "TargetCapacitySpecification",
    "SpotOptions",
    "OnDemandOptions",
    "TagSpecifications",
}
_TARGET = {"TotalTargetCapacity", "DefaultTargetCapacityType"}
_OPTIONS = {"AllocationStrategy", "InstanceInterruptionBehavior"}
_SPECIFICATION = {
    "LaunchTemplateId",
    "LaunchTemplateName",
    "Version",
    "LaunchTemplateSpecificationUserData",
}
_OVERRIDE = {"InstanceType", "MaxPrice", "SubnetId", "AvailabilityZone", "Priority", "ImageId"}
_TAGGED = {"fleet", "instance", "volume", "network-interface"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideOrder:
    """One override, resolved: what would be launched, and what the answer echoes."""

    order: LaunchOrder
    priority: float
    #: LaunchTemplateAndOverrides.
    echo: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """A request for a fleet; two are equal if the same was sent."""

    parameters: Mapping[str, Any]
    echoes: Mapping[Pool, Answer] = field(compare=False)


async def create_fleet(call: ApiCall) -> Answer:
    """Make an instant fleet."""
    request = call.parameters
    capacity_type, strategy = _terms(request)
    specifications = request.get("TagSpecifications", [])
    for specification in specifications:
        if specification["ResourceType"] not in _TAGGED:
            message = f"'{specification['ResourceType']}' is not a valid taggable resource type."
            raise ApiError("InvalidParameterValue", message)
    instance_tags = tags_of(specifications, "instance")
    overrides = [
        override
        for config in request["LaunchTemplateConfigs"]
        for override in await _overrides(call, config, capacity_type, instance_tags)
    ]
    _refuse_overlap(overrides)
    call.refuse_dry_run()
    parameters = {name: value for name, value in request.items() if name != "DryRun"}
    echoes = {one.order.pool: one.echo for one in overrides}
    fleet = call.market.create_fleet(
        [one.order for one in _ordered(call, overrides, strategy)],
        count=request["TargetCapacitySpecification"]["TotalTargetCapacity"],
        region=call.region,
        request=FleetRequest(parameters=parameters, echoes=echoes),
        token=request.get("ClientToken", ""),
        tags=tags_of(specifications, "fleet"),
    )
    if isinstance(fleet, Refusal):
        raise ApiError(fleet.code, fleet.message)
    return {"FleetId": fleet.fleet_id, **_outcome(fleet)}


_INSTANCE_REQUEST = {
    "ClientToken",
    "DryRun",
    "InstanceMarketOptions",
    "InstanceType",
    "LaunchTemplate",
    "MaxCount",
    "MinCount",
    "SubnetId",
    "TagSpecifications",
}


async def run_instances(call: ApiCall) -> Answer:
    """Check one instance, which is never made: Spindown launches by CreateFleet alone."""
    request = call.parameters
    require_modelled(request, _INSTANCE_REQUEST, where="RunInstances")
    for specification in request.get("TagSpecifications", []):
        if specification["ResourceType"] not in _TAGGED - {"fleet"}:
            message = f"'{specification['ResourceType']}' is not taggable by RunInstances."
            raise ApiError("InvalidParameterValue", message)
    tags_of(request.get("TagSpecifications", []), "instance")
    template = await launch_template(call, request.get("LaunchTemplate", {}))
    image(template.image_id)
    known_type(request.get("InstanceType"))
    await call.network.subnets(region=call.region, subnet_ids=[request["SubnetId"]])
    call.refuse_dry_run()
    message = "The local market makes instances by CreateFleet only."
    raise ApiError("UnsupportedOperation", message)


def _ordered(
    call: ApiCall, overrides: Sequence[OverrideOrder], strategy: str
) -> list[OverrideOrder]:
    """Return the overrides in the order in which EC2 would use them."""
    market, last = call.market, float("inf")

    def price(one: OverrideOrder) -> float:
        known = market.listings.price_at(one.order.pool, region=call.region, at=market.now())
        return last if known is None else known

    if strategy in {"capacity-optimized-prioritized", "prioritized"}:
        return sorted(overrides, key=lambda one: one.priority)
    if strategy == "capacity-optimized":
        return sorted(overrides, key=lambda one: -market.capacity_left(one.order.pool))
    return sorted(overrides, key=price)


def _outcome(fleet: Ec2Fleet) -> Answer:
    """Return the instances and errors of a fleet."""
    return {
        "Instances": [
            {
                **_part(fleet, part),
                "InstanceIds": [one.instance_id for one in part.instances],
                "InstanceType": part.order.pool.instance_type,
                "AvailabilityZone": part.order.pool.zone,
                "SubnetId": part.order.subnet.subnet_id,
            }
            for part in fleet.parts
            if part.instances
        ],
        "Errors": [
            {
                **_part(fleet, part),
                "ErrorCode": part.refusal.code,
                "ErrorMessage": part.refusal.message,
            }
            for part in fleet.parts
            if part.refusal is not None
        ],
    }


def _part(fleet: Ec2Fleet, part: FleetPart) -> Answer:
    return {
        "LaunchTemplateAndOverrides": _sent(fleet).echoes[part.order.pool],
        "Lifecycle": part.order.pool.capacity_type.value,
    }


def _sent(fleet: Ec2Fleet) -> FleetRequest:
    if not isinstance(fleet.request, FleetRequest):
        raise TypeError(f"{fleet.fleet_id} was not made by CreateFleet")
    return fleet.request


def _terms(request: Mapping[str, Any]) -> tuple[CapacityType, str]:
    """Return capacity type and allocation strategy of a request that the market can play."""
    require_modelled(dict(request), _REQUEST, where="CreateFleet")
    if request.get("Type", "maintain") != "instant":
        message = "The local market makes fleets of Type instant only."
        raise ApiError("UnsupportedOperation", message)
    target = request["TargetCapacitySpecification"]
    require_modelled(target, _TARGET, where="TargetCapacitySpecification")
    if target["TotalTargetCapacity"] < 1:
        message = "TotalTargetCapacity must be at least 1 for fleets of type instant."
        raise ApiError("InvalidParameterValue", message)
    try:
        capacity_type = CapacityType(target.get("DefaultTargetCapacityType", "on-demand"))
    except ValueError as error:
        message = "The local market sells spot and on-demand capacity only."
        raise ApiError("UnsupportedOperation", message) from error
    is_spot = capacity_type is CapacityType.SPOT
    options = request.get("SpotOptions" if is_spot else "OnDemandOptions", {})
    require_modelled(options, _OPTIONS, where="SpotOptions" if is_spot else "OnDemandOptions")
    if options.get("InstanceInterruptionBehavior", "terminate") != "terminate":
        message = "Fleets of type instant support only the interruption behavior terminate."
        raise ApiError("InvalidFleetConfig", message)
    strategy = options.get("AllocationStrategy", "lowest-price")
    if strategy == "diversified":
        message = "The local market does not model the allocation strategy diversified."
        raise ApiError("UnsupportedOperation", message)
    return capacity_type, strategy


async def _overrides(
    call: ApiCall,
    config: Mapping[str, Any],
    capacity_type: CapacityType,
    instance_tags: Mapping[str, str],
) -> list[OverrideOrder]:
    specification = config.get("LaunchTemplateSpecification", {})
    require_modelled(specification, _SPECIFICATION, where="LaunchTemplateSpecification")
    template = await launch_template(call, specification)
    overrides = config.get("Overrides", [])
    if not overrides:
        message = "The local market needs Overrides with an InstanceType and a place."
        raise ApiError("InvalidFleetConfig", message)
    asked = sorted({one["SubnetId"] for one in overrides if "SubnetId" in one})
    subnets = await call.network.subnets(region=call.region, subnet_ids=asked) if asked else {}
    if any("SubnetId" not in one for one in overrides):
        defaults = await call.network.subnets(region=call.region, subnet_ids=[])
        subnets = {**{one.zone: one for one in defaults.values()}, **subnets}
    user_data = decoded(specification.get("LaunchTemplateSpecificationUserData"))
    echoed = {"LaunchTemplateId": template.template_id, "Version": template.version}
    found = []
    for override in overrides:
        require_modelled(override, _OVERRIDE, where="Overrides")
        order = LaunchOrder(
            pool=Pool(
                instance_type=known_type(override.get("InstanceType")),
                zone=place(override, subnets).zone,
                capacity_type=capacity_type,
            ),
            region=call.region,
            subnet=place(override, subnets),
            template=template,
            image_id=image(override.get("ImageId") or template.image_id),
            user_data=user_data or template.user_data,
            tags={**template.instance_tags, **instance_tags},
            max_price=max_price(override.get("MaxPrice")),
        )
        priority = override.get("Priority")
        found.append(
            OverrideOrder(
                order=order,
                priority=float("inf") if priority is None else float(priority),
                echo={"LaunchTemplateSpecification": echoed, "Overrides": override},
            )
        )
    return found


def _refuse_overlap(overrides: Sequence[OverrideOrder]) -> None:
    """An instant fleet spans neither two subnets of one zone nor one pool twice."""
    subnets: dict[str, str] = {}
    pools: set[Pool] = set()
    for order in (one.order for one in overrides):
        zone, subnet_id = order.pool.zone, order.subnet.subnet_id
        if subnets.setdefault(zone, subnet_id) != subnet_id:
            message = f"The fleet configuration names two subnets of {zone}."
            raise ApiError("InvalidFleetConfig", message)
        if order.pool in pools:
            message = "The fleet configuration contains duplicate instance pools."
            raise ApiError("InvalidFleetConfig", message)
        pools.add(order.pool)


async def launch_template(call: ApiCall, specification: Mapping[str, Any]) -> LaunchTemplate:
    """Return the template version that a specification names."""
    template_id = specification.get("LaunchTemplateId")
    name = specification.get("LaunchTemplateName")
    if (template_id is None) == (name is None):
        message = "You must specify either launch template name or launch template ID, not both."
        raise ApiError("InvalidLaunchTemplate", message)
    if "Version" not in specification:
        message = "The request must contain the parameter LaunchTemplateSpecification.Version"
        raise ApiError("MissingParameter", message)
    return await call.network.launch_template(
        region=call.region, template_id=template_id, name=name, version=specification["Version"]
    )


def place(override: Mapping[str, Any], subnets: Mapping[str, Subnet]) -> Subnet:
    """Return where an override lands; `subnets` are known by id, default ones by zone."""
    subnet = subnets.get(override.get("SubnetId") or override.get("AvailabilityZone", ""))
    if subnet is None:
        message = "Every override needs a SubnetId, or an AvailabilityZone with a default subnet."
        raise ApiError("InvalidFleetConfig", message)
    if override.get("AvailabilityZone", subnet.zone) != subnet.zone:
        message = f"The subnet {subnet.subnet_id} is not in {override['AvailabilityZone']}."
        raise ApiError("InvalidFleetConfig", message)
    return subnet


def known_type(name: str | None) -> str:
    """Return the name of an instance type that exists."""
    if name is None or name not in instance_types():
        raise ApiError("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    return name


def image(image_id: str | None) -> str:
    """Return the image of a launch, which may come from template or request but must come."""
    if not image_id:
        raise ApiError("MissingParameter", "The request must contain the parameter ImageId")
    return image_id


def max_price(text: str | None) -> float | None:
    """Return a maximum price in USD per hour, None where the request leaves it to EC2."""
    if text is None:
        return None
    try:
        price = float(text)
    except ValueError:
        price = 0.0
    # "more than 0.001" is the API reference's own bound.
    least = 0.001
    if price <= least:
        raise ApiError("InvalidParameterValue", f"Invalid value '{text}' for MaxPrice.")
    return price


OPERATIONS: dict[str, Operation] = {
    "CreateFleet": create_fleet,
    "RunInstances": run_instances,
}
