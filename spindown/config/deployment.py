"""The tables of ``[deployment]``: its home region, and further regions where workers may run."""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from spindown.config.form import (
    AccountId,
    AddressRange,
    BucketName,
    Destination,
    Duration,
    EmailAddress,
    Flag,
    KeyArn,
    Name,
    PolicyName,
    Positive,
    Qualifier,
    Region,
    RoleNamePrefix,
    RolePath,
    RouteTableId,
    SecretReference,
    SubnetId,
    TagKey,
    TagValue,
    TomlTable,
    name_pattern,
    remedy,
)
from spindown.domain.batch import EndsTold

#: A role takes ten managed policies (AWS, "IAM and AWS STS quotas"), one of each outpost.
OUTPOSTS_AT_MOST = 9

#: CDK's own.
USUAL_QUALIFIER = "hnb659fds"

#: Characters of a managed policy, without white space (AWS IAM User Guide, "IAM and AWS STS
#: quotas").
POLICY_CHARACTERS_MAX = 6_144

#: Characters that are kept of a stack's name in the names that CloudFormation makes.
KEPT_OF_STACK = 20

#: A resource takes 50 tags, and an instance bears up to 18 of Spindown's own (``contract.tag``).
TAGS_AT_MOST = 25
#: Of all keys and values together: they are in a parameter, whose smallest size is 4 KiB.
TAG_CHARACTERS_AT_MOST = 2_000
#: How the keys of others' tags begin, in any case: AWS's, and Spindown's.
_OTHERS_TAGS = ("aws:", "spindown:")

#: Days that CloudWatch Logs can keep what it is sent (Amazon CloudWatch Logs API Reference,
#: "PutRetentionPolicy"); for longer than any duration may be, it cannot be asked here.
RETENTION_DAYS = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180,
    365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288,
)  # fmt: skip


def _be_a_retention(value: timedelta) -> timedelta:
    if value not in {timedelta(days=days) for days in RETENTION_DAYS}:
        known = ", ".join(f"{days}d" for days in RETENTION_DAYS)
        raise ValueError(f"write one of those that CloudWatch Logs knows: {known}")
    return value


Retention = Annotated[Duration, AfterValidator(_be_a_retention)]

#: Messages, which may begin a job anew, live for weeks (``contract.queue``), and a job for days.
_WORK_KEPT_AT_LEAST = timedelta(days=60)


def _be_whole_days(value: timedelta) -> timedelta:
    if value % timedelta(days=1) or value < _WORK_KEPT_AT_LEAST:
        raise ValueError(f"write whole days, at least {_WORK_KEPT_AT_LEAST.days}d")
    return value


WorkRetention = Annotated[Duration, AfterValidator(_be_whole_days)]


def bootstrap_parameter(qualifier: str) -> str:
    """Return the SSM parameter in which ``cdk bootstrap`` leaves the version of what it made."""
    return f"/cdk-bootstrap/{qualifier}/version"


class NetworkConfig(TomlTable):
    """An existing network of a region; without it a small one is made."""

    vpc_id: Annotated[str, name_pattern("a VPC id", r"vpc-[0-9a-f]+", "the form vpc-0123abcd")]
    #: zone -> subnet id.
    subnets: dict[str, SubnetId] = Field(min_length=1)
    #: Where gateway endpoints are made; empty: none is.
    route_tables: tuple[RouteTableId, ...] = ()
    #: Whether the interface endpoints are made that workers need.
    interface_endpoints: Flag = False
    #: Ranges of the hosts that may use these; empty: all private ones.
    endpoint_clients: tuple[AddressRange, ...] = ()
    #: Where the functions' traffic leaves; empty: they are in no VPC of the account. As many as a
    #: function may have (AWS Lambda API Reference, "VpcConfig").
    function_subnets: tuple[SubnetId, ...] = Field(default=(), max_length=16)


class RegionConfig(TomlTable):
    """``[deployment.outpost.REGION]``: where workers may run in another region."""

    zones: tuple[str, ...] = Field(min_length=1)
    network: NetworkConfig | None = None
    #: Where workers there may send; empty: where those at home may.
    egress: tuple[Destination, ...] = ()
    #: The key of that region that encrypts what is stored there.
    kms_key_arn: KeyArn | None = None


