"""What a deployment grows to is what CloudFormation and IAM take, or a sentence says so."""

import json
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import CfnResource, Stack

from spindown import config
from spindown.config.deployment import POLICY_CHARACTERS_MAX
from spindown.error import ConfigError
from spindown.infra.deployment import (
    TEMPLATE_BYTES_MAX,
    check_sizes,
    describe,
    load_config,
    synthesise_app,
)
from spindown.infra.iam.limit import POLICIES_MAX, check_roles, measure
from spindown.infra.parameter import check_parameters
from tests.infra.assembly import (
    PLAIN,
    Assembly,
    describe_core,
    listed,
    make_app,
    synthesise_core,
    write_project,
)
from tests.infra.observability import assembly as insight
from tests.infra.policy import resolve

#: AWS CloudFormation quotas.
RESOURCES_MAX = 500

FURTHER = (
    *("ap-northeast-1", "ap-northeast-2", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
    *("ca-central-1", "eu-central-1", "us-east-1", "us-west-2"),
)


def a_config(workloads: int, *regions: str) -> str:
    """Return a spindown.toml of so many plain workloads, spread over regions."""
    head, _, _ = PLAIN.partition("[workload")
    outposts = "".join(f'[deployment.outpost.{one}]\nzones = ["{one}a"]\n' for one in regions)
    runs = "".join(
        f'[workload.w{number}.run]\nentrypoint = "job:run"\ncode = "code"\n'
        for number in range(workloads)
    )
    return head + outposts + runs


def a_template(policies: int) -> dict[str, Any]:
    """Return a stack that attaches so many policies to the scaler's role."""
    return {
        "Resources": {
            f"Policy{number}": {
                "Type": "AWS::IAM::ManagedPolicy",
                "Properties": {"Roles": ["lab--scaler"]},
            }
            for number in range(policies)
        }
    }


def test_no_policy_of_a_large_outpost_is_too_long(tmp_path: Path) -> None:
    project = write_project(tmp_path, a_config(12, "us-west-2"))
    app = make_app(project, tmp_path / "out")
    describe(app)

    synthesise_app(app, load_config(app))

    outpost = Assembly(project, tmp_path / "out", "lab-outpost-us-west-2")
    policies = outpost.all_of("AWS::IAM::ManagedPolicy")
    assert len(policies) == 3
    for one in policies:
        assert measure(one["PolicyDocument"]) <= POLICY_CHARACTERS_MAX
    attached = [one for one in policies if "lab--eu-west-1--scaler" in one["Roles"]]
    assert len(attached) == 2
    # Split, and nothing lost.
    sids = [s["Sid"] for one in attached for s in one["PolicyDocument"]["Statement"]]
    assert len(sids) == len(set(sids)) == 15


def test_no_statement_alone_is_longer_than_a_policy(tmp_path: Path) -> None:
    """CDK spreads statements over policies and divides none."""
    text = a_config(30)
    for number in reversed(range(30)):
        name = f"w{number:02}-which-has-a-name-this-long"
        text = text.replace(f"[workload.w{number}.", f"[workload.{name}.")
    core = synthesise_core(write_project(tmp_path, text), tmp_path / "out")

    for statement in core.statements("ControlScalerRole").values():
        arns = [resolve(core, one) for one in listed(statement["Resource"])]
        assert len(json.dumps(arns)) < POLICY_CHARACTERS_MAX - 1000, statement["Sid"]


def test_a_role_that_would_have_too_many_policies_is_told_of() -> None:
    check_roles([a_template(POLICIES_MAX)], workloads=20, regions=2)

    with pytest.raises(ConfigError) as caught:
        check_roles([a_template(POLICIES_MAX), a_template(1)], workloads=20, regions=4)

    said = str(caught.value)
    assert said.startswith("deployment.outpost is '4 regions for 20 workloads'")
    assert re.search(r"\blab--scaler\b.*\b11\b.*\b10\b", said)


@pytest.mark.proof
def test_so_many_workloads_fit_with_nine_further_regions(tmp_path: Path) -> None:
    """Of docs/runbook.md, which tells how many fit with fewer regions too."""
    for workloads, fits in ((4, nullcontext()), (5, pytest.raises(ConfigError, match="9 regions"))):
        directory = tmp_path / str(workloads)
        directory.mkdir()
        project = write_project(directory, a_config(workloads, *FURTHER))
        app = make_app(project, directory / "out")
        describe(app)

        with fits:
            synthesise_app(app, load_config(app))


@pytest.mark.parametrize(
    ("types", "fits"),
    [
        (100, nullcontext()),
        (
            200,
            pytest.raises(ConfigError, match=r"workload\.plain is 'settings of 1\d,\d{3} bytes'"),
        ),
    ],
)
def test_more_types_than_a_parameter_holds_are_told_of(
    tmp_path: Path, types: int, fits: AbstractContextManager[object]
) -> None:
    project = write_project(tmp_path, PLAIN.format(image="") + some_types(types))
    app = make_app(project, tmp_path / "out")
    describe_core(app, project)

    with fits:
        synthesise_app(app, load_config(app))


def settings_of(name: str, value: Any, **resources: str) -> dict[str, Any]:
    """Return a template with a parameter, and other resources of some types."""
    written = {"Name": f"/spindown/lab/{name}", "Value": value}
    others = {each: {"Type": kind} for each, kind in resources.items()}
    made = {"Type": "AWS::SSM::Parameter", "Properties": written}
    return {"Resources": {**others, "Settings": made}}


def test_what_a_parameter_names_counts_by_its_kind() -> None:
    value = {"Fn::Join": [",", [{"Ref": "One"}] * 200]}
    check_parameters([settings_of("workload/w", value, One="AWS::EC2::Subnet")])

    with pytest.raises(ConfigError, match=r"^workload\.w is .*26,999 bytes"):
        check_parameters([settings_of("workload/w", value, One="AWS::SQS::Queue")])


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("deployment", "deployment"),
        ("workload/deployment", "workload.deployment"),
        ("outpost/w", "workload.w"),
    ],
)
def test_a_long_parameter_is_told_by_its_table(name: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_parameters([settings_of(name, "x" * 9000)])

    assert caught.value.field == field


def some_types(count: int) -> str:
    return "".join(
        f'[[workload.plain.policy.types]]\nname = "type-{number}"\nmemory_gib = {number}\n'
        for number in range(1, count + 1)
    )


def test_too_many_workloads_for_a_stack_are_refused_in_words(tmp_path: Path) -> None:
    project = write_project(tmp_path, a_config(37))
    app = make_app(project, tmp_path / "out")
    # As the core stack of so many would have; how many fit is in test_app.py.
    large = Stack(app, "large")
    for number in range(RESOURCES_MAX + 1):
        CfnResource(large, f"Resource{number}", type="AWS::SNS::Topic")

    with pytest.raises(ConfigError) as caught:
        synthesise_app(app, load_config(app))

    assert str(caught.value).startswith("workload is '37 workloads'")


def test_a_template_that_is_too_large_is_refused_in_words() -> None:
    check_sizes({"lab-core": TEMPLATE_BYTES_MAX}, workloads=36)

    with pytest.raises(ConfigError) as caught:
        check_sizes({"lab-core": 1, "lab-insight": TEMPLATE_BYTES_MAX + 1}, workloads=36)

    said = str(caught.value)
    assert said.startswith("workload is '36 workloads'")
    assert re.search(r"lab-insight.*1,000,001.*1,000,000", said)


def test_every_template_is_measured(tmp_path: Path) -> None:
    project = write_project(tmp_path, a_config(1))
    app = make_app(project, tmp_path / "out")
    large = Stack(app, "large")
    large.template_options.metadata = {"text": "x" * TEMPLATE_BYTES_MAX}

    with pytest.raises(ConfigError, match="large"):
        synthesise_app(app, load_config(app))


@pytest.mark.parametrize(
    ("workloads", "name", "deployment"),
    [
        pytest.param(36, "embed-docs-{:02}", "production", id="names of a usual length"),
        pytest.param(
            *(32, "w{:02}".ljust(33, "x"), "d" * 25),
            id="names of 31 and 25 characters",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_what_people_see_of_so_many_workloads_fits(
    tmp_path: Path, workloads: int, name: str, deployment: str
) -> None:
    run = {"entrypoint": "job:run", "code": "code"}
    one = {"run": run, "policy": {"finish_within": "6h"}}
    document = {
        "deployment": {
            "name": deployment,
            "region": "us-east-1",
            "zones": ["us-east-1a"],
            "alarm_email": "a@example.com",
            "budget_per_month": 100.0,
        },
        "workload": {name.format(number): one for number in range(workloads)},
    }

    insight.synthesise(config.parse(document), tmp_path)

    (template,) = tmp_path.glob("*.template.json")
    assert template.stat().st_size <= TEMPLATE_BYTES_MAX
    assert len(json.loads(template.read_text())["Resources"]) <= RESOURCES_MAX
