"""CreateFleet (instant) and DescribeFleets."""

from collections.abc import Mapping
from typing import Any

from spindown.domain.offer import CapacityType, Pool
from spindown.local.market.fleet import Candidate
from spindown.local.market.instance import decoded
from spindown.local.market.market import LaunchOrder
from spindown.local.market.operation.call import (
    Answer,
    Call,
    Operation,
    require_modelled,
    tag_list,
    tags_of,
)
from spindown.local.market.operation.launch import (
    image,
    known_type,
    launch_template,
    max_price,
    place,
)
from spindown.local.market.wire.error import ApiError

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


async def create_fleet(call: Call) -> Answer:
    """Make an instant fleet."""
    request = call.parameters
    capacity_type, strategy = _terms(request)
    specifications = request.get("TagSpecifications", [])
    for specification in specifications:
        if specification["ResourceType"] not in _TAGGED:
            message = f"'{specification['ResourceType']}' is not a valid taggable resource type."
            raise ApiError("InvalidParameterValue", message)
    instance_tags = tags_of(specifications, "instance")
    candidates = [
        candidate
        for config in request["LaunchTemplateConfigs"]
        for candidate in await _candidates(call, config, capacity_type, instance_tags)
    ]
    _refuse_overlap(candidates)
    call.refuse_dry_run()
    return call.fleets.create(
        candidates,
        region=call.region,
        request={name: value for name, value in request.items() if name != "DryRun"},
        strategy=strategy,
        tags=tags_of(specifications, "fleet"),
    )


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


async def _candidates(
    call: Call,
    config: Mapping[str, Any],
    capacity_type: CapacityType,
    instance_tags: Mapping[str, str],
) -> list[Candidate]:
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
    echoed = {"LaunchTemplateId": template.template_id, "Version": str(template.version)}
    candidates = []
    for override in overrides:
        require_modelled(override, _OVERRIDE, where="Overrides")
        order = LaunchOrder(
            pool=Pool(
                instance_type=known_type(override.get("InstanceType")),
                zone=place(override, subnets).zone,
                capacity_type=capacity_type,
            ),
            subnet=place(override, subnets),
            template=template,
            image_id=image(override.get("ImageId") or template.image_id),
            user_data=user_data or template.user_data,
            tags={**template.instance_tags, **instance_tags},
            max_price=max_price(override.get("MaxPrice")),
        )
        candidates.append(Candidate(order=order, specification=echoed, override=override))
    return candidates


def _refuse_overlap(candidates: list[Candidate]) -> None:
    """An instant fleet spans neither two subnets of one zone nor one pool twice."""
    subnets: dict[str, str] = {}
    pools: set[Pool] = set()
    for candidate in candidates:
        zone, subnet_id = candidate.order.pool.zone, candidate.order.subnet.subnet_id
        if subnets.setdefault(zone, subnet_id) != subnet_id:
            message = f"The fleet configuration names two subnets of {zone}."
            raise ApiError("InvalidFleetConfig", message)
        if candidate.order.pool in pools:
            message = "The fleet configuration contains duplicate instance pools."
            raise ApiError("InvalidFleetConfig", message)
        pools.add(candidate.order.pool)


def describe_fleets(call: Call) -> Answer:
    """Describe instant fleets, which EC2 shows only by their ids."""
    fleets = [
        call.fleets.find(fleet_id, region=call.region)
        for fleet_id in call.parameters.get("FleetIds", [])
    ]
    call.refuse_dry_run()
    members = {"LaunchTemplateAndOverrides", "Lifecycle", "InstanceIds", "InstanceType"}
    return {
        "Fleets": [
            {
                "FleetId": fleet.fleet_id,
                "FleetState": "active",
                "Type": "instant",
                "CreateTime": fleet.created_at,
                "ClientToken": fleet.request.get("ClientToken"),
                "TargetCapacitySpecification": fleet.request["TargetCapacitySpecification"],
                "Tags": tag_list(fleet.tags),
                "Errors": fleet.answer["Errors"],
                "Instances": [
                    {name: value for name, value in one.items() if name in members}
                    for one in fleet.answer["Instances"]
                ],
            }
            for fleet in fleets
        ]
    }


OPERATIONS: dict[str, Operation] = {
    "CreateFleet": create_fleet,
    "DescribeFleets": describe_fleets,
}