class DeploymentConfig(TomlTable):
    """``[deployment]``."""

    name: Name
    region: Region
    zones: tuple[str, ...] = Field(min_length=1)
    budget_per_month: Positive | None = None
    #: Who gets the alarms; AWS asks this address to confirm. None: nobody is told.
    alarm_email: EmailAddress | None = None
    #: The secret that holds the address of a webhook, which is told the same; None: none is.
    alarm_webhook: SecretReference | None = None
    #: Which ends of batches both are told.
    alarm_batches: EndsTold = EndsTold.ALL
    network: NetworkConfig | None = None
    #: Whether workers have public addresses; without them a network that is made has endpoints.
    public_addresses: Flag = True
    #: Where workers at home may send; empty: anywhere, or port 443 where only endpoints lead out.
    egress: tuple[Destination, ...] = ()
    #: Whether a VPC that is made logs its connections.
    flow_log: Flag = False
    #: Whether CloudWatch looks at workers' instances each minute, which AWS bills.
    detailed_monitoring: Flag = False
    #: A bucket of the region that takes access logs of the deployment's own; None: there are none.
    access_log_bucket: BucketName | None = None
    #: Whether the bucket tells EventBridge of its objects.
    bucket_events: Flag = False
    #: Whether objects of the bucket can be locked; it can never be turned off again.
    object_lock: Flag = False
    #: Whether people with the right may open a shell on workers by SSM Session Manager.
    session_manager: Flag = False
    #: Whether `spindown verify` may have AWS Fault Injection Service interrupt its machines.
    fault_injection: Flag = False
    #: On all that is made, instances and their disks among it.
    tags: dict[TagKey, TagValue] = Field(default_factory=dict, max_length=TAGS_AT_MOST)
    #: The managed policy that bounds every role: its name in the account, or its ARN.
    permissions_boundary: PolicyName | None = None
    #: Of roles, policies and instance profiles; None: IAM's own, "/".
    role_path: RolePath | None = None
    #: How the name of every role begins; None: CloudFormation names the roles.
    role_name_prefix: RoleNamePrefix | None = None
    #: What ``cdk bootstrap --qualifier`` was given; None: CDK's own.
    bootstrap_qualifier: Qualifier | None = None
    #: Your own key, which encrypts all that is stored; None: AWS's keys do.
    kms_key_arn: KeyArn | None = None
    #: Accounts whose images may be started, beside AWS's and this one.
    image_owners: tuple[AccountId, ...] = ()
    #: How long logs of functions and workers are kept.
    log_retention: Retention = timedelta(days=30)
    #: Whether they stay so long when the deployment is deleted.
    keep_logs: Flag = False
    #: Whether its stacks and its ledger refuse to be deleted.
    protect: Flag = False
    #: How long inputs, results and all else of jobs stay in the bucket; None: for ever.
    work_retention: WorkRetention | None = None
    #: Further regions where workers may run.
    outpost: dict[Region, RegionConfig] = Field(default_factory=dict, max_length=OUTPOSTS_AT_MOST)

    @model_validator(mode="after")
    def _be_in_regions(self) -> "DeploymentConfig":
        if self.region in self.outpost:
            raise remedy(f"outpost.{self.region}", "take it out: workers run at home anyway")
        for region, place in self.regions.items():
            table = "" if region == self.region else f"outpost.{region}."
            _check_place(table, region, place)
            if region != self.region and place.network and place.network.interface_endpoints:
                advice = "take it out: endpoints lead to no other region, and queues are at home"
                raise remedy(f"{table}network.interface_endpoints", advice)
            if (place.kms_key_arn is None) != (self.kms_key_arn is None):
                advice = "name a key in every region, or in none"
                raise remedy(f"{table}kms_key_arn", advice)
        return self

    @model_validator(mode="after")
    def _have_functions_in_one_kind_of_place(self) -> "DeploymentConfig":
        """Refuse functions in a VPC of one region alone: each region has some."""
        placed = {
            region
            for region, one in self.regions.items()
            if one.network and one.network.function_subnets
        }
        for region, place in self.regions.items():
            if placed and region not in placed:
                table = "" if region == self.region else f"outpost.{region}."
                key = "network.function_subnets" if place.network else "network"
                what = "some" if place.network else "one with function_subnets"
                raise remedy(f"{table}{key}", f"name {what}, in every region or in none")
        return self

    @model_validator(mode="after")
    def _be_in_one_account(self) -> "DeploymentConfig":
        """Refuse a boundary of another account than the key's: IAM takes only one of its own."""
        boundary = (self.permissions_boundary or "").split(":")
        if len(boundary) > 1 and boundary[4] != "aws":
            for place in self.regions.values():
                key = (place.kms_key_arn or "").split(":")
                if len(key) > 1 and key[4] != boundary[4]:
                    advice = f"name a policy of {key[4]}, the account of kms_key_arn, or its name"
                    raise remedy("permissions_boundary", advice)
        return self

    @model_validator(mode="after")
    def _keep_the_boundary_apart(self) -> "DeploymentConfig":
        """Refuse a boundary whose name is one that a deploy may write (``spindown iam``)."""
        named = self.permissions_boundary or ""
        written = named.partition(":policy")[2] if named.startswith("arn:") else f"/{named}"
        begins = (self.role_name_prefix or "") + f"{self.name}-"[:KEPT_OF_STACK]
        if written.startswith(f"{self.role_path or '/'}{begins}"):
            advice = f"name a policy that does not begin with {begins}: a deploy may change those"
            raise remedy("permissions_boundary", advice)
        return self

    @model_validator(mode="after")
    def _let_workers_call_aws(self) -> "DeploymentConfig":
        for region, place in self.regions.items():
            if place.egress and not any(one.endswith(":443") for one in place.egress):
                where = "egress" if region == self.region else f"outpost.{region}.egress"
                raise remedy(where, "add a destination at port 443: workers call AWS there")
        own = [one for one in self.egress if _is_of_home(one)]
        for region, place in self.outpost.items():
            if own and not place.egress:
                advice = f"name destinations of {region}: home's {own[0]} holds for home alone"
                raise remedy(f"outpost.{region}.egress", advice)
        return self

    @model_validator(mode="after")
    def _keep_tags_apart(self) -> "DeploymentConfig":
        for key in self.tags:
            if key.lower().startswith(_OTHERS_TAGS) or key.lower() == "name":
                own = "Spindown names what it makes" if key.lower() == "name" else "it is not yours"
                raise remedy(f"tags.{key}", f"take this key out: {own}")
        # To IAM both are one tag (IAM User Guide, "Tags for IAM resources").
        for key, count in Counter(map(str.lower, self.tags)).items():
            if count > 1:
                raise remedy("tags", f"write {key} once: to IAM, upper and lower case are the same")
        if sum(len(key) + len(value) for key, value in self.tags.items()) > TAG_CHARACTERS_AT_MOST:
            most = f"all together may have {TAG_CHARACTERS_AT_MOST} characters"
            raise remedy("tags", f"make keys and values shorter: {most}")
        return self

    @property
    def qualifier(self) -> str:
        """Return what names the roles and the bucket of ``cdk bootstrap``."""
        return self.bootstrap_qualifier or USUAL_QUALIFIER

    @property
    def is_heard(self) -> bool:
        """Tell whether anybody is told what alarms and alerts say."""
        return self.alarm_email is not None or self.alarm_webhook is not None

    @property
    def regions(self) -> Mapping[str, RegionConfig]:
        """Return every region where workers may run; home comes first."""
        home = RegionConfig.model_construct(
            zones=self.zones,
            network=self.network,
            egress=self.egress,
            kms_key_arn=self.kms_key_arn,
        )
        outposts = {
            region: place if place.egress else place.model_copy(update={"egress": self.egress})
            for region, place in sorted(self.outpost.items())
        }
        return {self.region: home, **outposts}


