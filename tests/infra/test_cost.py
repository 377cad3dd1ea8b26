"""The cost page covers everything that the templates hold, and adds up."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spindown.domain.control_cost import FUNCTION_GIB, estimate_control
from spindown.domain.list_price import PRICES, Usage
from spindown.domain.offer import HOURS_PER_MONTH
from spindown.error import ContractError
from spindown.infra.cost import Estimate, describe_cost, estimate, main, read_templates, render
from tests.infra.assembly import ROOT, Assembly

Templates = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def templates(assembly: Assembly) -> Templates:
    return read_templates(assembly.directory)


@pytest.fixture(scope="module")
def whole(templates: Templates) -> Estimate:
    return estimate(templates)


def quantity(found: Estimate, usage: Usage) -> float:
    return sum(cost.quantity for cost in found.costs if cost.usage is usage)


def one(kind: str, **properties: Any) -> Templates:
    return {"lab-core": {"Thing": {"Type": kind, "Properties": properties}}}


def test_covers_every_resource_of_every_stack(templates: Templates, whole: Estimate) -> None:
    kinds = {each["Type"] for resources in templates.values() for each in resources.values()}
    paid = {
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::DynamoDB::GlobalTable",
        "AWS::Scheduler::Schedule",
    }

    assert {"lab-core", "lab-insight"} <= set(templates)
    assert kinds - paid == set(whole.free)


def test_refuses_a_type_of_which_it_knows_nothing() -> None:
    with pytest.raises(ContractError, match="AWS::EC2::NatGateway"):
        estimate(one("AWS::EC2::NatGateway"))


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        pytest.param("AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Interface"}, id="endpoint"),
        pytest.param("AWS::DynamoDB::GlobalTable", {"BillingMode": "PROVISIONED"}, id="table"),
        pytest.param(
            "AWS::Scheduler::Schedule", {"ScheduleExpression": "cron(0 * * * ? *)"}, id="schedule"
        ),
        pytest.param("AWS::Events::Rule", {"ScheduleExpression": "cron(0 * * * ? *)"}, id="rule"),
    ],
)
def test_refuses_kinds_that_bill_by_the_hour_or_are_unknown(
    kind: str, properties: Mapping[str, Any]
) -> None:
    with pytest.raises(ContractError):
        estimate(one(kind, **properties))


def test_a_rule_costs_what_it_invokes_by_the_clock() -> None:
    target = {"Arn": {"Fn::GetAtt": ["Scaler", "Arn"]}}
    rule = {"ScheduleExpression": "rate(5 minutes)", "Targets": [target]}
    scaler = {"Type": "AWS::Lambda::Function", "Properties": {"MemorySize": 512}}
    resources = {"Rule": {"Type": "AWS::Events::Rule", "Properties": rule}, "Scaler": scaler}
    found = estimate({"lab": resources})
    by_event = estimate(one("AWS::Events::Rule", EventPattern={"source": ["aws.ec2"]}))

    # 730 hours of 12; metrics are billed once, with the tick of each minute.
    assert quantity(found, Usage.LAMBDA_REQUEST) == 8760
    assert quantity(found, Usage.TABLE_WRITE) == 7 * 8760
    assert quantity(found, Usage.CUSTOM_METRIC) == 0
    assert by_event.costs == ()


def test_counts_an_alarm_by_the_metrics_that_it_reads() -> None:
    stat: Mapping[str, Any] = {"MetricStat": {}}
    band = {"Expression": "ANOMALY_DETECTION_BAND(m, 4)"}

    plain = estimate(one("AWS::CloudWatch::Alarm", MetricName="Ticks"))
    math = estimate(one("AWS::CloudWatch::Alarm", Metrics=[{"Expression": "a + b"}, stat, stat]))
    unusual = estimate(one("AWS::CloudWatch::Alarm", Metrics=[stat, band]))

    counted = [quantity(found, Usage.ALARM_METRIC) for found in (plain, math, unusual)]
    assert counted == [1, 2, 3]


def test_a_long_parameter_is_paid_for() -> None:
    short = estimate(one("AWS::SSM::Parameter", Value="{}"))
    long = estimate(one("AWS::SSM::Parameter", Value="x" * 4097))

    assert (short.listed, long.listed) == (0.0, 0.05)


def test_each_workload_ticks_once_a_minute_and_in_five(whole: Estimate) -> None:
    ticks = 730 * (60 + 12)

    assert quantity(whole, Usage.QUEUE_REQUEST) == 2 * ticks
    assert quantity(whole, Usage.SCHEDULE) == 2 * ticks + 730


def test_what_is_free_is_taken_off_once(whole: Estimate) -> None:
    for cost in whole.costs:
        price = PRICES[cost.usage]
        assert cost.billed == pytest.approx(max(0, cost.quantity - price.free) * price.each)
        assert cost.listed == pytest.approx(cost.quantity * price.each)
    assert whole.billed == pytest.approx(sum(cost.billed for cost in whole.costs))


def test_every_price_has_its_source() -> None:
    assert set(PRICES) == set(Usage)
    assert all(price.source.startswith("https://aws.amazon.com/") for price in PRICES.values())


def test_control_share_follows_the_memory_of_the_functions(
    templates: Templates,
) -> None:
    found = {
        each["Properties"]["FunctionName"]: each["Properties"]["MemorySize"] / 1024
        for each in templates["lab-core"].values()
        if each["Type"] == "AWS::Lambda::Function"
    }

    assert {found[f"lab--{name}"] for name in ("scaler", "interruption", "offers")} == {
        FUNCTION_GIB
    }


def test_the_page_says_what_each_line_says(whole: Estimate) -> None:
    page = render(whole, workloads=["plain", "rich"])

    assert f"**{whole.billed:,.2f} USD a month**" in page
    assert "With 2 workloads (plain, rich)" in page
    idle = page.partition("## What work costs")[0]
    rows = re.findall(r"^\| ([^|*]+?) \| [\d,.]+ \|", idle, flags=re.MULTILINE)
    alarms = set(whole.alarms)
    assert sorted(set(rows) - alarms) == sorted(cost.usage.value for cost in whole.costs)
    assert alarms <= set(rows)
    assert sum(whole.alarms.values()) == quantity(whole, Usage.ALARM_METRIC)
    assert all(kind in page for kind in whole.free)


def test_a_config_that_is_not_there_is_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nothing.toml")]) == 1

    assert re.fullmatch(r"spindown: spindown\.toml is .*\n", capsys.readouterr().err)


@pytest.fixture(scope="module")
def described() -> str:
    return describe_cost(ROOT / "spindown.toml")


def test_the_page_as_stored_is_current(described: str) -> None:
    stored = (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")

    assert stored == described, "run python -m spindown.infra.cost > docs/costs.md"


def test_a_bill_s_estimate_is_the_page_s(whole: Estimate) -> None:
    page = {cost.usage: cost.billed for cost in whole.costs}
    told = estimate_control(
        hours=HOURS_PER_MONTH,
        workloads=2,
        jobs=0,
        alarm_metrics=sum(whole.alarms.values()),
    )

    # A deployment as large as that also pays for settings of over 4 KB.
    assert {one.usage for one in told} == set(page) - {Usage.PARAMETER}
    for one in told:
        assert one.billed == pytest.approx(page[one.usage], abs=0.01), one


def test_an_idle_workload_costs_under_a_dollar_a_month(described: str) -> None:
    page = described

    (billed,) = re.findall(r"\*\*([\d.]+) USD a month\*\*", page)
    assert "With 1 workload (" in page
    assert float(billed) < 1.0
