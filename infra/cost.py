"""What a deployment costs beside its machines: a month without work by its templates, and work.

``python -m spindown.infra.cost [spindown.toml]`` prints the page (docs/costs.md). A test counts the
calls and metrics of a tick over the real tick. What only AWS can show, such as the time that a
function takes, is an estimate that says so.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spindown import config
from spindown.contract.run_spec import LOG_BYTES_A_DAY
from spindown.contract.settings import FREE_PARAMETER_BYTES_MAX
from spindown.domain.bake_or_bootstrap import image_dollars
from spindown.domain.control_cost import (
    JOB,
    JUDGEMENT,
    LEDGER_GIB,
    REFRESH,
    TICK,
    InvocationUse,
    UsedUnits,
)
from spindown.domain.list_price import AS_OF, PRICES, Usage
from spindown.domain.offer import HOURS_PER_MONTH
from spindown.error import BadInput, ContractError
from spindown.infra.app import choose_node
from spindown.infra.flag import FLAGS
from spindown.infra.parameter import measure_text

_GIB = 1e9
#: Of an image for GPUs by default.
_ROOT_GIB = 100

#: Resources of one template by logical id.
Resources = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyUsage:
    """A quantity that one resource uses in a month, and its purpose."""

    usage: Usage
    quantity: float
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyCost(UsedUnits):
    """The whole usage of one kind in a month."""

    purposes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a month without work costs."""

    costs: tuple[MonthlyCost, ...]
    #: Name of an alarm -> how many metrics it is billed for.
    alarms: Mapping[str, int]
    #: Type of resource -> (how many, why it costs nothing).
    free: Mapping[str, tuple[int, str]]

    @property
    def listed(self) -> float:
        """Return USD a month by list price."""
        return sum(cost.listed for cost in self.costs)

    @property
    def billed(self) -> float:
        """Return USD a month in an account that uses its free units for nothing else."""
        return sum(cost.billed for cost in self.costs)


def estimate(templates: Mapping[str, Resources]) -> Estimate:
    """Return what the stacks cost a month while nothing happens.

    Raises:
        ContractError: the cost of a type of resource is not known, or a resource is used in a way
            that costs more.
    """
    lines: list[MonthlyUsage] = []
    free: dict[str, tuple[int, str]] = {}
    for resources in templates.values():
        for name, resource in resources.items():
            kind = resource["Type"]
            found = list(_lines(name, kind, resource.get("Properties", {}), resources))
            lines += found
            if not found:
                free[kind] = free.get(kind, (0, ""))[0] + 1, _FREE[kind]
    return Estimate(costs=tuple(_add_up(lines)), alarms=dict(_alarms(templates)), free=free)


def _alarms(templates: Mapping[str, Resources]) -> Iterator[tuple[str, int]]:
    for resources in templates.values():
        for name, resource in resources.items():
            if resource["Type"] == "AWS::CloudWatch::Alarm":
                properties = resource.get("Properties", {})
                yield str(properties.get("AlarmName", name)), _metrics_of(properties)


Properties = Mapping[str, Any]


def _lines(
    name: str, kind: str, properties: Properties, resources: Resources
) -> Iterator[MonthlyUsage]:
    if kind in _PAID:
        yield from _PAID[kind](properties, resources)
    elif kind not in _FREE:
        raise ContractError(
            f"type of {name}", kind, "add to infra/cost.py what it costs while idle"
        )


def _add_up(lines: list[MonthlyUsage]) -> Iterator[MonthlyCost]:
    for usage in Usage:
        mine = [line for line in lines if line.usage is usage]
        if mine:
            yield MonthlyCost(
                usage=usage,
                quantity=sum(line.quantity for line in mine),
                purposes=tuple(sorted({line.purpose for line in mine})),
            )


def _alarm(properties: Properties, _: Resources) -> Iterator[MonthlyUsage]:
    yield MonthlyUsage(usage=Usage.ALARM_METRIC, quantity=_metrics_of(properties), purpose="alarms")


def _metrics_of(properties: Properties) -> int:
    """Return how many metrics an alarm is billed for."""
    queries = properties.get("Metrics", [])
    read = sum("MetricStat" in query for query in queries) or 1
    # An anomaly detection band is billed as two metrics more.
    bands = sum("ANOMALY_DETECTION_BAND" in query.get("Expression", "") for query in queries)
    return read + 2 * bands


