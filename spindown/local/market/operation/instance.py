"""Instances once they exist: describe, tag and end them, their console, their spot requests."""

from typing import Any

from spindown.ec2sim import Ec2Instance, InstanceState
from spindown.local.market.operation.call import (
    Answer,
    ApiCall,
    NotOwnedError,
    Operation,
    Readers,
    page,
    passes,
    refuse_reserved,
    tag_list,
)
from spindown.local.market.wire.protocol import ApiError, timestamp

_MOST_TAGS = 50
_LARGEST_PAGE = 1000

READERS: Readers[Ec2Instance] = {
    "instance-id": lambda one: [one.instance_id],
    "instance-type": lambda one: [one.instance_type],
    "instance-state-name": lambda one: [one.state.value],
    "instance-state-code": lambda one: [str(one.state.code)],
    # On-demand instances have no lifecycle at all, so no value matches them.
    "instance-lifecycle": lambda one: ["spot"] if one.is_spot else [],
    "availability-zone": lambda one: [one.zone],
    "subnet-id": lambda one: [one.order.subnet.subnet_id],
    "vpc-id": lambda one: [one.order.subnet.vpc_id],
    "image-id": lambda one: [one.order.image_id],
    "reservation-id": lambda one: [one.reservation_id],
    "spot-instance-request-id": lambda one: [one.spot_request_id] if one.spot_request_id else [],
    "state-reason-code": lambda one: [one.reason.value] if one.reason else [],
}


def _state(state: InstanceState) -> Answer:
    return {"Code": state.code, "Name": state.value}


def described(instance: Ec2Instance) -> Answer:
    """Return an instance as DescribeInstances and RunInstances show it."""
    template, subnet = instance.order.template, instance.order.subnet
    answer: Answer = {
        "InstanceId": instance.instance_id,
        "ImageId": instance.order.image_id,
        "State": _state(instance.state),
        "InstanceType": instance.instance_type,
        "LaunchTime": instance.launched_at,
        "Placement": {"AvailabilityZone": instance.zone, "Tenancy": "default"},
        "Architecture": instance.hardware.architecture,
        "SecurityGroups": [
            {"GroupId": group, "GroupName": group} for group in template.security_groups
        ],
        "Tags": tag_list(instance.tags),
        "MetadataOptions": {
            "State": "applied",
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "InstanceMetadataTags": "enabled" if template.metadata_tags else "disabled",
        },
        "PlatformDetails": "Linux/UNIX",
        "StateTransitionReason": "",
    }
    if template.profile_arn:
        answer["IamInstanceProfile"] = {"Arn": template.profile_arn}
    if instance.is_spot:
        answer["InstanceLifecycle"] = "spot"
        answer["SpotInstanceRequestId"] = instance.spot_request_id
    if instance.state is not InstanceState.TERMINATED:
        answer["PrivateIpAddress"] = instance.private_ip
        answer["SubnetId"] = subnet.subnet_id
        answer["VpcId"] = subnet.vpc_id
    if instance.reason and instance.ended_at:
        reason = instance.reason
        answer["StateReason"] = {"Code": reason.value, "Message": f"{reason}: {reason.text}"}
        at = f"{instance.ended_at:%Y-%m-%d %H:%M:%S} GMT"
        answer["StateTransitionReason"] = f"{reason.text} ({at})"
    return answer


def describe_instances(call: ApiCall) -> Answer:
    """Describe instances by id, or those that pass the filters, page by page."""
    asked = call.parameters
    if asked.get("InstanceIds") and asked.get("MaxResults"):
        message = "The parameter instancesSet cannot be used with the parameter maxResults"
        raise ApiError("InvalidParameterCombination", message)
    call.refuse_dry_run()
    chosen = [
        one
        for one in _named(call)
        if passes(one, asked.get("Filters", []), READERS, tags=lambda subject: subject.tags)
    ]
    rows, token = page(chosen, asked, largest=_LARGEST_PAGE)
    reservations: dict[str, Answer] = {}
    for one in rows:
        reservation = reservations.setdefault(
            one.reservation_id,
            {"ReservationId": one.reservation_id, "OwnerId": call.market.account, "Instances": []},
        )
        reservation["Instances"].append(described(one))
    return {"Reservations": list(reservations.values()), "NextToken": token}


def describe_instance_status(call: ApiCall) -> Answer:
    """Describe the status of running instances, or of all with IncludeAllInstances."""
    asked = call.parameters
    call.refuse_dry_run()
    chosen = [
        one
        for one in _named(call)
        if (asked.get("IncludeAllInstances") or one.state is InstanceState.RUNNING)
        and passes(one, asked.get("Filters", []), READERS)
    ]
    rows, token = page(chosen, asked, largest=_LARGEST_PAGE)
    return {"InstanceStatuses": [_status(one) for one in rows], "NextToken": token}


