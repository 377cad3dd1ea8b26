"""What `spindown iam execution` and `boundary` print is enough for what the templates hold."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from spindown.config import load
from spindown.config.deployment import POLICY_CHARACTERS_MAX
from spindown.error import BadInput
from spindown.operate.deploy_rights import (
    LEFT_OUT,
    boundary,
    execution,
    rights_of,
    role_statements,
    types_of,
)
from spindown.operate.iam_policy import RIGHTS, Whose, policies
from tests.infra.assembly import PLAIN, Assembly, listed, synthesise_once, write_project
from tests.infra.call.role import CALLS
from tests.infra.policy import ACCOUNT, STORE, Call, Statement, ours
from tests.infra.ruled import (
    AWAY_KEY,
    BOUNDARY,
    HOME_KEY,
    PATH,
    PREFIX,
    QUALIFIER,
    write_ruled_project,
)
from tools.resource_rights import FILE, text_of

Template = Mapping[str, Any]
FOREIGN_KEY = HOME_KEY.replace("eu-west-1", "eu-north-1")


@pytest.fixture(scope="session")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "ruled", write_ruled_project)


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    image = 'mode = "ami"\nparameters = { x86_64 = "/my/image" }'
    head, tail = PLAIN.format(image=image).split("zones =")
    text = f"{head}flow_log = true\npublic_addresses = false\nzones ={tail}"
    return synthesise_once(tmp_path_factory, "private", lambda path: write_project(path, text))


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
            archive_key_arns=[HOME_KEY, AWAY_KEY, FOREIGN_KEY],
        )
        if is_ruled
        else plain
    )


def statements(assembly: Assembly) -> Iterator[Mapping[str, Any]]:
    for policy in execution(whose(assembly), templates_of(assembly)).values():
        yield from policy["Statement"]


@pytest.fixture(params=["assembly", "private", "ruled"])
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
        lacking = {
            one
            for one in own - allowed - LEFT_OUT.keys()
            if not any(word in one for word in beside)
        }
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
    gives = [
        one
        for one in statements(each)
        if one["Effect"] == "Allow" and any("iam:" in action for action in one["Action"])
    ]

    assert gives
    for statement in gives:
        for arn in statement["Resource"]:
            assert f":{ACCOUNT}:" in arn
            assert "lab-" in arn or ":role/aws-service-role/" in arn


def test_a_deploy_makes_no_role_without_the_boundary(ruled: Assembly) -> None:
    found = list(statements(ruled))
    allowed = [one for one in found if one["Effect"] == "Allow"]
    for action in ("CreateRole", "PutRolePolicy", "AttachRolePolicy"):
        (one,) = (one for one in allowed if f"iam:{action}" in one["Action"])
        assert one["Condition"] == {"StringEquals": {"iam:PermissionsBoundary": BOUNDARY}}

    assert not [one for one in allowed if "iam:DeleteRolePermissionsBoundary" in one["Action"]]


def test_a_deploy_changes_neither_its_rights_nor_the_boundary(each: Assembly) -> None:
    people = [name for role in RIGHTS for name in policies(role, whose(each))]
    named = [f"policy/{name}" for name in [*execution(whose(each), templates_of(each)), *people]]
    role = f"role/cdk-{whose(each).qualifier}-cfn-exec-role-{ACCOUNT}-eu-west-1"
    arns = [f"arn:aws:iam::{ACCOUNT}:{one}" for one in (*named, role)]
    bound = whose(each).boundary_arn
    found = list(statements(each))
    (denied,) = (one for one in found if one["Effect"] == "Deny")
    writes = {
        action
        for one in found
        for action in one["Action"]
        if re.match(r"iam:(?!Get|List|Pass|CreateServiceLinkedRole)", action)
    }

    assert "iam:PutRolePolicy" in writes
    makes = "AWS::IAM::ManagedPolicy" in types_of(templates_of(each))
    assert ("iam:CreatePolicyVersion" in writes) is makes
    assert writes == set(denied["Action"])
    for arn in (*arns, *([bound] if bound else [])):
        assert any(fnmatchcase(arn, one) for one in denied["Resource"])


def test_no_policy_of_a_deploy_is_one_that_it_must_not_change(each: Assembly) -> None:
    (denied,) = (one for one in statements(each) if one["Effect"] == "Deny")
    for one in (one for stack in each.stacks.values() for one in stack.values()):
        properties = one.get("Properties", {})
        name = properties.get("RoleName") or properties.get("ManagedPolicyName")
        for kind in ("role", "policy"):
            arn = f"arn:aws:iam::{ACCOUNT}:{kind}{properties.get('Path', '/')}{name}"
            assert not any(fnmatchcase(arn, pattern) for pattern in denied["Resource"])


def test_roles_are_passed_to_services_that_use_them_alone(each: Assembly) -> None:
    (one,) = (one for one in statements(each) if "iam:PassRole" in one["Action"])
    passed = one["Condition"]["StringEquals"]["iam:PassedToService"]

    assert {"ec2.amazonaws.com", "lambda.amazonaws.com", "scheduler.amazonaws.com"} <= {*passed}
    assert all(isinstance(name, str) and name.endswith(".amazonaws.com") for name in passed)


def test_roles_of_aws_are_made_for_known_services_alone(each: Assembly) -> None:
    (one,) = (one for one in statements(each) if "iam:CreateServiceLinkedRole" in one["Action"])
    named = set(one["Condition"]["StringEquals"]["iam:AWSServiceName"])

    assert "replication.dynamodb.amazonaws.com" in named
    is_baked = any(kind.startswith("AWS::ImageBuilder") for kind in types_of(templates_of(each)))
    assert ("imagebuilder.amazonaws.com" in named) is is_baked


def test_a_deploy_uses_keys_through_services_alone(ruled: Assembly) -> None:
    used = [
        one
        for one in statements(ruled)
        if any(re.match(r"kms:(?!Describe|List)", action) for action in one["Action"])
    ]

    assert all(one["Condition"]["StringEquals"]["kms:ViaService"] for one in used)
    (lent,) = (one for one in used if "kms:CreateGrant" in one["Action"])
    assert lent["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}


def test_archives_that_a_key_of_one_s_own_encrypts_are_read(ruled: Assembly) -> None:
    (one,) = (one for one in statements(ruled) if one["Sid"] == "ReadArchivesByKey")

    # That of a region without workers encrypts no archive that is read.
    assert one["Resource"] == [HOME_KEY, AWAY_KEY]
    assert one["Condition"]["StringEquals"]["kms:ViaService"] == [
        "s3.eu-west-1.amazonaws.com",
        "s3.us-west-2.amazonaws.com",
    ]


def test_what_the_registry_asks_is_allowed_or_left_out_by_name(each: Assembly) -> None:
    allowed = {action for one in statements(each) for action in one["Action"]}
    asked = {action for kind in types_of(templates_of(each)) for action in rights_of(kind)}
    lacking = {
        one
        for one in asked - allowed
        if not re.match(r"iam:\w+(Group|User)|iam:DeleteRolePermissionsBoundary$", one)
        # A key of one's own: without it none is used.
        and not (one.startswith("kms:") and not whose(each).key_arns)
    }

    assert [one for one in lacking if {one, one.partition(":")[0]}.isdisjoint(LEFT_OUT)] == []
    assert lacking


def test_endpoints_get_the_names_of_their_services(private: Assembly, ruled: Assembly) -> None:
    names = "route53:AssociateVPCWithHostedZone"

    (one,) = (one for one in statements(private) if names in one["Action"])
    # A global service: its requests are of no region of the deployment's.
    assert "Condition" not in one
    assert not [one for one in statements(ruled) if names in one["Action"]]


def test_only_what_bears_the_tag_is_deleted(each: Assembly) -> None:
    free, bound = (
        next(one for one in statements(each) if one["Sid"] == sid)
        for sid in ("ChangeById", "DeleteTagged")
    )
    tagged = {
        "AWS::EC2::FlowLog",
        "AWS::EC2::InternetGateway",
        "AWS::EC2::RouteTable",
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::Subnet",
        "AWS::EC2::VPC",
        "AWS::EC2::VPCEndpoint",
    }

    assert bound["Condition"]["StringEquals"]["aws:ResourceTag/spindown:deployment"] == "lab"
    deletes = {one for one in free["Action"] if one.startswith("ec2:Delete")}
    # Whether a launch template bears tags, only a rule of the account says.
    assert deletes == {"ec2:DeleteLaunchTemplate"}
    for stack in each.stacks.values():
        for one in stack.values():
            if one["Type"] in tagged:
                assert {"Key": "spindown:deployment", "Value": "lab"} in one["Properties"]["Tags"]


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


def test_what_roles_call_lies_within_the_boundary(assembly: Assembly) -> None:
    made = bounding(assembly)

    calls = [as_named(call) for own in CALLS.values() for call in own]
    outside = {str(call) for call in calls if not is_within(made, call)}

    assert outside == set()


@pytest.mark.parametrize(
    "call",
    [
        Call("dynamodb:UpdateItem", ours("dynamodb", "table/payroll")),
        Call("sqs:SendMessage", ours("sqs", "payroll")),
        Call("sns:Publish", ours("sns", "payroll")),
        Call("lambda:InvokeFunction", ours("lambda", "function:payroll")),
        Call("s3:PutObject", "arn:aws:s3:::payroll/x", {"aws:ResourceAccount": [ACCOUNT]}),
        Call("ec2:TerminateInstances", ours("ec2", "instance/i-1")),
        Call("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/payroll"),
    ],
    ids=lambda call: call.action,
)
def test_no_role_changes_what_is_not_the_deployment_s(assembly: Assembly, call: Call) -> None:
    assert not is_within(bounding(assembly), call)


def test_only_launches_and_agents_change_what_may_be_anybody_s(each: Assembly) -> None:
    free = {
        action
        for one in boundary(whose(each), templates_of(each))["Statement"]
        if one["Resource"] == ["*"] and "Condition" not in one
        for action in one["Action"]
    }
    changes = {
        one
        for one in free
        if not re.match(r"\w+:(BatchGet|Describe|Get|List)|(ec2|ssm)messages:|kms:", one)
    }

    assert {"ec2:CreateFleet", "ec2:RunInstances"} <= changes
    assert changes <= {"ec2:CreateFleet", "ec2:RunInstances", "ssm:UpdateInstanceInformation"}
    # By these a key is used, not lent.
    assert {one for one in free if one.startswith("kms:")} <= {
        *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
        *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
    }


INSTANCE = ours("ec2", "instance/i-1")
SNAPSHOT = "arn:aws:ec2:eu-west-1::snapshot/snap-1"
MADE_FOR = "aws:ResourceTag/Ec2ImageBuilderArn"
OURS = {"aws:RequestTag/spindown:deployment": ["lab"]}
INTERFACE = ours("ec2", "network-interface/*")


@pytest.mark.parametrize(
    ("call", "may"),
    [
        (Call("ec2:CreateTags", INSTANCE, OURS), False),
        (Call("ec2:CreateTags", INSTANCE, {**OURS, "ec2:CreateAction": ["RunInstances"]}), True),
        (Call("ec2:SendSpotInstanceInterruptions", INSTANCE), False),
        (
            Call(
                "ec2:SendSpotInstanceInterruptions",
                INSTANCE,
                {"aws:ResourceTag/spindown:deployment": ["lab"]},
            ),
            True,
        ),
        (Call("ec2:DeleteSnapshot", SNAPSHOT), False),
        (
            Call("ec2:DeleteSnapshot", SNAPSHOT, {MADE_FOR: [ours("imagebuilder", "image/pay/1")]}),
            False,
        ),
        (
            Call(
                "ec2:DeleteSnapshot", SNAPSHOT, {MADE_FOR: [ours("imagebuilder", "image/lab--a/1")]}
            ),
            True,
        ),
        (Call("kms:CreateGrant", HOME_KEY, {"kms:GrantIsForAWSResource": ["false"]}), False),
        (Call("kms:CreateGrant", HOME_KEY, {"kms:GrantIsForAWSResource": ["true"]}), True),
        (Call("events:PutEvents", ours("events", "event-bus/payroll")), False),
        (Call("events:PutEvents", ours("events", "event-bus/default")), True),
        (Call("ec2:CreateNetworkInterface", INTERFACE), True),
        (
            Call(
                "ec2:CreateNetworkInterface",
                INTERFACE,
                {"lambda:SourceFunctionArn": [ours("lambda", "function:lab--scaler")]},
            ),
            False,
        ),
    ],
    ids=str,
)
def test_the_boundary_has_the_conditions_of_roles(
    assembly: Assembly, call: Call, *, may: bool
) -> None:
    statement = {"Effect": "Allow", "Action": call.action, "Resource": "*"}
    properties = {"PolicyDocument": {"Statement": statement}}
    templates = [{"Resources": {"One": {"Type": "AWS::IAM::Policy", "Properties": properties}}}]

    made = [as_statement(one) for one in boundary(whose(assembly), templates)["Statement"]]

    assert is_within(made, call) is may


def as_statement(one: Mapping[str, Any]) -> Statement:
    return Statement(
        sid=one["Sid"],
        actions=one["Action"],
        resources=one["Resource"],
        conditions={
            operator: {key: listed(value) for key, value in keys.items()}
            for operator, keys in one.get("Condition", {}).items()
        },
    )


def bounding(assembly: Assembly) -> list[Statement]:
    """Return the statements of the boundary."""
    made = boundary(whose(assembly), templates_of(assembly))
    return [as_statement(one) for one in made["Statement"]]


def is_within(made: Sequence[Statement], call: Call) -> bool:
    """Tell whether the boundary allows a call on what is the account's."""
    context = {"aws:ResourceAccount": [ACCOUNT], **call.context}
    return any(one.allows(replace(call, context=context)) for one in made)


def as_named(call: Call) -> Call:
    """Return a call on what CloudFormation has named: bucket, roles and some queues."""
    resource = call.resource.replace(STORE, "arn:aws:s3:::lab-core-storebucket1a2b")
    resource = re.sub(rf"(:role/|:{ACCOUNT}:)(?=Workload|Control)", r"\1lab-core-", resource)
    return replace(call, resource=resource)


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