def _dashboard(_: Properties, __: Resources) -> Iterator[MonthlyUsage]:
    yield MonthlyUsage(usage=Usage.DASHBOARD, quantity=1, purpose="one a workload, one overview")


def _schedule(properties: Properties, resources: Resources) -> Iterator[MonthlyUsage]:
    times = HOURS_PER_MONTH / _hours(properties["ScheduleExpression"])
    target = properties["Target"]
    memory_mib = _memory_mib(target, resources)
    ticks = "workload" in json.loads(target["Input"])
    invocation, purpose = (TICK, "ticks") if ticks else (REFRESH, "refresh of offers")
    yield MonthlyUsage(usage=Usage.CUSTOM_METRIC, quantity=invocation.metrics, purpose=purpose)
    yield from _fired(invocation, times, memory_mib, purpose)
    if not ticks:
        yield from _judgement(times, memory_mib, resources)


def _rule(properties: Properties, resources: Resources) -> Iterator[MonthlyUsage]:
    """Yield what spare ticks use. Their metrics are those of ticks.

    AWS names no price for rules by rate: each time is counted as one of Scheduler's.
    """
    if "ScheduleExpression" in properties:
        times = HOURS_PER_MONTH / _hours(properties["ScheduleExpression"])
        for target in properties["Targets"]:
            yield from _fired(TICK, times, _memory_mib(target, resources), "spare ticks")


def _memory_mib(target: Properties, resources: Resources) -> float:
    function = resources[target["Arn"]["Fn::GetAtt"][0]]["Properties"]
    return float(function["MemorySize"])


def _fired(
    invocation: InvocationUse, times: float, memory_mib: float, purpose: str
) -> Iterator[MonthlyUsage]:
    gib_seconds = times * invocation.seconds * memory_mib / 1024
    yield MonthlyUsage(usage=Usage.SCHEDULE, quantity=times, purpose=purpose)
    yield MonthlyUsage(usage=Usage.LAMBDA_REQUEST, quantity=times, purpose=purpose)
    yield MonthlyUsage(usage=Usage.LAMBDA_GIB_SECOND, quantity=gib_seconds, purpose=purpose)
    yield from _used(invocation, times, purpose)


def _judgement(times: float, memory_mib: float, resources: Resources) -> Iterator[MonthlyUsage]:
    """Yield what the refresh of the offers also uses for each workload; each one has a tick."""
    schedules = (
        json.loads(one["Properties"]["Target"]["Input"])
        for one in resources.values()
        if one["Type"] == "AWS::Scheduler::Schedule"
    )
    for _ in [target for target in schedules if "workload" in target]:
        gib_seconds = times * JUDGEMENT.seconds * memory_mib / 1024
        yield MonthlyUsage(
            usage=Usage.LAMBDA_GIB_SECOND, quantity=gib_seconds, purpose="judging costs"
        )
        yield MonthlyUsage(
            usage=Usage.CUSTOM_METRIC, quantity=JUDGEMENT.metrics, purpose="judging costs"
        )
        yield from _used(JUDGEMENT, times, "judging costs")


def _used(invocation: InvocationUse, times: float, purpose: str) -> Iterator[MonthlyUsage]:
    for usage, quantity in invocation.used.items():
        yield MonthlyUsage(usage=usage, quantity=times * quantity, purpose=purpose)


_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNIT_HOURS = {"minute": 1 / 60, "hour": 1.0, "day": 24.0}


def _hours(expression: str) -> float:
    match = _RATE.fullmatch(expression)
    if match is None:
        raise ContractError("ScheduleExpression", expression, "teach infra/cost.py to read it")
    return int(match[1]) * _UNIT_HOURS[match[2]]


def _table(properties: Properties, _: Resources) -> Iterator[MonthlyUsage]:
    if properties.get("BillingMode") != "PAY_PER_REQUEST":
        raise ContractError("BillingMode", properties.get("BillingMode"), "pay by request")
    yield MonthlyUsage(usage=Usage.TABLE_GIB, quantity=LEDGER_GIB, purpose="ledger")
    yield MonthlyUsage(usage=Usage.TABLE_BACKUP_GIB, quantity=LEDGER_GIB, purpose="ledger")


def _parameter(properties: Properties, resources: Resources) -> Iterator[MonthlyUsage]:
    if measure_text(properties["Value"], resources) > FREE_PARAMETER_BYTES_MAX:
        yield MonthlyUsage(usage=Usage.PARAMETER, quantity=1, purpose="settings of over 4 KB")


