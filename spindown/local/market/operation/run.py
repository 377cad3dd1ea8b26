"""RunInstances: one pool, and an exception where a fleet would answer with Errors.

Spindown launches by fleets; this is for people who try the market by hand, so client tokens are
not honoured here.
"""

from spindown.domain.offer import CapacityType, Pool
from spindown.local.market.instance import LaunchTemplate, MarketInstance, decoded
from spindown.local.market.market import LaunchOrder
from spindown.local.market.operation.call import (
    Answer,
    Call,
    Operation,
    require_modelled,
    tags_of,
)
from spindown.local.market.operation.instance import described
from spindown.local.market.operation.launch import image, known_type, launch_template, max_price
from spindown.local.market.pool import Refusal
from spindown.local.market.wire.error import ApiError

_RUN = {
    "MinCount",
    "MaxCount",
    "DryRun",
    "ClientToken",
    "LaunchTemplate",
    "InstanceType",
    "SubnetId",
    "ImageId",
    "UserData",
    "TagSpecifications",
    "InstanceMarketOptions",
    "InstanceInitiatedShutdownBehavior",
}


async def run_instances(call: Call) -> Answer:
    """Launch from one pool; unlike a fleet it raises what stands in the way."""
    request = call.parameters
    require_modelled(request, _RUN, where="RunInstances")
    specification = request.get("LaunchTemplate", {})
    template = LaunchTemplate(template_id="", version=0)
    if specification:
        template = await launch_template(call, {"Version": "$Default", **specification})
    market_options = request.get("InstanceMarketOptions", {})
    is_spot = market_options.get("MarketType") == "spot"
    asked = [request["SubnetId"]] if "SubnetId" in request else []
    subnets = await call.network.subnets(region=call.region, subnet_ids=asked)
    if not subnets:
        message = "No subnets found for the default VPC. Please specify a subnet."
        raise ApiError("MissingInput", message)
    subnet = next(iter(subnets.values()))
    tags = tags_of(request.get("TagSpecifications", []), "instance")
    order = LaunchOrder(
        pool=Pool(
            instance_type=known_type(request.get("InstanceType")),
            zone=subnet.zone,
            capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
        ),
        subnet=subnet,
        template=template,
        image_id=image(request.get("ImageId") or template.image_id),
        user_data=decoded(request.get("UserData")) or template.user_data,
        tags={**template.instance_tags, **tags},
        max_price=max_price(market_options.get("SpotOptions", {}).get("MaxPrice")),
    )
    call.refuse_dry_run()
    return _run(call, order)


def _run(call: Call, order: LaunchOrder) -> Answer:
    launched: list[MarketInstance] = []
    with call.market.held():
        while len(launched) < call.parameters["MaxCount"]:
            outcome = call.market.launch(order)
            if isinstance(outcome, Refusal):
                if len(launched) >= call.parameters["MinCount"]:
                    break
                for instance in launched:
                    call.market.terminate(instance.instance_id)
                code = outcome.code
                is_unoffered = code == "InvalidFleetConfiguration"
                raise ApiError("Unsupported" if is_unoffered else code, outcome.message)
            launched.append(outcome)
    behaviour = call.parameters.get("InstanceInitiatedShutdownBehavior")
    for instance in launched:
        if behaviour:
            call.market.set_shutdown_behaviour(instance.instance_id, behaviour)
    return {
        "ReservationId": launched[0].reservation_id,
        "OwnerId": call.market.account,
        "Instances": [described(instance) for instance in launched],
    }


OPERATIONS: dict[str, Operation] = {"RunInstances": run_instances}