def _named(call: ApiCall) -> list[Ec2Instance]:
    """Return the instances that a call names, or all if it names none."""
    if names := call.parameters.get("InstanceIds"):
        return call.existing(names)
    return list(call.market.visible(call.region).values())


def _status(instance: Ec2Instance) -> Answer:
    health = "ok" if instance.state is InstanceState.RUNNING else "not-applicable"
    return {
        "InstanceId": instance.instance_id,
        "AvailabilityZone": instance.zone,
        "InstanceState": _state(instance.state),
        "InstanceStatus": {"Status": health},
        "SystemStatus": {"Status": health},
    }


def terminate_instances(call: ApiCall) -> Answer:
    """Terminate instances; one unknown id fails the batch and nothing ends."""
    with call.market.held():
        before = call.existing(call.parameters["InstanceIds"])
        call.refuse_dry_run()
        return {
            "TerminatingInstances": [
                {
                    "InstanceId": one.instance_id,
                    "PreviousState": _state(one.state),
                    "CurrentState": _state(call.market.terminate(one.instance_id).state),
                }
                for one in before
            ]
        }


def stop_instances(call: ApiCall) -> Answer:
    """Refuse: what Spindown launches ends, it never stops by an API call."""
    for one in call.existing(call.parameters["InstanceIds"]):
        if one.is_spot:
            message = (
                f"You can't stop the Spot Instance '{one.instance_id}' because it is associated "
                "with a one-time Spot Instance request."
            )
            raise ApiError("UnsupportedOperation", message)
    message = "The local market does not model StopInstances."
    raise ApiError("UnsupportedOperation", message)


def modify_instance_attribute(call: ApiCall) -> Answer:
    """Change what the guest's shutdown does; other attributes are not modelled."""
    asked = call.parameters
    instance = call.instance(asked["InstanceId"])
    behaviour = asked.get("InstanceInitiatedShutdownBehavior", {}).get("Value")
    if asked.get("Attribute") == "instanceInitiatedShutdownBehavior":
        behaviour = asked.get("Value")
    if behaviour not in {"stop", "terminate"}:
        message = "The local market changes InstanceInitiatedShutdownBehavior only."
        raise ApiError("InvalidParameterValue", message)
    call.refuse_dry_run()
    call.market.set_shutdown_behaviour(instance.instance_id, behaviour)
    return {}


def describe_instance_attribute(call: ApiCall) -> Answer:
    """Describe what the guest's shutdown does, or the user data."""
    instance = call.instance(call.parameters["InstanceId"])
    call.refuse_dry_run()
    answer: Answer = {"InstanceId": instance.instance_id}
    match call.parameters["Attribute"]:
        case "instanceInitiatedShutdownBehavior":
            answer["InstanceInitiatedShutdownBehavior"] = {"Value": instance.shutdown_behaviour}
        case "userData":
            answer["UserData"] = {"Value": instance.order.user_data}
        case attribute:
            message = f"The local market does not model the attribute {attribute}."
            raise ApiError("InvalidParameterValue", message)
    return answer


def get_console_output(call: ApiCall) -> Answer:
    """Return what the guest has printed."""
    instance = call.instance(call.parameters["InstanceId"])
    call.refuse_dry_run()
    return {
        "InstanceId": instance.instance_id,
        "Timestamp": call.market.now(),
        "Output": call.market.driver.console(instance.instance_id).encode(),
    }


REQUEST_READERS: Readers[Ec2Instance] = {
    "instance-id": lambda one: [one.instance_id],
    "spot-instance-request-id": lambda one: [one.spot_request_id or ""],
    "state": lambda one: [_request_state(one)],
    "status-code": lambda one: [_request_status(one)[0]],
}


def describe_spot_instance_requests(call: ApiCall) -> Answer:
    """Describe the one-time requests behind the spot instances."""
    asked = call.parameters
    call.refuse_dry_run()
    requests = {
        one.spot_request_id: one
        for one in call.market.visible(call.region).values()
        if one.spot_request_id
    }
    missing = [one for one in asked.get("SpotInstanceRequestIds", []) if one not in requests]
    if missing:
        message = f"The spot instance request ID '{missing[0]}' does not exist"
        raise ApiError("InvalidSpotInstanceRequestID.NotFound", message)
    wanted = asked.get("SpotInstanceRequestIds") or list(requests)
    chosen = [
        requests[one]
        for one in wanted
        if passes(
            requests[one],
            asked.get("Filters", []),
            REQUEST_READERS,
            tags=lambda subject: subject.order.template.spot_request_tags,
        )
    ]
    rows, token = page(chosen, asked, largest=_LARGEST_PAGE)
    return {"SpotInstanceRequests": [_request(one) for one in rows], "NextToken": token}


def _request_state(instance: Ec2Instance) -> str:
    return "active" if instance.state.is_alive else "closed"


