"""Instances once they exist: describe, terminate, their console and their shutdown behaviour."""

from typing import Any

from spindown.domain.offer import CapacityType
from spindown.local.market.catalogue import instance_types
from spindown.local.market.instance import MarketInstance, State
from spindown.local.market.operation.call import Answer, Call, Operation, tag_list
from spindown.local.market.operation.filter import Readers, page, passes
from spindown.local.market.wire.error import ApiError
from spindown.local.market.wire.query import timestamp

_LARGEST_PAGE = 1000

READERS: Readers[MarketInstance] = {
    "instance-id": lambda one: [one.instance_id],
    "instance-type": lambda one: [one.instance_type],
    "instance-state-name": lambda one: [one.state.value],
    "instance-state-code": lambda one: [str(one.state.code)],
    # On-demand instances have no lifecycle at all, so no value matches them.
    "instance-lifecycle": lambda one: ["spot"] if one.capacity_type is CapacityType.SPOT else [],
    "availability-zone": lambda one: [one.zone],
    "subnet-id": lambda one: [one.subnet_id],
    "vpc-id": lambda one: [one.vpc_id],
    "image-id": lambda one: [one.image_id],
    "reservation-id": lambda one: [one.reservation_id],
    "spot-instance-request-id": lambda one: [one.spot_request_id] if one.spot_request_id else [],
    "state-reason-code": lambda one: [one.reason.value] if one.reason else [],
}


def _state(state: State) -> Answer:
    return {"Code": state.code, "Name": state.value}


def described(instance: MarketInstance) -> Answer:
    """Return an instance as DescribeInstances and RunInstances show it."""
    answer: Answer = {
        "InstanceId": instance.instance_id,
        "ImageId": instance.image_id,
        "State": _state(instance.state),
        "InstanceType": instance.instance_type,
        "LaunchTime": instance.launched_at,
        "Placement": {"AvailabilityZone": instance.zone, "Tenancy": "default"},
        "Architecture": instance_types()[instance.instance_type].architecture,
        "SecurityGroups": [
            {"GroupId": group, "GroupName": group} for group in instance.security_groups
        ],
        "Tags": tag_list(instance.tags),
        "MetadataOptions": {
            "State": "applied",
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "InstanceMetadataTags": "enabled" if instance.metadata_tags else "disabled",
        },
        "PlatformDetails": "Linux/UNIX",
        "StateTransitionReason": "",
    }
    if instance.profile_arn:
        answer["IamInstanceProfile"] = {"Arn": instance.profile_arn}
    if instance.capacity_type is CapacityType.SPOT:
        answer["InstanceLifecycle"] = "spot"
        answer["SpotInstanceRequestId"] = instance.spot_request_id
    if instance.state is not State.TERMINATED:
        answer["PrivateIpAddress"] = instance.private_ip
        answer["SubnetId"] = instance.subnet_id
        answer["VpcId"] = instance.vpc_id
    if instance.reason and instance.ended_at:
        answer["StateReason"] = {"Code": instance.reason.value, "Message": instance.reason.message}
        text = instance.reason.message.partition(": ")[2]
        answer["StateTransitionReason"] = f"{text} ({instance.ended_at:%Y-%m-%d %H:%M:%S} GMT)"
    return answer


def describe_instances(call: Call) -> Answer:
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


def describe_instance_status(call: Call) -> Answer:
    """Describe the status of running instances, or of all with IncludeAllInstances."""
    asked = call.parameters
    call.refuse_dry_run()
    chosen = [
        one
        for one in _named(call)
        if (asked.get("IncludeAllInstances") or one.state is State.RUNNING)
        and passes(one, asked.get("Filters", []), READERS)
    ]
    rows, token = page(chosen, asked, largest=_LARGEST_PAGE)
    return {"InstanceStatuses": [_status(one) for one in rows], "NextToken": token}


