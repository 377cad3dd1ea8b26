"""What every launch must name, read and checked: template, place, type, image, maximum price."""

from collections.abc import Mapping
from typing import Any

from spindown.local.market.catalogue import instance_types
from spindown.local.market.instance import LaunchTemplate, Subnet
from spindown.local.market.operation.call import Call
from spindown.local.market.wire.error import ApiError


async def launch_template(call: Call, specification: Mapping[str, Any]) -> LaunchTemplate:
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
