"""Account in memory; what it has and allows is set by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spindown.error import NotFound, SpindownError
from spindown.port import (
    AccountPlan,
    AlarmView,
    Caller,
    ImageView,
    SubnetView,
    SubnetWay,
    Subscriber,
    VpcCount,
)

_ADA = Caller(account="123456789012", arn="arn:aws:iam::123456789012:user/ada")


@dataclass(kw_only=True)
class MemoryAccount:
    """Account in memory. A new one has no image, subnet or parameter, and all else that it needs.

    Images, subnets and parameters are kept by region and name.
    """

    who: Caller = _ADA
    account_plan: AccountPlan | None = AccountPlan.PAID
    spot_role: bool = True
    executions: int = 1000
    vpc_count: VpcCount = field(default_factory=lambda: VpcCount(there=1, quota=5))
    parameters: dict[tuple[str, str], str] = field(default_factory=dict)
    images: dict[tuple[str, str], ImageView] = field(default_factory=dict)
    networks: dict[tuple[str, str], SubnetView] = field(default_factory=dict)
    #: (region, subnet id) -> what it reaches; what is not there has no such answer.
    ways: dict[tuple[str, str], SubnetWay] = field(default_factory=dict)
    #: Prefix -> why it cannot be read; what is not there can.
    unreadable: Mapping[str, SpindownError] = field(default_factory=dict)
    #: Buckets that send their events to EventBridge.
    telling_buckets: set[str] = field(default_factory=set)
    #: ARNs of keys that EC2's role for spot may use.
    lent_to_spot: set[str] = field(default_factory=set)
    #: (region, name) of a schedule -> whether it is on.
    schedules: dict[tuple[str, str], bool] = field(default_factory=dict)
    #: (region, name) of a rule -> whether it is on.
    rules: dict[tuple[str, str], bool] = field(default_factory=dict)
    #: (region, name) of an alarm -> what is seen of it.
    alarm_views: dict[tuple[str, str], AlarmView] = field(default_factory=dict)
    #: ARN of a topic -> who has subscribed to it.
    topics: dict[str, Sequence[Subscriber]] = field(default_factory=dict)
    #: Method -> the error with which each of its calls ends.
    faults: dict[str, SpindownError] = field(default_factory=dict)

    def caller(self) -> Caller:
        """Return who asks."""
        self._fail("caller")
        return self.who

    def plan(self) -> AccountPlan | None:
        """Return the account's plan."""
        self._fail("plan")
        return self.account_plan

    def has_spot_role(self) -> bool:
        """Tell whether the role for spot requests is there."""
        self._fail("has_spot_role")
        return self.spot_role

    def concurrency(self, *, region: str) -> int:  # noqa: ARG002 - the same in every region
        """Return how many executions Lambda runs at once."""
        self._fail("concurrency")
        return self.executions

    def parameter(self, name: str, *, region: str) -> str:
        """Return the value of a parameter."""
        self._fail("parameter")
        if (region, name) not in self.parameters:
            raise NotFound(f"no parameter {name} in {region}")
        return self.parameters[region, name]

    def image(self, image_id: str, *, region: str) -> ImageView:
        """Return an image."""
        self._fail("image")
        if (region, image_id) not in self.images:
            raise NotFound(f"no image {image_id} in {region}")
        return self.images[region, image_id]

    def subnets(self, subnet_ids: Sequence[str], *, region: str) -> Sequence[SubnetView]:
        """Return those of the subnets that exist."""
        self._fail("subnets")
        keys = [(region, subnet_id) for subnet_id in subnet_ids]
        return [self.networks[key] for key in keys if key in self.networks]

    def ways_out(self, subnet_ids: Sequence[str], *, region: str) -> Mapping[str, SubnetWay]:
        """Return what those of the subnets reach that exist."""
        self._fail("ways_out")
        return {one: self.ways[region, one] for one in subnet_ids if (region, one) in self.ways}

    def vpcs(self, *, region: str) -> VpcCount:  # noqa: ARG002 - the same in every region
        """Return how many VPCs there are and may be."""
        self._fail("vpcs")
        return self.vpc_count

    def try_input(self, uri_prefix: str) -> None:
        """Look whether a prefix can be read."""
        self._fail("try_input")
        if uri_prefix in self.unreadable:
            raise self.unreadable[uri_prefix]

    def sends_events(self, bucket: str) -> bool:
        """Tell whether a bucket sends its events to EventBridge."""
        self._fail("sends_events")
        if bucket in self.unreadable:
            raise self.unreadable[bucket]
        return bucket in self.telling_buckets

    def try_secret(self, name: str, *, region: str) -> None:
        """See that a secret can be had."""
        del region
        self._fail("try_secret")
        if name in self.unreadable:
            raise self.unreadable[name]

    def try_key(self, arn: str) -> None:
        """See that a KMS key can be used."""
        self._fail("try_key")
        if arn in self.unreadable:
            raise self.unreadable[arn]

    def lends_key_to_spot(self, arn: str) -> bool:
        """Tell whether EC2's role for spot may use a key."""
        self._fail("lends_key_to_spot")
        return arn in self.lent_to_spot

    def is_scheduled(self, name: str, *, region: str) -> bool:
        """Tell whether a schedule is on."""
        self._fail("is_scheduled")
        if (region, name) not in self.schedules:
            raise NotFound(f"no schedule {name} in {region}")
        return self.schedules[region, name]

    def is_rule_on(self, name: str, *, region: str) -> bool:
        """Tell whether a rule is on."""
        self._fail("is_rule_on")
        if (region, name) not in self.rules:
            raise NotFound(f"no rule {name} in {region}")
        return self.rules[region, name]

    def alarms(self, prefix: str, *, region: str) -> Mapping[str, AlarmView]:
        """Return the alarms whose names begin so."""
        self._fail("alarms")
        return {
            name: view
            for (where, name), view in self.alarm_views.items()
            if where == region and name.startswith(prefix)
        }

    def subscribers(self, topic_arn: str) -> Sequence[Subscriber]:
        """Return who has subscribed."""
        self._fail("subscribers")
        if topic_arn not in self.topics:
            raise NotFound(f"no topic {topic_arn}")
        return self.topics[topic_arn]

    def _fail(self, method: str) -> None:
        if method in self.faults:
            raise self.faults[method]