def _endpoint(properties: Properties, _: Resources) -> Iterator[MonthlyUsage]:
    if properties.get("VpcEndpointType") != "Gateway":
        raise ContractError(
            "VpcEndpointType", properties.get("VpcEndpointType"), "Gateway, or it bills by the hour"
        )
    yield from ()


_PAID: Mapping[str, Callable[[Properties, Resources], Iterator[MonthlyUsage]]] = {
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::CloudWatch::Dashboard": _dashboard,
    "AWS::DynamoDB::GlobalTable": _table,
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::Events::Rule": _rule,
    "AWS::SSM::Parameter": _parameter,
    "AWS::Scheduler::Schedule": _schedule,
}

_IDENTITY = "IAM is free"
_IMAGES = "billed by the instances that build images, and by their snapshots"
_NETWORK = "free without instances; there is no NAT gateway and no public address"
_RULE = "billed as part of the resource that it belongs to"

#: Type -> why it costs nothing while nothing happens.
_FREE: Mapping[str, str] = {
    "AWS::Athena::NamedQuery": "billed by the data that a query reads",
    "AWS::Athena::WorkGroup": "billed by the data that a query reads",
    "AWS::CDK::Metadata": "information for CDK",
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
    "AWS::ImageBuilder::Component": _IMAGES,
    "AWS::ImageBuilder::DistributionConfiguration": _IMAGES,
    "AWS::ImageBuilder::ImagePipeline": _IMAGES,
    "AWS::ImageBuilder::ImageRecipe": _IMAGES,
    "AWS::ImageBuilder::InfrastructureConfiguration": _IMAGES,
    "AWS::ImageBuilder::LifecyclePolicy": _IMAGES,
    "AWS::Lambda::EventInvokeConfig": _RULE,
    "AWS::Lambda::Function": "billed by invocation: see the schedules",
    "AWS::Lambda::Permission": _RULE,
    "AWS::Logs::LogGroup": "billed by what is written: see the schedules",
    "AWS::Logs::QueryDefinition": "billed by the data that a query reads",
    "AWS::S3::Bucket": "billed by what it stores: see the refresh of offers",
    "AWS::S3::BucketPolicy": _RULE,
    "AWS::SNS::Subscription": "1,000 emails and all invocations are free",
    "AWS::SNS::Topic": "billed by messages, and there are none",
    "AWS::SNS::TopicPolicy": _RULE,
    "AWS::SSM::Parameter": "standard parameters are free",
    "AWS::SQS::Queue": "billed by requests: see the schedules",
    "AWS::SQS::QueuePolicy": _RULE,
    "Custom::SpindownFleet": "acts when the stack is changed or deleted",
    "Custom::SpindownSubnets": "acts when the stack is changed",
}


#: How to have AWS itself watch the bill.
_GUARD = """\
## A budget of AWS beside ours

`budget_per_month` counts machines, at once, and stops launches. A budget of AWS Budgets counts all
that the deployment is billed and bears its tag, and only tells you. It is hours late: AWS renews
its numbers up to three times a day (AWS Cost Management User Guide, "Managing your costs with AWS
Budgets"). Each guards where the other is wrong. No setting makes it, since a template cannot take
the step on which it depends: until the tag is active for cost allocation it counts nothing, and
does not say so.

First, once, whoever pays the bill (in an organisation its management account) activates the tag.
AWS knows the tag about a day after the first deploy, and counts from the activation on:

```sh
aws ce update-cost-allocation-tags-status \\
  --cost-allocation-tags-status TagKey=spindown:deployment,Status=Active
aws ce list-cost-allocation-tags --tag-keys spindown:deployment
```

Then an administrator makes the budget, here of 100 USD a month for the deployment NAME, with a
letter at 80 %:

```sh
aws budgets create-budget --account-id ACCOUNT --budget '{
  "BudgetName": "NAME", "BudgetType": "COST", "TimeUnit": "MONTHLY",
  "BudgetLimit": {"Amount": "100", "Unit": "USD"},
  "CostFilters": {"TagKeyValue": ["user:spindown:deployment$NAME"]}
}' --notifications-with-subscribers '[{
  "Notification": {
    "NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80
  },
  "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "you@example.com"}]
}]'
aws budgets describe-budget --account-id ACCOUNT --budget-name NAME
```

`ActualSpend` of the last is above 0 once it counts.

A budget that only tells is free (AWS Budgets pricing: those with actions cost money from the third
on); look the price up, it has changed before. What bears no tag it leaves out, such as metrics:
without `CostFilters` it counts the whole account. No role of the deployment needs a right for it.
These commands are *only checked*, against AWS's models.
"""


