"""From the templates to quantities: what each resource uses in a month without work."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.cost.idle import HOURS_A_MONTH, JUDGEMENT, LEDGER_GIB, REFRESH, TICK, Errand
from infra.cost.price import PRICES, Usage
from spindown.error import ContractError

#: Resources of one template by logical id.
Resources = Mapping[str, Mapping[str, Any]]

#: Largest standard parameter, which is free (AWS Systems Manager quotas).
_STANDARD_PARAMETER = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """So much of something a month, and for what."""

    usage: Usage
    quantity: float
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """All lines of one price."""

    usage: Usage
    quantity: float
    purposes: tuple[str, ...]

    @property
    def listed(self) -> float:
        """Return USD a month by list price."""
        return self.quantity * PRICES[self.usage].each

    @property
    def billed(self) -> float:
        """Return USD a month after what every account has for nothing."""
        price = PRICES[self.usage]
        return max(0.0, self.quantity - price.free) * price.each


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A month without work."""

    charges: tuple[Charge, ...]
    #: Name of an alarm -> metrics that it reads, by which it is billed.
    alarms: Mapping[str, int]
    #: Type of resource -> (how many, why it costs nothing).
    free: Mapping[str, tuple[int, str]]

    @property
    def listed(self) -> float:
        """Return USD a month by list price."""
        return sum(charge.listed for charge in self.charges)

    @property
    def billed(self) -> float:
        """Return USD a month in an account that uses its free allowances for nothing else."""
        return sum(charge.billed for charge in self.charges)


def estimate(templates: Mapping[str, Resources]) -> Estimate:
    """Return what the stacks cost a month while nothing happens.

    Raises:
        ContractError: a type of resource of which nothing is known, or that is used in a way
            that costs more than its kind.
    """
    lines: list[Line] = []
    free: dict[str, tuple[int, str]] = {}
    for resources in templates.values():
        for name, resource in resources.items():
            kind = resource["Type"]
            found = list(_lines(name, kind, resource.get("Properties", {}), resources))
            lines += found
            if not found:
                free[kind] = free.get(kind, (0, ""))[0] + 1, _FREE[kind]
    return Estimate(charges=tuple(_add_up(lines)), alarms=dict(_alarms(templates)), free=free)


def _alarms(templates: Mapping[str, Resources]) -> Iterator[tuple[str, int]]:
    for resources in templates.values():
        for name, resource in resources.items():
            if resource["Type"] == "AWS::CloudWatch::Alarm":
                properties = resource.get("Properties", {})
                yield str(properties.get("AlarmName", name)), _metrics_of(properties)


Properties = Mapping[str, Any]


def _lines(name: str, kind: str, properties: Properties, resources: Resources) -> Iterator[Line]:
    if kind in _PAID:
        yield from _PAID[kind](properties, resources)
    elif kind not in _FREE:
        raise ContractError(
            f"type of {name}", kind, "say in infra/cost/estimate.py what it costs while idle"
        )


def _add_up(lines: list[Line]) -> Iterator[Charge]:
    for usage in Usage:
        mine = [line for line in lines if line.usage is usage]
        if mine:
            yield Charge(
                usage=usage,
                quantity=sum(line.quantity for line in mine),
                purposes=tuple(sorted({line.purpose for line in mine})),
            )


def _alarm(properties: Properties, _: Resources) -> Iterator[Line]:
    yield Line(usage=Usage.ALARM_METRIC, quantity=_metrics_of(properties), purpose="alarms")


def _metrics_of(properties: Properties) -> int:
    """Return how many metrics an alarm is billed for."""
    queries = properties.get("Metrics", [])
    read = sum("MetricStat" in query for query in queries) or 1
    # A band of usual values is billed as two metrics besides the one that it is of.
    bands = sum("ANOMALY_DETECTION_BAND" in query.get("Expression", "") for query in queries)
    return read + 2 * bands


def _dashboard(_: Properties, __: Resources) -> Iterator[Line]:
    yield Line(usage=Usage.DASHBOARD, quantity=1, purpose="one a workload, one overview")


def _schedule(properties: Properties, resources: Resources) -> Iterator[Line]:
    times = HOURS_A_MONTH / _hours(properties["ScheduleExpression"])
    target = properties["Target"]
    function = resources[target["Arn"]["Fn::GetAtt"][0]]["Properties"]
    ticks = "workload" in json.loads(target["Input"])
    errand, purpose = (TICK, "ticks") if ticks else (REFRESH, "refresh of offers")
    gib_seconds = errand.seconds * function["MemorySize"] / 1024
    yield Line(usage=Usage.SCHEDULE, quantity=times, purpose=purpose)
    yield Line(usage=Usage.LAMBDA_REQUEST, quantity=times, purpose=purpose)
    yield Line(usage=Usage.LAMBDA_GIB_SECOND, quantity=times * gib_seconds, purpose=purpose)
    yield from _errand(errand, times, purpose)
    if not ticks:
        yield from _judgement(times, function["MemorySize"], resources)


