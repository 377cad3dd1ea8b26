"""What `spindown iam execution` and `boundary` print is enough for what the templates hold."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from spindown.config import load
from spindown.error import BadInput
from spindown.operate.deploy_rights import (
    POLICY_CHARACTERS_MAX,
    boundary,
    execution,
    rights_of,
    role_statements,
    types_of,
)
from spindown.operate.iam_policy import Whose
from tests.infra.assembly import Assembly, listed, synthesise_once
from tests.infra.policy import ACCOUNT
from tests.infra.ruled import BOUNDARY, HOME_KEY, PATH, PREFIX, QUALIFIER, write_ruled_project
from tools.resource_rights import FILE, text_of

Template = Mapping[str, Any]


@pytest.fixture(scope="session")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "ruled", write_ruled_project)


def templates_of(assembly: Assembly) -> list[Template]:
    return [{"Resources": one} for one in assembly.stacks.values()]


def whose(assembly: Assembly) -> Whose:
    deployment = load(assembly.project).deployment
    is_ruled = deployment.role_name_prefix is not None
    plain = Whose(
        deployment=deployment.name,
        account=ACCOUNT,
        regions=tuple(deployment.regions),
        workloads=(),
    )
    return (
        replace(
            plain,
            qualifier=QUALIFIER,
            role_path=PATH,
            role_name_prefix=PREFIX,
            boundary_arn=BOUNDARY,
            key_arns=[HOME_KEY],
        )
        if is_ruled
        else plain
    )


def statements(assembly: Assembly) -> Iterator[Mapping[str, Any]]:
    for policy in execution(whose(assembly), templates_of(assembly)).values():
        yield from policy["Statement"]


@pytest.fixture(params=["assembly", "ruled"])
def each(request: pytest.FixtureRequest) -> Assembly:
    found: Assembly = request.getfixturevalue(request.param)
    return found


def test_the_rights_of_types_are_those_of_the_registry() -> None:
    assert FILE.read_text() == text_of(list(json.loads(FILE.read_bytes())))


def test_every_type_of_the_templates_has_its_rights(each: Assembly) -> None:
    allowed = {action for one in statements(each) for action in one["Action"]}

    for kind in types_of(templates_of(each)):
        service = "lambda" if kind.startswith("Custom::") else kind.split("::")[1].lower()
        own = {one for one in rights_of(kind) if one.startswith(f"{service}:")}
        # Of people, and what takes the boundary away again.
        beside = {"Group", "User", "DeleteRolePermissionsBoundary"}
        lacking = {one for one in own - allowed if not any(word in one for word in beside)}
        assert (kind, bool(own), lacking) == (kind, True, set())


def test_what_a_template_names_lies_within_the_rights(each: Assembly) -> None:
    named = 0
    for one in (one for stack in each.stacks.values() for one in stack.values()):
        service = one["Type"].split("::")[1].lower()
        name = next(
            (
                text
                for key, text in one.get("Properties", {}).items()
                if key.endswith("Name") and key != "DisplayName" and isinstance(text, str)
            ),
            None,
        )
        if name is None or service in {"ec2", "fis"} or one["Type"] in _TITLED:
            continue
        named += 1
        ends = [
            arn[start:]
            for statement in statements(each)
            for arn in statement["Resource"]
            if arn.startswith(f"arn:aws:{service}:")
            for start in range(len(arn))
        ]
        assert any("lab" in end and fnmatchcase(name, end) for end in ends), (one["Type"], name)
    assert named > 30


#: Their names are titles: one lies in a workgroup, one in a role.
_TITLED = {"AWS::Athena::NamedQuery", "AWS::IAM::Policy", "AWS::Logs::QueryDefinition"}


def test_each_policy_of_a_deploy_fits(each: Assembly) -> None:
    made = execution(whose(each), templates_of(each))

    for policy in (*made.values(), boundary(whose(each), templates_of(each))):
        assert len(json.dumps(policy, separators=(",", ":"))) <= POLICY_CHARACTERS_MAX
    # Ten fit on a role, and some must stay for the account's own.
    assert len(made) <= 4


def test_a_deploy_touches_no_role_of_others(each: Assembly) -> None:
    gives = [one for one in statements(each) if any("iam:" in action for action in one["Action"])]

    assert gives
    for statement in gives:
        for arn in statement["Resource"]:
            assert f":{ACCOUNT}:" in arn
            assert "lab-" in arn or ":role/aws-service-role/" in arn


def test_a_deploy_makes_no_role_without_the_boundary(ruled: Assembly) -> None:
    found = list(statements(ruled))
    for action in ("CreateRole", "PutRolePolicy", "AttachRolePolicy"):
        (one,) = (one for one in found if f"iam:{action}" in one["Action"])
        assert one["Condition"] == {"StringEquals": {"iam:PermissionsBoundary": BOUNDARY}}

    assert not [one for one in found if "iam:DeleteRolePermissionsBoundary" in one["Action"]]


def test_the_boundary_has_all_that_roles_may_and_no_more(each: Assembly) -> None:
    bound = {
        action
        for one in boundary(whose(each), templates_of(each))["Statement"]
        for action in one["Action"]
    }
    roles = [listed(one["Action"]) for one in role_statements(templates_of(each))]

    policies = sum(
        one["Type"] in {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}
        for stack in each.stacks.values()
        for one in stack.values()
    )
    assert len(roles) > policies > 5
    assert bound == {action for actions in roles for action in actions}


def test_what_a_stack_reads_of_another_is_allowed(each: Assembly) -> None:
    named = set(
        re.findall(r'"Fn::GetStackOutput": {"StackName": "([^"]+)"', json.dumps(each.stacks))
    )

    (one,) = (one for one in statements(each) if "cloudformation:DescribeStacks" in one["Action"])
    assert named == {"lab-core"}
    for stack in named:
        arn = f"arn:aws:cloudformation:eu-west-1:{ACCOUNT}:stack/{stack}/1"
        assert fnmatchcase(arn, one["Resource"][0])


def test_no_role_has_a_policy_that_the_boundary_cannot_see(each: Assembly) -> None:
    for stack in each.stacks.values():
        for one in stack.values():
            if one["Type"] == "AWS::IAM::Role":
                assert not one["Properties"].get("ManagedPolicyArns")


def test_a_type_without_known_rights_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        rights_of("AWS::Bedrock::Agent")

    assert caught.value.value == "AWS::Bedrock::Agent"