def render(estimate: Estimate, *, workloads: Sequence[str]) -> str:
    """Return the estimate as a page of Markdown."""
    return "\n".join(
        [
            *_render_head(estimate, workloads),
            *_render_costs(estimate),
            *_render_alarms(estimate),
            *_render_free(estimate),
            *_render_basis(),
            _GUARD,
            *_render_work(),
        ]
    )


def _render_head(estimate: Estimate, workloads: Sequence[str]) -> Iterator[str]:
    names = ", ".join(workloads)
    noun = "workload" if len(workloads) == 1 else "workloads"
    yield "# What a deployment costs beside its machines"
    yield ""
    yield "Written by `python -m spindown.infra.cost`, from the templates of `spindown.toml`."
    yield ""
    yield (
        f"With {len(workloads)} {noun} ({names}), no message in a queue and no worker: "
        f"**{estimate.billed:,.2f} USD a month** if nothing else uses the account's free "
        f"allowances, {estimate.listed:,.2f} USD if they are used up. Machines cost extra, by the "
        "second, and so does [work](#what-work-costs-beside-its-machines)."
    )
    yield ""


def _render_costs(estimate: Estimate) -> Iterator[str]:
    yield "| What | Quantity a month | USD each | Free a month | List, USD | Billed, USD | For |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    by_bill = sorted(estimate.costs, key=lambda one: (-one.billed, -one.listed))
    yield from (_row(cost) for cost in by_bill)
    yield f"| **Total** | | | | **{estimate.listed:,.2f}** | **{estimate.billed:,.2f}** | |"
    yield ""
    yield f"List prices of us-east-1 as of {AS_OF}, from:"
    yield ""
    used = {cost.usage for cost in estimate.costs}
    yield from (f"- <{source}>" for source in sorted({PRICES[usage].source for usage in used}))
    yield ""


def _row(cost: MonthlyCost) -> str:
    price = PRICES[cost.usage]
    free = _number(price.free) if price.free else ""
    return (
        f"| {cost.usage.value} | {_number(cost.quantity)} | {_number(price.each)} | {free} "
        f"| {cost.listed:,.2f} | {cost.billed:,.2f} | {', '.join(cost.purposes)} |"
    )


def _render_alarms(estimate: Estimate) -> Iterator[str]:
    each = PRICES[Usage.ALARM_METRIC].each
    yield "## Which alarms"
    yield ""
    yield (
        "An alarm is billed by the metrics that it reads. So alarms cover only money, and what "
        "people must hear even if the functions are silent. The functions send everything else to "
        "the same topic: a full quota, pools without capacity, stopped launches, an invalid "
        "policy, late work, an expensive item and its cause. Such an alert costs nothing until it "
        "is sent. With `alarm_email` or `alarm_webhook` there is one alarm more at home and in "
        "each further region, `failed-events`: without them nobody would hear it."
    )
    yield ""
    yield "| Alarm | Metrics | List, USD |"
    yield "|---|---:|---:|"
    for name, metrics in sorted(estimate.alarms.items()):
        yield f"| {name} | {metrics} | {metrics * each:,.2f} |"
    yield ""


def _render_free(estimate: Estimate) -> Iterator[str]:
    yield "## What costs nothing"
    yield ""
    whys: dict[str, list[str]] = {}
    for kind, (count, why) in sorted(estimate.free.items()):
        whys.setdefault(why, []).append(f"{count} {kind}")
    yield "| Resources | Why |"
    yield "|---|---|"
    yield from (f"| {', '.join(kinds)} | {why} |" for why, kinds in whys.items())
    yield ""


def _render_basis() -> Iterator[str]:
    yield "## Where the quantities come from"
    yield ""
    yield f"- A month has {HOURS_PER_MONTH:,.0f} hours; a workload has one tick a minute."
    yield f"- A tick: {TICK.basis}."
    yield f"- A refresh of the offers, every hour: {REFRESH.basis}."
    yield f"- Judging what items cost, every hour for each workload: {JUDGEMENT.basis}."
    yield "- A metric is billed for each hour in which a value is sent."
    yield ""


