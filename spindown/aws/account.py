"""Account on AWS: each service is asked for what it knows."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spindown.aws.error import (
    translated,
)
from spindown.contract.location import parse_location
from spindown.contract.run_spec import is_parameter
from spindown.error import NotFound
from spindown.port import (
    VPC_CODE,
    AccountPlan,
    AlarmView,
    Caller,
    ImageView,
    SubnetView,
    SubnetWay,
    Subscriber,
    VpcCount,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_service_quotas import ServiceQuotasClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient


#: The only region in which AWS Free Tier answers.
FREE_TIER_REGION = "us-east-1"

_SPOT_ROLE = "AWSServiceRoleForEC2Spot"
_NO_ROLE = {"NoSuchEntity": NotFound}
_NO_IMAGE = {
    "InvalidAMIID.Malformed": NotFound,
    "InvalidAMIID.NotFound": NotFound,
    "InvalidAMIID.Unavailable": NotFound,
}
_NO_SECRET = {"ResourceNotFoundException": NotFound}
_NO_KEY = {"NotFoundException": NotFound}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What makes the clients, each called when it is needed; regional ones by region."""

    sts: "Callable[[], STSClient]"
    iam: "Callable[[], IAMClient]"
    #: boto3's stubs leave these services out.
    free_tier: Callable[[], Any]
    secrets: Callable[[str], Any]
    keys: Callable[[str], Any]
    schedules: Callable[[str], Any]
    rules: Callable[[str], Any]
    alarms: Callable[[str], Any]
    topics: Callable[[str], Any]
    functions: "Callable[[str], LambdaClient]"
    quotas: "Callable[[str], ServiceQuotasClient]"
    ssm: "Callable[[str], SSMClient]"
    ec2: "Callable[[str], EC2Client]"
    s3: "Callable[[], S3Client]"