def _judgement(times: float, memory_mib: float, resources: Resources) -> Iterator[Line]:
    """Yield what the refresh of the offers does besides for each workload, which has a tick."""
    schedules = (
        json.loads(one["Properties"]["Target"]["Input"])
        for one in resources.values()
        if one["Type"] == "AWS::Scheduler::Schedule"
    )
    for _ in [target for target in schedules if "workload" in target]:
        gib_seconds = times * JUDGEMENT.seconds * memory_mib / 1024
        yield Line(usage=Usage.LAMBDA_GIB_SECOND, quantity=gib_seconds, purpose="judging costs")
        yield from _errand(JUDGEMENT, times, "judging costs")


def _errand(errand: Errand, times: float, purpose: str) -> Iterator[Line]:
    yield Line(usage=Usage.CUSTOM_METRIC, quantity=errand.metrics, purpose=purpose)
    for usage, quantity in errand.used.items():
        yield Line(usage=usage, quantity=times * quantity, purpose=purpose)


_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNIT_HOURS = {"minute": 1 / 60, "hour": 1.0, "day": 24.0}


def _hours(expression: str) -> float:
    match = _RATE.fullmatch(expression)
    if match is None:
        raise ContractError("ScheduleExpression", expression, "read it in infra/cost/estimate.py")
    return int(match[1]) * _UNIT_HOURS[match[2]]


def _table(properties: Properties, _: Resources) -> Iterator[Line]:
    if properties.get("BillingMode") != "PAY_PER_REQUEST":
        raise ContractError("BillingMode", properties.get("BillingMode"), "pay by request")
    yield Line(usage=Usage.TABLE_GIB, quantity=LEDGER_GIB, purpose="ledger")
    yield Line(usage=Usage.TABLE_BACKUP_GIB, quantity=LEDGER_GIB, purpose="ledger")


def _parameter(properties: Properties, _: Resources) -> Iterator[Line]:
    if len(json.dumps(properties["Value"])) > _STANDARD_PARAMETER:
        yield Line(usage=Usage.PARAMETER, quantity=1, purpose="settings of over 4 KB")


def _endpoint(properties: Properties, _: Resources) -> Iterator[Line]:
    if properties.get("VpcEndpointType") != "Gateway":
        raise ContractError(
            "VpcEndpointType", properties.get("VpcEndpointType"), "Gateway, or it bills by the hour"
        )
    yield from ()


_PAID: Mapping[str, Callable[[Properties, Resources], Iterator[Line]]] = {
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::CloudWatch::Dashboard": _dashboard,
    "AWS::DynamoDB::GlobalTable": _table,
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::SSM::Parameter": _parameter,
    "AWS::Scheduler::Schedule": _schedule,
}

_IDENTITY = "IAM is free"
_NETWORK = "free without instances; there is no NAT gateway and no public address"
_RULE = "part of what it belongs to"

#: Type -> why it costs nothing while nothing happens.
_FREE: Mapping[str, str] = {
    "AWS::Athena::NamedQuery": "paid by data that a query reads",
    "AWS::Athena::WorkGroup": "paid by data that a query reads",
    "AWS::CDK::Metadata": "a note of CDK's",
    "AWS::EC2::InternetGateway": _NETWORK,
    "AWS::EC2::LaunchTemplate": _NETWORK,
    "AWS::EC2::Route": _NETWORK,
    "AWS::EC2::RouteTable": _NETWORK,
    "AWS::EC2::SecurityGroup": _NETWORK,
    "AWS::EC2::Subnet": _NETWORK,
    "AWS::EC2::SubnetRouteTableAssociation": _NETWORK,
    "AWS::EC2::VPC": _NETWORK,
    "AWS::EC2::VPCGatewayAttachment": _NETWORK,
    "AWS::EC2::VPCEndpoint": "gateway endpoints are free",
    "AWS::Events::Rule": "events of AWS services are free",
    "AWS::Glue::Database": "the first million objects of the catalogue are free",
    "AWS::Glue::Table": "the first million objects of the catalogue are free",
    "AWS::IAM::InstanceProfile": _IDENTITY,
    "AWS::IAM::ManagedPolicy": _IDENTITY,
    "AWS::IAM::Policy": _IDENTITY,
    "AWS::IAM::Role": _IDENTITY,
    "AWS::Lambda::EventInvokeConfig": _RULE,
    "AWS::Lambda::Function": "paid by invocation: see the schedules",
    "AWS::Lambda::Permission": _RULE,
    "AWS::Logs::LogGroup": "paid by what is written: see the schedules",
    "AWS::Logs::QueryDefinition": "paid by data that a query reads",
    "AWS::S3::Bucket": "paid by what lies in it: see the refresh of offers",
    "AWS::S3::BucketPolicy": _RULE,
    "AWS::SNS::Subscription": "1,000 emails a month are free",
    "AWS::SNS::Topic": "paid by messages, of which there are none",
    "AWS::SNS::TopicPolicy": _RULE,
    "AWS::SSM::Parameter": "standard parameters are free",
    "AWS::SQS::Queue": "paid by requests: see the schedules",
    "AWS::SQS::QueuePolicy": _RULE,
    "Custom::SpindownFleet": "acts when the stack is changed or deleted",
    "Custom::SpindownSubnets": "acts when the stack is changed",
}
