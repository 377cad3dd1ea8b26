"""What each role may do, and above all what it may not."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from spindown.aws.ec2 import fleet_arguments
from spindown.contract import tag
from spindown.domain.offer import NEURON_MAKER, InstanceRequirements
from spindown.infra.control.bundle import CALLED
from spindown.infra.iam.control import bound_launches, make_tagged
from spindown.infra.iam.worker import read_declared
from spindown.memory import PortCall
from spindown.port import LaunchRequest
from tests.control import ControlWorld
from tests.infra.assembly import Assembly, listed, words
from tests.infra.policy import matches

WORKERS = ["WorkloadplainFleetRole", "WorkloadrichFleetRole"]
FUNCTIONS = ["ControlScalerRole", "ControlInterruptionRole", "ControlOffersRole"]
TEARDOWN = "ControlTeardownFunctionRole"
ROLES = [*WORKERS, *FUNCTIONS, TEARDOWN, "ControlTriggerRole"]

#: The scaler, and the interruption function that replaces a worker at once.
RECONCILES = ["ControlScalerRole", "ControlInterruptionRole"]

#: Statements on all resources, since their actions know none.
UNBOUND = {"FindInstances", "SeeInstances", "SeeListPrices", "SeePrices", "SeeQuotas", "SeeTypes"}

DEFAULT_IMAGE = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)

#: Granted where a workload has types (``test_types``), as lambda:InvokeFunction.
WITH_TYPES = {"lambda:Invoke"}
#: The same where there is a webhook (``test_topic``).
WITH_WEBHOOK = {"secretsmanager:GetSecretValue", "ssm:GetParameter"}
#: EC2 asks the caller for these while it carries out CreateFleet; nobody calls them.
WITHIN_A_LAUNCH = {"ec2:CreateTags", "ssm:GetParameter"}
#: Image Builder asks for it while it starts a pipeline.
WITHIN_A_BUILD = {"imagebuilder:GetImagePipeline"}


def actions(statements: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {action for one in statements.values() for action in listed(one["Action"])}


def resources(statement: Mapping[str, Any]) -> list[str]:
    return [words(one) for one in listed(statement["Resource"])]


@pytest.mark.parametrize("role", ROLES)
def test_no_role_has_an_action_by_pattern(assembly: Assembly, role: str) -> None:
    found = actions(assembly.statements(role))

    assert found
    assert not [action for action in found if "*" in action]


@pytest.mark.parametrize("role", ROLES)
def test_all_resources_are_granted_only_where_actions_know_none(
    assembly: Assembly, role: str
) -> None:
    statements = assembly.statements(role)

    unbound = {name for name, one in statements.items() if "*" in resources(one)}

    assert unbound <= UNBOUND
    elsewhere = {"SeeListPrices": "eu-central-1", "SeeQuotas": "eu-west-1"}
    for name in unbound:
        region = elsewhere.get(name, {"Ref": "AWS::Region"})
        assert statements[name]["Condition"] == {"StringEquals": {"aws:RequestedRegion": region}}


@pytest.mark.parametrize("role", WORKERS)
def test_a_worker_may_do_its_work_and_nothing_to_the_fleet(assembly: Assembly, role: str) -> None:
    services = {action.partition(":")[0] for action in actions(assembly.statements(role))}

    declared = {"kms", "secretsmanager", "ssm"} if "rich" in role else set()
    assert services == {"dynamodb", "events", "logs", "s3", "sqs", *declared}


@pytest.mark.parametrize("role", WORKERS)
def test_a_worker_touches_the_rows_of_its_workload_alone(assembly: Assembly, role: str) -> None:
    workload = role.removeprefix("Workload").removesuffix("FleetRole")
    statements = assembly.statements(role)

    kept = (("KeepOwnRows", "w"), ("ReadPolicy", "c"), ("ReadOwnHistory", "h"))
    for sid, partition in kept:
        assert statements[sid]["Condition"] == {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{partition}#{workload}"]}
        }
        # Neither names keys, so the condition would not hold them.
        assert not {"dynamodb:Scan", "dynamodb:PartiQLSelect"} & set(
            listed(statements[sid]["Action"])
        )


def test_a_worker_reads_the_queue_of_its_workload_alone(assembly: Assembly) -> None:
    statements = assembly.statements("WorkloadrichFleetRole")

    (queue,) = resources(statements["WorkQueue"])
    (shapes,) = resources(statements["KeepJobs"])
    (dead_letters,) = resources(statements["GiveUpJobs"])
    assert queue.startswith("<WorkloadrichJobsQueue")
    assert shapes == f"{queue}--c*"
    assert dead_letters.startswith("<WorkloadrichJobsDeadLetters")
    assert statements["GiveUpJobs"]["Action"] == "sqs:SendMessage"


def test_a_worker_reads_its_declared_inputs_and_writes_none(assembly: Assembly) -> None:
    statements = assembly.statements("WorkloadrichFleetRole")

    assert statements["ReadInputs"]["Action"] == "s3:GetObject"
    assert resources(statements["ReadInputs"]) == [
        "arn:<AWS::Partition>:s3:::models/ocr",
        "arn:<AWS::Partition>:s3:::models/ocr/*",
        "arn:<AWS::Partition>:s3:::papers/2025/*",
        "arn:<AWS::Partition>:s3:::papers/2026/*",
    ]
    assert statements["ListInputs1"]["Condition"] == {"StringLike": {"s3:prefix": ["ocr/*"]}}
    assert statements["ListInputs2"]["Condition"] == {
        "StringLike": {"s3:prefix": ["2026/*", "2025/*"]}
    }
    assert "ReadInputs" not in assembly.statements("WorkloadplainFleetRole")


@pytest.mark.parametrize(
    ("declared", "beside"),
    [
        ("scans*/", ("scans-private/", "scans/")),
        ("20??/", ("2026/",)),
        ("${aws:userid}/", ("AROAX/",)),
        ("$a/", ("a/",)),
        ("{*}/", ("{x}/",)),
    ],
)
def test_no_sign_of_an_input_s_key_is_a_pattern(declared: str, beside: tuple[str, ...]) -> None:
    read, see = read_declared([f"s3://papers/{declared}"])
    objects = [one.partition(":::")[2] for one in read.resources]
    folders = listed(see.to_statement_json()["Condition"]["StringLike"]["s3:prefix"])

    for folder, is_allowed in ((declared, True), *((one, False) for one in beside)):
        assert any(matches(one, f"papers/{folder}1.pdf") for one in objects) is is_allowed
        assert any(matches(one, folder) for one in folders) is is_allowed


def test_a_worker_reads_its_own_code_and_no_other_asset(assembly: Assembly) -> None:
    (archives,) = resources(assembly.statements("WorkloadplainFleetRole")["ReadCode"])

    bucket, _, key = archives.partition("/")
    assert bucket.startswith("arn:<AWS::Partition>:s3:::cdk-hnb659fds-assets-")
    assert key == "spindown/code/lab/plain/*"


@pytest.mark.parametrize("role", WORKERS)
def test_a_worker_reads_the_kit_that_it_is_installed_from(assembly: Assembly, role: str) -> None:
    statement = assembly.statements(role)["ReadKit"]

    assert statement["Action"] == "s3:GetObject"
    (kits,) = resources(statement)
    bucket = assembly.kit.uri.removeprefix("s3://").partition("/")[0]
    assert kits == f"arn:<AWS::Partition>:s3:::{bucket}/spindown/kit/*"
    assert assembly.kit.uri.startswith(f"s3://{bucket}/spindown/kit/")


def test_workers_have_a_shell_only_where_it_is_asked_for(
    assembly: Assembly, with_shell: Assembly
) -> None:
    for role in WORKERS:
        assert "OpenSessions" not in assembly.statements(role)
        assert actions({"": with_shell.statements(role)["OpenSessions"]}) == {
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        }


def test_only_reconcile_launches_and_only_it_and_teardown_end(
    assembly: Assembly,
) -> None:
    for role in ROLES:
        found = actions(assembly.statements(role))
        launches = {"ec2:CreateFleet", "ec2:RunInstances", "iam:PassRole"} & found
        assert bool(launches) is (role in RECONCILES)
        assert ("ec2:TerminateInstances" in found) is (role in {*RECONCILES, TEARDOWN})


def test_a_notice_may_be_answered_by_all_that_a_reconcile_does(assembly: Assembly) -> None:
    scaler, interruption = (actions(assembly.statements(role)) for role in RECONCILES)

    # But for batches, which are followed after a tick of the scaler's alone.
    assert scaler - interruption == {"s3:DeleteObject"}


def test_a_launch_comes_from_our_templates_with_our_tag(assembly: Assembly) -> None:
    statements = assembly.statements("ControlScalerRole")
    templates = resources(statements["LaunchFromTemplates"])
    ours = {"StringEquals": {f"aws:RequestTag/{tag.DEPLOYMENT}": "lab"}}

    assert len(templates) == 3
    assert all("launch-template/<Workload" in one for one in templates)
    assert statements["RequestTaggedFleets"]["Condition"] == ours
    assert statements["LaunchTaggedParts"]["Condition"] == ours
    instances = statements["LaunchTaggedInstances"]["Condition"]
    assert instances["StringEquals"] == {
        **ours["StringEquals"],
        f"aws:RequestTag/{tag.WORKLOAD}": ["plain", "rich"],
        "ec2:MetadataHttpTokens": "required",
    }
    assert instances["Null"] == {f"aws:RequestTag/{tag.LEASE_UNTIL}": "false"}
    assert [words(one) for one in instances["ArnEquals"]["ec2:LaunchTemplate"]] == templates


@pytest.mark.parametrize(
    ("wanted", "types", "denied"),
    [
        ({}, ("g*", "p*"), ("*.metal*",)),
        ({"gpu_manufacturer": NEURON_MAKER}, ("inf*", "trn*"), ("*.metal*",)),
        ({"gpu_manufacturer": None}, ("*",), ("*.metal*",)),
        ({"gpu_count_min": 0.0}, ("*",), ("*.metal*",)),
        ({"instance_types": frozenset({"g6.xlarge"})}, ("g6.xlarge",), ("*.metal*",)),
        ({"allow_bare_metal": True}, ("g*", "p*"), ()),
        ({"families_denied": frozenset({"g5"})}, ("g*", "p*"), ("*.metal*", "g5.*")),
    ],
)
def test_a_workload_launches_only_types_that_it_may_have(
    wanted: dict[str, Any], types: tuple[str, ...], denied: tuple[str, ...]
) -> None:
    bound = bound_launches("ocr", ["lt-1"], InstanceRequirements(**wanted))

    assert (bound.types, bound.types_denied) == (types, denied)


def test_workloads_share_a_grant_if_they_share_types() -> None:
    wanted = [
        InstanceRequirements(),
        InstanceRequirements(gpu_count_min=0.0),
        InstanceRequirements(),
    ]
    launched = [bound_launches(f"w{n}", [f"lt-{n}"], one) for n, one in enumerate(wanted)]

    tagged = make_tagged(deployment="lab", launched=launched, spot_too=False)
    made = [one.to_statement_json() for one in tagged]

    bounds = [one["Condition"] for one in made if one["Sid"].startswith("LaunchTaggedInstances")]
    workloads = [one["StringEquals"][f"aws:RequestTag/{tag.WORKLOAD}"] for one in bounds]
    assert workloads == [["w0", "w2"], ["w1"]]
    assert [len(listed(one["ArnEquals"]["ec2:LaunchTemplate"])) for one in bounds] == [2, 1]


def test_a_launch_request_says_what_its_grant_asks_for(assembly: Assembly) -> None:
    """EC2 looks at the request alone before it makes a fleet, which takes no tag of a template.

    Of a network interface it is known that the template's tag is enough (``spindown.aws.ec2``).
    """
    request = the_first_launch()
    grant = assembly.statements("ControlScalerRole")["RequestTaggedFleets"]
    asked = grant["Condition"]
    made = {one.split(":")[-1].removesuffix("/*") for one in resources(grant)}
    wanted = {key.removeprefix("aws:RequestTag/") for key in asked["StringEquals"]}

    said = {
        one["ResourceType"]: {each["Key"] for each in one["Tags"]}
        for one in fleet_arguments(request)["TagSpecifications"]
    }

    assert said.keys() == made - {"network-interface"}
    assert all(wanted <= keys for keys in said.values())


def the_first_launch() -> LaunchRequest:
    """Return what a tick asks for that finds a message."""
    world, asked = ControlWorld(), list[LaunchRequest]()

    def record(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            asked.append(call.args[0])
        return proceed()

    world.interfere = record
    world.send()
    world.tick()
    return asked[0]


def test_a_launch_goes_into_our_subnets_and_security_group(assembly: Assembly) -> None:
    parts = resources(assembly.statements("ControlScalerRole")["LaunchWithParts"])

    assert len([one for one in parts if ":subnet/<NetworkSubnet" in one]) == 2
    assert len([one for one in parts if ":security-group/<NetworkWorkers" in one]) == 1
    assert not [one for one in parts if one.endswith(("subnet/*", "security-group/*"))]


def test_tags_are_written_only_while_launching(assembly: Assembly) -> None:
    condition = assembly.statements("ControlScalerRole")["TagLaunches"]["Condition"]

    assert condition["StringEquals"]["ec2:CreateAction"] == ["CreateFleet", "RunInstances"]
    assert condition["StringEquals"][f"aws:RequestTag/{tag.DEPLOYMENT}"] == "lab"


def test_only_what_bears_our_tag_can_be_ended(assembly: Assembly) -> None:
    statement = assembly.statements("ControlScalerRole")["EndWorkers"]

    assert statement["Action"] == "ec2:TerminateInstances"
    ours = {tag.DEPLOYMENT: "lab", tag.REGION: "eu-west-1"}
    bears = {f"aws:ResourceTag/{key}": value for key, value in ours.items()}
    assert statement["Condition"] == {"StringEquals": bears}


def test_only_worker_roles_are_passed_and_only_to_ec2(assembly: Assembly) -> None:
    statement = assembly.statements("ControlScalerRole")["PassWorkerRoles"]

    passed = resources(statement)
    assert [one.partition("FleetRole")[0] for one in passed] == [
        "<Workloadplain",
        "<Workloadrich",
    ]
    assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_an_image_of_aws_and_one_of_our_own_can_be_looked_up(assembly: Assembly) -> None:
    found = resources(assembly.statements("ControlScalerRole")["ResolveImages"])

    assert {one.removeprefix("arn:<AWS::Partition>:ssm:<AWS::Region>:") for one in found} == {
        f":parameter{DEFAULT_IMAGE}",
        "<AWS::AccountId>:parameter/images/rich/arm64",
        "<AWS::AccountId>:parameter/images/rich/x86_64",
    }


def test_reads_only_settings_of_this_deployment_and_live_edits(assembly: Assembly) -> None:
    for role in FUNCTIONS:
        found = resources(assembly.statements(role)["ReadSettings"])
        own = [one.partition("/spindown/lab/")[2] for one in found]
        assert sorted(own) == ["deployment", "live/*", "workload/*"]


def test_what_is_called_is_granted_and_nothing_else(assembly: Assembly) -> None:
    prefixes = {"service-quotas": "servicequotas"}
    called = {
        f"{prefixes.get(service, service)}:{operation}"
        for service, operations in CALLED.items()
        for operation in operations
    }

    services = {action.partition(":")[0] for action in called}
    granted = {
        action
        for role in (*FUNCTIONS, TEARDOWN)
        for action in actions(assembly.statements(role))
        if action.partition(":")[0] in services
    }

    assert granted - WITHIN_A_LAUNCH - WITHIN_A_BUILD == called - WITH_TYPES - WITH_WEBHOOK


def test_ec2_and_lambda_may_each_take_their_own_roles_only(assembly: Assembly) -> None:
    trusted = {
        name: [
            statement["Principal"]["Service"]
            for statement in one["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        ]
        for name, one in assembly.resources.items()
        if one["Type"] == "AWS::IAM::Role"
    }

    for role, service in (
        *((role, "ec2.amazonaws.com") for role in WORKERS),
        *((role, "lambda.amazonaws.com") for role in (*FUNCTIONS, TEARDOWN)),
        ("ControlTriggerRole", "scheduler.amazonaws.com"),
    ):
        (found,) = (services for name, services in trusted.items() if name.startswith(role))
        assert found == [service]