class AwsAccount:
    """Account on AWS; every call only reads."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def caller(self) -> Caller:
        """Return whose credentials these are."""
        with translated():
            answer = self._clients.sts().get_caller_identity()
        return Caller(account=answer["Account"], arn=answer["Arn"])

    def plan(self) -> AccountPlan | None:
        """Return the account's plan; an account from before there were plans has none."""
        try:
            with translated():
                answer = self._clients.free_tier().get_account_plan_state()
        except NotFound:
            return None
        is_free = answer["accountPlanType"] == "FREE"
        return AccountPlan.FREE if is_free else AccountPlan.PAID

    def has_spot_role(self) -> bool:
        """Tell whether EC2's service-linked role for spot requests is there."""
        try:
            with translated(_NO_ROLE):
                self._clients.iam().get_role(RoleName=_SPOT_ROLE)
        except NotFound:
            return False
        return True

    def concurrency(self, *, region: str) -> int:
        """Return how many executions Lambda runs at once for the whole account."""
        with translated():
            answer = self._clients.functions(region).get_account_settings()
        return answer["AccountLimit"]["ConcurrentExecutions"]

    def parameter(self, name: str, *, region: str) -> str:
        """Return the value of an SSM parameter."""
        with translated():
            answer = self._clients.ssm(region).get_parameter(Name=name)
        return answer["Parameter"]["Value"]

    def image(self, image_id: str, *, region: str) -> ImageView:
        """Return an image."""
        with translated(_NO_IMAGE):
            found = self._clients.ec2(region).describe_images(ImageIds=[image_id])["Images"]
        if not found:
            raise NotFound(f"no image {image_id} in {region}")
        return _view(found[0])

    def subnets(self, subnet_ids: Sequence[str], *, region: str) -> Sequence[SubnetView]:
        """Return those of the subnets that exist."""
        if not subnet_ids:
            return ()
        # By a filter, since one unknown id fails a call that names ids.
        pages = (
            self._clients.ec2(region)
            .get_paginator("describe_subnets")
            .paginate(Filters=[{"Name": "subnet-id", "Values": list(subnet_ids)}])
        )
        with translated():
            return [
                SubnetView(
                    subnet_id=subnet["SubnetId"],
                    zone=subnet["AvailabilityZone"],
                    free_addresses=subnet["AvailableIpAddressCount"],
                    vpc_id=subnet["VpcId"],
                )
                for page in pages
                for subnet in page["Subnets"]
            ]

    def ways_out(self, subnet_ids: Sequence[str], *, region: str) -> Mapping[str, SubnetWay]:
        """Return what the subnets reach: by their route tables, and the endpoints of their VPCs."""
        if not subnet_ids:
            return {}
        client = self._clients.ec2(region)

        def pages(call: str, found: str, **filters: Sequence[str]) -> list[Any]:
            asked = [{"Name": n.replace("_", "-"), "Values": list(v)} for n, v in filters.items()]
            paginator = client.get_paginator(call)  # type: ignore[call-overload]  # by its name
            return [one for page in paginator.paginate(Filters=asked) for one in page[found]]

        with translated():
            subnets = pages("describe_subnets", "Subnets", subnet_id=subnet_ids)
            vpcs = sorted({one["VpcId"] for one in subnets})
            if not vpcs:
                return {}
            tables = pages("describe_route_tables", "RouteTables", vpc_id=vpcs)
            endpoints = pages("describe_vpc_endpoints", "VpcEndpoints", vpc_id=vpcs)
        return {
            subnet["SubnetId"]: _way(subnet, _table_of(subnet, tables), endpoints)
            for subnet in subnets
        }

    def vpcs(self, *, region: str) -> VpcCount:
        """Count VPCs, and read their quota."""
        with translated():
            pages = self._clients.ec2(region).get_paginator("describe_vpcs").paginate()
            there = sum(len(page["Vpcs"]) for page in pages)
            answer = self._clients.quotas(region).get_service_quota(
                ServiceCode="vpc", QuotaCode=VPC_CODE
            )
        return VpcCount(there=there, quota=answer["Quota"]["Value"])

    def try_input(self, uri_prefix: str) -> None:
        """List a prefix and look at its first object."""
        at = parse_location(uri_prefix)
        client = self._clients.s3()
        with translated():
            listed = client.list_objects_v2(Bucket=at.bucket, Prefix=at.key, MaxKeys=1)
            for found in listed.get("Contents", []):
                client.head_object(Bucket=at.bucket, Key=found["Key"])

    def sends_events(self, bucket: str) -> bool:
        """Read what a bucket tells whom of."""
        with translated():
            found = self._clients.s3().get_bucket_notification_configuration(Bucket=bucket)
        # An empty table says that it is on; without one it is off.
        return "EventBridgeConfiguration" in found

    def try_secret(self, name: str, *, region: str) -> None:
        """See that a secret is there, unread."""
        with translated(_NO_SECRET):
            if is_parameter(name):
                self._clients.ssm(region).get_parameter(Name=name)
            else:
                self._clients.secrets(region).describe_secret(SecretId=name)

    def try_key(self, arn: str) -> None:
        """See that a KMS key is there and enabled."""
        with translated(_NO_KEY):
            found = self._clients.keys(arn.split(":")[3]).describe_key(KeyId=arn)
        if not found["KeyMetadata"]["Enabled"]:
            raise NotFound(f"{arn} is {found['KeyMetadata']['KeyState']}")

    def lends_key_to_spot(self, arn: str) -> bool:
        """Look for EC2's role for spot among the key's grants, then in its policy."""
        client = self._clients.keys(arn.split(":")[3])
        with translated(_NO_KEY):
            pages = client.get_paginator("list_grants").paginate(KeyId=arn)
            if any(
                grant.get("GranteePrincipal", "").endswith(f"/{_SPOT_ROLE}")
                for page in pages
                for grant in page["Grants"]
            ):
                return True
            return _SPOT_ROLE in client.get_key_policy(KeyId=arn, PolicyName="default")["Policy"]

    def is_scheduled(self, name: str, *, region: str) -> bool:
        """Ask EventBridge Scheduler."""
        with translated():
            found = self._clients.schedules(region).get_schedule(Name=name)
        return bool(found["State"] == "ENABLED")

    def is_rule_on(self, name: str, *, region: str) -> bool:
        """Ask EventBridge."""
        with translated():
            found = self._clients.rules(region).describe_rule(Name=name)
        return bool(found["State"] == "ENABLED")

    def alarms(self, prefix: str, *, region: str) -> Mapping[str, AlarmView]:
        """Ask CloudWatch; an alarm that was never judged is as old as its last change."""
        with translated():
            pages = self._clients.alarms(region).get_paginator("describe_alarms")
            return {
                one["AlarmName"]: AlarmView(
                    state=one["StateValue"],
                    since=one.get("StateTransitionedTimestamp", one["StateUpdatedTimestamp"]),
                    acts=one["ActionsEnabled"],
                )
                for page in pages.paginate(AlarmNamePrefix=prefix)
                for one in page["MetricAlarms"]
            }

    def subscribers(self, topic_arn: str) -> Sequence[Subscriber]:
        """Ask SNS: only what is confirmed has an ARN (Amazon SNS API Reference, "Subscribe")."""
        with translated():
            client = self._clients.topics(topic_arn.split(":")[3])
            pages = client.get_paginator("list_subscriptions_by_topic")
            return [
                Subscriber(
                    protocol=one["Protocol"],
                    endpoint=one["Endpoint"],
                    is_confirmed=one["SubscriptionArn"].startswith("arn:"),
                )
                for page in pages.paginate(TopicArn=topic_arn)
                for one in page["Subscriptions"]
            ]