def _request_status(instance: Ec2Instance) -> tuple[str, str]:
    """Return code and text of the request's status.

    A reclaim for capacity shows its final code from the notice on, while the instance still
    runs; one for the price is marked first.
    """
    notice = instance.notice
    if notice is None:
        if instance.state.is_alive:
            return "fulfilled", "Your spot request is fulfilled."
        return "instance-terminated-by-user", "The instance was terminated by the user."
    if notice.cause == "price":
        if instance.state.is_alive:
            return "marked-for-termination", "The instance is marked for termination."
        return "instance-terminated-by-price", "The Spot price exceeds your maximum price."
    return "instance-terminated-no-capacity", "There is no longer enough Spot capacity."


def _request(instance: Ec2Instance) -> dict[str, Any]:
    code, text = _request_status(instance)
    changed_at = instance.notice.given_at if instance.notice else instance.launched_at
    return {
        "SpotInstanceRequestId": instance.spot_request_id,
        "InstanceId": instance.instance_id,
        "State": _request_state(instance),
        "Status": {
            "Code": code,
            "Message": text,
            "UpdateTime": timestamp(instance.ended_at or changed_at),
        },
        "Type": "one-time",
        "CreateTime": instance.launched_at,
        "SpotPrice": f"{instance.order.max_price:.6f}",
        "ProductDescription": "Linux/UNIX",
        "LaunchedAvailabilityZone": instance.zone,
        "InstanceInterruptionBehavior": "terminate",
        "Tags": tag_list(instance.order.template.spot_request_tags),
    }


def _tagged(call: ApiCall) -> list[str]:
    resources: list[str] = call.parameters["Resources"]
    ours = [one for one in resources if one.startswith("i-")]
    if not ours:
        raise NotOwnedError
    if len(ours) < len(resources):
        message = "The local market tags instances and other resources in separate calls only."
        raise ApiError("UnsupportedOperation", message)
    return ours


def create_tags(call: ApiCall) -> Answer:
    """Add tags to instances, or replace their values."""
    added = {tag["Key"]: tag.get("Value", "") for tag in call.parameters["Tags"]}
    with call.market.held():
        instances = call.existing(_tagged(call))
        refuse_reserved(added)
        call.refuse_dry_run()
        tagged = {one.instance_id: {**one.tags, **added} for one in instances}
        for tags in tagged.values():
            if sum(not key.startswith("aws:") for key in tags) > _MOST_TAGS:
                raise ApiError("TagLimitExceeded", "Number of tags exceeds the limit.")
        for instance_id, tags in tagged.items():
            call.market.tag(instance_id, tags)
    return {}


def delete_tags(call: ApiCall) -> Answer:
    """Remove tags from instances: the named ones, or all when none is named."""
    with call.market.held():
        instances = call.existing(_tagged(call))
        call.refuse_dry_run()
        named = {tag["Key"]: tag.get("Value") for tag in call.parameters.get("Tags", [])}
        refuse_reserved(dict.fromkeys(named, ""))
        for one in instances:
            kept = {
                key: value
                for key, value in one.tags.items()
                if key.startswith("aws:")
                or (named and not (key in named and named[key] in {None, value}))
            }
            call.market.tag(one.instance_id, kept)
    return {}


TAG_READERS: Readers[dict[str, str]] = {
    "resource-id": lambda row: [row["ResourceId"]],
    "resource-type": lambda row: [row["ResourceType"]],
    "key": lambda row: [row["Key"]],
    "value": lambda row: [row["Value"]],
}


def describe_tags(call: ApiCall) -> Answer:
    """List tags, when the filters speak of instances."""
    filters: list[dict[str, Any]] = call.parameters.get("Filters", [])
    is_ours = any(
        (one["Name"] == "resource-type" and one["Values"] == ["instance"])
        or (one["Name"] == "resource-id" and all(id_.startswith("i-") for id_ in one["Values"]))
        for one in filters
    )
    if not is_ours:
        raise NotOwnedError
    call.refuse_dry_run()
    listed = [
        {"Key": key, "ResourceId": one.instance_id, "ResourceType": "instance", "Value": value}
        for one in call.market.visible(call.region).values()
        for key, value in sorted(one.tags.items())
    ]
    chosen = [row for row in listed if passes(row, filters, TAG_READERS)]
    rows, token = page(chosen, call.parameters, largest=1000)
    return {"Tags": list(rows), "NextToken": token}


OPERATIONS: dict[str, Operation] = {
    "CreateTags": create_tags,
    "DeleteTags": delete_tags,
    "DescribeTags": describe_tags,
    "DescribeInstances": describe_instances,
    "DescribeInstanceStatus": describe_instance_status,
    "DescribeInstanceAttribute": describe_instance_attribute,
    "DescribeSpotInstanceRequests": describe_spot_instance_requests,
    "GetConsoleOutput": get_console_output,
    "ModifyInstanceAttribute": modify_instance_attribute,
    "StopInstances": stop_instances,
    "TerminateInstances": terminate_instances,
}