_WORK: Sequence[tuple[Usage, str, str]] = (
    (
        Usage.LOG_GIB,
        "events of workers, and printed lines",
        f"for printed lines {LOG_BYTES_A_DAY / 2**20:,.0f} MiB a day and slot",
    ),
    (
        Usage.OBJECT_GIB,
        "results, files, checkpoints, uploads; a month",
        "what items return: results are kept until you delete them",
    ),
    (Usage.OBJECT_WRITE, "commits: a part and a manifest each, and each file", "`checkpoint_*`"),
    (Usage.OBJECT_READ, "inputs", "the items"),
    (
        Usage.CUSTOM_METRIC,
        "each metric of a workload, for the hours in which it works",
        "the number of their names",
    ),
    (Usage.REGION_GIB, "workers away from home: inputs and results", "part of an offer's cost"),
    (Usage.INTERNET_GIB, "what code sends there; what comes in is free", "nothing"),
)


def _render_work() -> Iterator[str]:
    each = {usage: 1000 * quantity * PRICES[usage].each for usage, quantity in JOB.items()}
    parts = ", ".join(f"{_number(quantity)} {usage.value}" for usage, quantity in JOB.items())
    log = LOG_BYTES_A_DAY / _GIB * PRICES[Usage.LOG_GIB].each
    yield "## What work costs beside its machines"
    yield ""
    yield (
        f"**{sum(each.values()):,.3f} USD for 1,000 jobs**, if items come in the message and "
        f"results are committed once (for each job {parts}). What comes on top depends on the "
        "work. `budget_per_month` and the other limits count none of it; an alarm of AWS Budgets "
        "does. The cost of an item is told without it too: it is what was billed for machines, "
        "boots and idle time included ([bill](bill.md#the-same-words-everywhere))."
    )
    yield ""
    yield "| What | USD each | Of what | Bounded by |"
    yield "|---|---:|---|---|"
    yield from (
        f"| {usage.value} | {_number(PRICES[usage].each)} | {what} | {bound} |"
        for usage, what, bound in _WORK
    )
    yield ""
    yield (
        f"A slot that prints without end costs {log:,.2f} USD a day. Data between S3 and workers "
        "in one region is free, through the gateway endpoint."
    )
    yield ""
    yield (
        'An image that `image.mode = "auto"` bakes costs '
        f"{image_dollars(_ROOT_GIB, 1):,.2f} USD from its build to its deletion at most, with "
        f"{_ROOT_GIB} GiB in one region ([why then](adr/0072-earned-images.md)). None is baked "
        "before installs at boots have cost as much."
    )
    yield ""


def _number(value: float) -> str:
    """Return a number as people write it: cents below 100, small numbers to ten places."""
    if value >= 1:
        return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.2f}"  # noqa: PLR2004 - cents matter below
    return f"{value:.10f}".rstrip("0").rstrip(".") if value else "0"


def main(arguments: Sequence[str]) -> int:
    """Print the page; where the input is wrong, print one sentence that says why."""
    path = Path(arguments[0]) if arguments else Path("spindown.toml")
    try:
        choose_node()
        sys.stdout.write(describe_cost(path))
    except BadInput as exc:
        sys.stderr.write(f"spindown: {exc}\n")
        return 1
    return 0


def describe_cost(path: Path) -> str:
    """Return the page for one spindown.toml (raises ConfigError)."""
    workloads = tuple(config.load(path).workloads)
    return render(estimate(synthesise(path)), workloads=workloads)


def synthesise(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the resources of each stack; the package of the functions is not made."""
    # Imported late, since aws-cdk-lib starts Node.
    from aws_cdk import App  # noqa: PLC0415

    from spindown.infra.deployment import describe  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory:
        app = App(
            outdir=directory,
            context={**FLAGS, "config": str(path), "aws:cdk:bundling-stacks": []},
            # `make synth` checks whether the templates are valid.
            builtin_cloud_formation_validation=False,
            analytics_reporting=False,
        )
        describe(app)
        app.synth()
        return read_templates(Path(directory))


def read_templates(directory: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the resources of each stack that was synthesised into a directory."""
    return {
        file.name.removesuffix(".template.json"): json.loads(file.read_text())["Resources"]
        for file in sorted(directory.glob("*.template.json"))
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
