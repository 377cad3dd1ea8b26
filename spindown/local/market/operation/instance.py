"""Instances once they exist: describe, tag and end them, their console, their spot requests."""

from typing import Any

from spindown.ec2sim import Ec2Instance, InstanceState
from spindown.local.market.operation.call import (
    Answer,
    ApiCall,
    Operation,
    Readers,
    page,
    passes,
    tag_list,
)
from spindown.local.market.wire.protocol import ApiError, timestamp

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


def _named(call: ApiCall) -> list[Ec2Instance]:
    """Return the instances that a call names, or all if it names none."""
    if names := call.parameters.get("InstanceIds"):
        return call.existing(names)
    return list(call.market.visible(call.region).values())


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


OPERATIONS: dict[str, Operation] = {
    "DescribeInstances": describe_instances,
    "DescribeSpotInstanceRequests": describe_spot_instance_requests,
    "GetConsoleOutput": get_console_output,
    "TerminateInstances": terminate_instances,
}