class DraftDeploymentConfig(DeploymentConfig):
    """``[deployment]`` of a file that nothing can be deployed from yet."""

    zones: tuple[str, ...] = ()


#: Addresses of networks that are somebody's own (RFC 1918, RFC 6598).
_PRIVATE = tuple(
    map(IPv4Network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"))
)


def _is_of_home(destination: str) -> bool:
    """Tell whether a destination is another one, or none, in another region."""
    where = destination.partition(":")[0]
    return where.startswith("pl-") or any(IPv4Network(where).subnet_of(one) for one in _PRIVATE)


def _check_place(table: str, region: str, place: RegionConfig) -> None:
    for zone in place.zones:
        if not re.fullmatch(re.escape(region) + "[a-z]", zone):
            advice = f"write zones of {region}, such as {region}a: {zone} is none"
            raise remedy(f"{table}zones", advice)
    if len(set(place.zones)) < len(place.zones):
        raise remedy(f"{table}zones", "name each zone once")
    if place.kms_key_arn is not None and place.kms_key_arn.split(":")[3] != region:
        raise remedy(
            f"{table}kms_key_arn", f"name a key of {region}: one of another cannot be used"
        )
    if place.network is not None:
        subnets = place.network.subnets
        odd = sorted(subnets.keys() ^ set(place.zones))
        if odd or len(set(subnets.values())) < len(subnets):
            why = f": {odd[0]} {'has none' if odd[0] in place.zones else 'is not among them'}"
            advice = f"give each of the zones one subnet of its own{why if odd else ''}"
            raise remedy(f"{table}network", advice)
        functions = place.network.function_subnets
        if len(set(functions)) < len(functions):
            raise remedy(f"{table}network.function_subnets", "name each subnet once")
