"""Instances on EC2: launched by CreateFleet, described, terminated.

CreateFleet answers HTTP 200 even if it launches no instance. The answer then lists an error for
each override. It may have both instances and errors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from spindown.aws.error import (
    OF_OVERRIDES,
    OF_SUBNET,
    OPEN_ENDED,
    code_of,
    is_server_fault,
    message_of,
    refusal_kind,
    refusal_words,
    translate,
    translated,
)
from spindown.domain.offer import CapacityType
from spindown.error import AccessDenied, NotFound, SpindownError, Throttled, Unreachable
from spindown.port import (
    InstanceView,
    LaunchAnswer,
    LaunchedInstance,
    LaunchRequest,
    Refusal,
    RefusalKind,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import (
        CreateFleetErrorTypeDef,
        CreateFleetInstanceTypeDef,
        FleetLaunchTemplateOverridesTypeDef,
        InstanceTypeDef,
    )

#: Ids in one call: of TerminateInstances, as AWS advises, and values of one filter.
TERMINATED_AT_ONCE = 1000
FILTER_VALUES_MAX = 200
#: The largest page of a call with filters. A call without a page size is throttled sooner, and
#: in an account of many instances it may time out (EC2 developer guide, "Pagination").
PAGE_SIZE = 1000

#: Spot request status of an instance that EC2 reclaims; it is set with the notice, while the
#: instance still runs (EC2 user guide, "Spot request status").
_RECLAIMED = "instance-terminated-"
_NOT_RECLAIMED = frozenset({"instance-terminated-by-user", "instance-terminated-by-schedule"})
_MARKED = "marked-for-termination"

#: What a request of an instant fleet tags by itself, since the grant asks CreateFleet for it. A
#: network interface is known to be taken by its template's tags alone: Karpenter, whose grant asks
#: the same, says no more either (aws/karpenter-provider-aws, pkg/providers/instance).
_TAGGED = ("instance", "fleet", "volume")


#: What botocore calls the operation that launches.
_CREATE = "ec2.CreateFleet"
#: Said of an answer: botocore had sent the request before, and has no answer to that.
_LOST = "spindown-lost"
#: Refusals that say why a try was refused, and nothing of an earlier one with the same token.
_OF_THIS_TRY = frozenset({RefusalKind.ACCOUNT, RefusalKind.THROTTLE})


class Ec2Compute:
    """Compute on EC2; ``client`` returns the client of a region."""

    def __init__(self, client: "Callable[[str], EC2Client]") -> None:
        self._client = client

    def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """Ask CreateFleet once for an instant fleet."""
        client = self._client(request.region)
        events = client.meta.events
        events.register(f"response-received.{_CREATE}", _note_lost, unique_id=f"{_LOST}-noted")
        events.register(f"after-call.{_CREATE}", _tell_lost, unique_id=f"{_LOST}-told")
        try:
            answer = client.create_fleet(**fleet_arguments(request))
        except ClientError as error:
            code = code_of(error)
            kind = refusal_kind(code, is_whole_request=True)
            if kind in _OF_THIS_TRY and error.response["ResponseMetadata"].get(_LOST):
                # An earlier try may have been carried out; its token gives its answer later.
                found = Throttled if kind is RefusalKind.THROTTLE else Unreachable
                raise found(f"CreateFleet: {code}: {message_of(error)}") from error
            is_open = kind is RefusalKind.UNKNOWN or code in OPEN_ENDED
            if is_server_fault(error) and is_open:
                raise Unreachable(f"CreateFleet: {code}: {message_of(error)}") from error
            refusal = Refusal(kind=kind, code=code, message=refusal_words(code, message_of(error)))
            if code not in OF_OVERRIDES:
                return LaunchAnswer(refusals=(refusal,))
            return LaunchAnswer(
                refusals=tuple(
                    replace(refusal, instance_type=override.instance_type, zone=override.zone)
                    for override in request.overrides
                )
            )
        except BotoCoreError as error:
            raise translate(error) from error
        return LaunchAnswer(
            instances=tuple(
                launched
                for given in answer.get("Instances", [])
                for launched in _launched(request, given)
            ),
            refusals=tuple(_refusal(request, error) for error in answer.get("Errors", [])),
        )

    def rehearse(self, request: LaunchRequest) -> Refusal | None:
        """Ask both calls of a launch with ``DryRun``: CreateFleet, and RunInstances within it.

        A dry run of CreateFleet looks only at the caller's rights to it. Karpenter makes one with a
        template and subnets that do not exist (aws/karpenter-provider-aws,
        pkg/controllers/nodeclass/validation.go). What a policy says of a type or a zone, whether
        the role of the instances may be passed and whether the image fits its disk, RunInstances
        says.
        """
        client = self._client(request.region)
        return _dry_run(lambda: client.create_fleet(**fleet_arguments(request), DryRun=True)) or (
            _dry_run(
                lambda: client.run_instances(**instance_arguments(request), DryRun=True),
                also=_NOT_BESIDE_AN_INTERFACE,
            )
        )

    def instances(self, *, region: str, tags: Mapping[str, str]) -> Sequence[InstanceView]:
        """Return the instances that carry all these tags."""
        return self._find(region, {f"tag:{key}": [value] for key, value in tags.items()})

    def described(self, *, region: str, instance_ids: Sequence[str]) -> Sequence[InstanceView]:
        """Return those of these instances that EC2 describes; an unknown id is no error here."""
        return [
            view
            for some in _chunks(instance_ids, FILTER_VALUES_MAX)
            for view in self._find(region, {"instance-id": some})
        ]

    def _find(self, region: str, filters: Mapping[str, Sequence[str]]) -> list[InstanceView]:
        pages = (
            self._client(region)
            .get_paginator("describe_instances")
            .paginate(
                Filters=[{"Name": name, "Values": values} for name, values in filters.items()],
                PaginationConfig={"PageSize": PAGE_SIZE},
            )
        )
        with translated():
            return [
                _view(region, instance)
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]

    def instance(self, *, region: str, instance_id: str) -> InstanceView:
        """Return one instance."""
        with translated():
            answer = self._client(region).describe_instances(InstanceIds=[instance_id])
        for reservation in answer["Reservations"]:
            for instance in reservation["Instances"]:
                return _view(region, instance)
        raise NotFound(f"no instance {instance_id} in {region}")

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> Mapping[str, str]:
        """Terminate instances; one bad id fails the whole call, then each is tried alone."""
        states: dict[str, str] = {}
        for some in _chunks(instance_ids, TERMINATED_AT_ONCE):
            try:
                states |= self._terminate(region, some)
            except (AccessDenied, Throttled, Unreachable):
                raise
            except SpindownError:
                states |= self._terminate_each(region, some)
        return states

    def reclaimed(self, *, region: str, instance_ids: Sequence[str]) -> frozenset[str]:
        """Return those whose spot request says that EC2 is reclaiming them."""
        found: set[str] = set()
        paginator = self._client(region).get_paginator("describe_spot_instance_requests")
        for some in _chunks(instance_ids, FILTER_VALUES_MAX):
            pages = paginator.paginate(
                Filters=[{"Name": "instance-id", "Values": some}],
                PaginationConfig={"PageSize": PAGE_SIZE},
            )
            with translated():
                found.update(
                    request["InstanceId"]
                    for page in pages
                    for request in page["SpotInstanceRequests"]
                    if _is_reclaimed(request.get("Status", {}).get("Code", ""))
                )
        return frozenset(found)

    def _terminate_each(self, region: str, instance_ids: Sequence[str]) -> dict[str, str]:
        refused: SpindownError | None = None
        states: dict[str, str] = {}
        for instance_id in instance_ids:
            try:
                states |= self._terminate(region, [instance_id])
            except NotFound:
                states[instance_id] = ""
            except SpindownError as error:
                refused = error
        if refused is not None:
            raise refused
        return states

    def _terminate(self, region: str, instance_ids: Sequence[str]) -> dict[str, str]:
        with translated():
            answer = self._client(region).terminate_instances(InstanceIds=instance_ids)
        said = answer.get("TerminatingInstances", [])
        return {each["InstanceId"]: each["CurrentState"]["Name"] for each in said}


def fleet_arguments(request: LaunchRequest) -> dict[str, Any]:
    """Return the arguments of CreateFleet; the order of the overrides is their priority."""
    is_spot = request.capacity_type is CapacityType.SPOT
    has_choice = len(request.overrides) > 1
    strategy: dict[str, str] = {
        "AllocationStrategy": "capacity-optimized-prioritized" if is_spot else "prioritized"
    }
    if is_spot:
        strategy["InstanceInterruptionBehavior"] = "terminate"
    tags = [{"Key": key, "Value": value} for key, value in request.tags.items()]
    return {
        "Type": "instant",
        "ClientToken": request.client_token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": request.template.id,
                    "Version": request.template.version,
                },
                "Overrides": [
                    {
                        "InstanceType": override.instance_type,
                        "SubnetId": override.subnet_id,
                        # Beside the subnet only so that errors name the zone.
                        "AvailabilityZone": override.zone,
                    }
                    | ({"Priority": float(index)} if has_choice else {})
                    # Of an instant fleet (EC2 API Reference,
                    # "FleetLaunchTemplateOverridesRequest").
                    | ({"ImageId": request.image} if request.image else {})
                    for index, override in enumerate(request.overrides)
                ],
            }
        ],
        "SpotOptions" if is_spot else "OnDemandOptions": strategy,
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.count,
            "DefaultTargetCapacityType": request.capacity_type.value,
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in _TAGGED],
    }


def instance_arguments(request: LaunchRequest) -> dict[str, Any]:
    """Return the arguments of RunInstances for one instance of a request's first override.

    A fleet is made by no RunInstances of ours, so its tag stays out.
    """
    override = request.overrides[0]
    tags = [{"Key": key, "Value": value} for key, value in request.tags.items()]
    return {
        "ClientToken": request.client_token,
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {
            "LaunchTemplateId": request.template.id,
            "Version": request.template.version,
        },
        "InstanceType": override.instance_type,
        "SubnetId": override.subnet_id,
        **({"ImageId": request.image} if request.image else {}),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in _TAGGED if kind != "fleet"
        ],
        **(
            {"InstanceMarketOptions": {"MarketType": "spot"}}
            if request.capacity_type is CapacityType.SPOT
            else {}
        ),
    }


#: What EC2 answers to a dry run that would have worked.
_WOULD_HAVE = "DryRunOperation"
#: What it answers where the template has an interface: no subnet may stand beside that. A fleet's
#: subnet may, and our role need not know the group that a request with an interface has to name.
_NOT_BESIDE_AN_INTERFACE = "InvalidParameterCombination"


def _note_lost(
    context: dict[str, Any],
    parsed_response: Mapping[str, Any] | None = None,
    exception: Exception | None = None,
    **_: object,
) -> None:
    """Note of a request that a try of it had no answer, or one that leaves the outcome open."""
    answer = parsed_response or {}
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = refusal_kind(answer.get("Error", {}).get("Code", ""), is_whole_request=True)
    if exception is not None or (status >= 500 and kind is not RefusalKind.THROTTLE):  # noqa: PLR2004 - HTTP
        context[_LOST] = True


def _tell_lost(context: Mapping[str, Any], parsed: dict[str, Any], **_: object) -> None:
    """Say in the last answer to a request that a try before it had none."""
    if context.get(_LOST):
        parsed.setdefault("ResponseMetadata", {})[_LOST] = True


def _dry_run(call: Callable[[], object], *, also: str = "") -> Refusal | None:
    """Return what EC2 has against a call; None: nothing, or what ``also`` is the code of."""
    try:
        call()
    except ClientError as error:
        code = code_of(error)
        kind = refusal_kind(code, is_whole_request=True)
        if code in {_WOULD_HAVE, also}:
            return None
        if is_server_fault(error) or kind is RefusalKind.THROTTLE:
            raise translate(error) from error
        said = f"{error.operation_name}: {message_of(error)}"
        return Refusal(kind=kind, code=code, message=refusal_words(code, said))
    except BotoCoreError as error:
        raise translate(error) from error
    return None


def _launched(
    request: LaunchRequest, given: "CreateFleetInstanceTypeDef"
) -> Sequence[LaunchedInstance]:
    override = given.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    instance_type = str(given.get("InstanceType") or override.get("InstanceType", ""))
    zone = given.get("AvailabilityZone") or _zone(request, override) or ""
    return [
        LaunchedInstance(
            instance_id=instance_id,
            instance_type=instance_type,
            zone=zone,
            capacity_type=request.capacity_type,
        )
        for instance_id in given.get("InstanceIds", [])
    ]


def _refusal(request: LaunchRequest, error: "CreateFleetErrorTypeDef") -> Refusal:
    code = error.get("ErrorCode", "")
    override = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return Refusal(
        kind=refusal_kind(code),
        code=code,
        message=refusal_words(code, error.get("ErrorMessage", "")),
        instance_type=None if code in OF_SUBNET else override.get("InstanceType"),
        zone=_zone(request, override),
    )


def _zone(request: LaunchRequest, override: "FleetLaunchTemplateOverridesTypeDef") -> str | None:
    """Return the zone of an override in an answer, which may name its subnet only."""
    zone = override.get("AvailabilityZone")
    subnet = override.get("SubnetId")
    return zone or next((o.zone for o in request.overrides if o.subnet_id == subnet), None)


def _view(region: str, instance: "InstanceTypeDef") -> InstanceView:
    is_spot = instance.get("InstanceLifecycle") == "spot"
    return InstanceView(
        instance_id=instance["InstanceId"],
        instance_type=instance["InstanceType"],
        region=region,
        zone=instance["Placement"]["AvailabilityZone"],
        capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
        state=instance["State"]["Name"],
        launched_at=instance["LaunchTime"],
        tags={tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])},
        state_reason=instance.get("StateReason", {}).get("Code", ""),
        subnet_id=instance.get("SubnetId", ""),
    )


def _is_reclaimed(code: str) -> bool:
    return code == _MARKED or (code.startswith(_RECLAIMED) and code not in _NOT_RECLAIMED)


def _chunks(ids: Sequence[str], size: int) -> Sequence[Sequence[str]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