def _view(image: "ImageTypeDef") -> ImageView:
    root = image.get("RootDeviceName")
    sizes = [
        mapping["Ebs"].get("VolumeSize", 0)
        for mapping in image.get("BlockDeviceMappings", [])
        if mapping.get("DeviceName") == root and "Ebs" in mapping
    ]
    return ImageView(
        image_id=image["ImageId"],
        architecture=image["Architecture"],
        state=image["State"],
        root_gib=max(sizes, default=0),
        root_device=root or "",
    )


def _table_of(
    subnet: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the route table of a subnet: its own, or else the main one of its VPC.

    None: where another account shares the subnet, the main one is that account's to see.
    """
    ours = [one for one in tables if one["VpcId"] == subnet["VpcId"]]
    links = [(link, one) for one in ours for link in one.get("Associations", ())]
    own = [one for link, one in links if link.get("SubnetId") == subnet["SubnetId"]]
    main = [one for link, one in links if link.get("Main")]
    return next(iter([*own, *main]), None)


#: What a route leads to, but for what a gateway is.
_TARGETS = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId")


#: What AWS calls the services that endpoints are of.
_SERVICE = re.compile(r"com\.amazonaws\.[\w-]+\.(.+)")


def _way(
    subnet: Mapping[str, Any],
    table: Mapping[str, Any] | None,
    endpoints: Sequence[Mapping[str, Any]],
) -> SubnetWay:
    """Return what a subnet reaches.

    An endpoint serves a whole VPC if it has a private DNS name, or the subnets whose route table
    names it (AWS PrivateLink Guide, "Interface VPC endpoints", "Gateway endpoints").
    """
    known = table or {}
    routes = [
        next((route[name] for name in ("GatewayId", *_TARGETS) if route.get(name)), "a route")
        for route in known.get("Routes", ())
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State") != "blackhole"
    ]
    serving = [
        one["ServiceName"]
        for one in endpoints
        if one["VpcId"] == subnet["VpcId"]
        and one.get("State", "available").lower() == "available"
        and (
            one.get("PrivateDnsEnabled")
            if one["VpcEndpointType"] == "Interface"
            else known.get("RouteTableId") in one.get("RouteTableIds", ())
        )
    ]
    return SubnetWay(
        subnet_id=subnet["SubnetId"],
        is_public=subnet.get("MapPublicIpOnLaunch", False),
        default_route=None if table is None else next(iter(routes), ""),
        endpoints=frozenset(found[1] for found in map(_SERVICE.fullmatch, serving) if found),
        gateway_block=subnet.get("BlockPublicAccessStates", {}).get(
            "InternetGatewayBlockMode", "off"
        ),
    )