def _named(call: Call) -> list[MarketInstance]:
    """Return the instances that a call names, or all if it names none."""
    if names := call.parameters.get("InstanceIds"):
        return call.existing(names)
    return list(call.market.visible(call.region).values())


def _status(instance: MarketInstance) -> Answer:
    health = "ok" if instance.state is State.RUNNING else "not-applicable"
    return {
        "InstanceId": instance.instance_id,
        "AvailabilityZone": instance.zone,
        "InstanceState": _state(instance.state),
        "InstanceStatus": {"Status": health},
        "SystemStatus": {"Status": health},
    }


def terminate_instances(call: Call) -> Answer:
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


def stop_instances(call: Call) -> Answer:
    """Refuse: what Spindown launches ends, it never stops by an API call."""
    for one in call.existing(call.parameters["InstanceIds"]):
        if one.capacity_type is CapacityType.SPOT:
            message = (
                f"You can't stop the Spot Instance '{one.instance_id}' because it is associated "
                "with a one-time Spot Instance request."
            )
            raise ApiError("UnsupportedOperation", message)
    message = "The local market does not model StopInstances."
    raise ApiError("UnsupportedOperation", message)


def modify_instance_attribute(call: Call) -> Answer:
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


def describe_instance_attribute(call: Call) -> Answer:
    """Describe what the guest's shutdown does, or the user data."""
    instance = call.instance(call.parameters["InstanceId"])
    call.refuse_dry_run()
    answer: Answer = {"InstanceId": instance.instance_id}
    match call.parameters["Attribute"]:
        case "instanceInitiatedShutdownBehavior":
            answer["InstanceInitiatedShutdownBehavior"] = {"Value": instance.shutdown_behaviour}
        case "userData":
            answer["UserData"] = {"Value": instance.user_data}
        case attribute:
            message = f"The local market does not model the attribute {attribute}."
            raise ApiError("InvalidParameterValue", message)
    return answer


def get_console_output(call: Call) -> Answer:
    """Return what the guest has printed."""
    instance = call.instance(call.parameters["InstanceId"])
    call.refuse_dry_run()
    return {
        "InstanceId": instance.instance_id,
        "Timestamp": call.market.now(),
        "Output": call.market.driver.console(instance.instance_id).encode(),
    }


REQUEST_READERS: Readers[MarketInstance] = {
    "instance-id": lambda one: [one.instance_id],
    "spot-instance-request-id": lambda one: [one.spot_request_id or ""],
    "state": lambda one: [_request_state(one)],
    "status-code": lambda one: [_request_status(one)[0]],
}


def describe_spot_instance_requests(call: Call) -> Answer:
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
            tags=lambda subject: subject.spot_request_tags,
        )
    ]
    rows, token = page(chosen, asked, largest=_LARGEST_PAGE)
    return {"SpotInstanceRequests": [_request(one) for one in rows], "NextToken": token}


def _request_state(instance: MarketInstance) -> str:
    return "active" if instance.state.is_alive else "closed"


def _request_status(instance: MarketInstance) -> tuple[str, str]:
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


def _request(instance: MarketInstance) -> dict[str, Any]:
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
        "SpotPrice": f"{instance.max_price:.6f}",
        "ProductDescription": "Linux/UNIX",
        "LaunchedAvailabilityZone": instance.zone,
        "InstanceInterruptionBehavior": "terminate",
        "Tags": tag_list(instance.spot_request_tags),
    }


OPERATIONS: dict[str, Operation] = {
    "DescribeInstances": describe_instances,
    "DescribeInstanceStatus": describe_instance_status,
    "DescribeInstanceAttribute": describe_instance_attribute,
    "DescribeSpotInstanceRequests": describe_spot_instance_requests,
    "GetConsoleOutput": get_console_output,
    "ModifyInstanceAttribute": modify_instance_attribute,
    "StopInstances": stop_instances,
    "TerminateInstances": terminate_instances,
}
