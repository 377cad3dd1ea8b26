"""What an account's rules ask for is on all that they ask it for: every stack is walked."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from spindown.config import load
from spindown.config.deployment import RETENTION_DAYS
from spindown.contract import tag
from spindown.contract.codec import decode, from_json
from spindown.contract.settings import DeploymentSettings
from spindown.infra import Deployment
from spindown.infra.deployment import describe, load_config, synthesise_app
from spindown.infra.flag import FLAGS
from spindown.infra.iam.statement import KEY_USE
from spindown.infra.shared.stack import iam_name
from tests.infra.assembly import (
    AWAY,
    PLAIN,
    ROOT,
    Assembly,
    listed,
    make_app,
    report_findings,
    synthesise,
    synthesise_core,
    synthesise_once,
    words,
    write_project,
)
from tests.infra.ruled import (
    AWAY_KEY,
    BOUNDARY,
    DAYS,
    HOME_KEY,
    PATH,
    PREFIX,
    QUALIFIER,
    TAGS,
    write_ruled_project,
)
from tests.infra.test_fleet import launch_data, tags_of
from tests.infra.test_rule import KEPT

HOME = "eu-west-1"
STACKS = {"lab-core", "lab-fault", "lab-image", "lab-insight", f"lab-outpost-{AWAY}"}


@pytest.fixture(scope="session")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "ruled", write_ruled_project)


def of_type(assembly: Assembly, *kinds: str) -> Iterator[Mapping[str, Any]]:
    """Yield the properties of all resources of these types, in all stacks."""
    for resources in assembly.stacks.values():
        for one in resources.values():
            if one["Type"] in kinds:
                yield one.get("Properties", {})


def schema_of(kind: str) -> Mapping[str, Any]:
    """Return CloudFormation's own description of a type."""
    found: Mapping[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(HOME, kind).schema
    return found


def takes_tags(kind: str) -> bool:
    """Tell whether a type has tags."""
    if kind.startswith("Custom::") or kind == "AWS::CDK::Metadata":
        return False
    known = set(schema_of(kind)["properties"])
    return bool({"Tags", "TagSpecifications"} & known) or kind in _DEEPER


#: Types whose tags lie deeper, in parts of them.
_DEEPER = {"AWS::DynamoDB::GlobalTable"}


def tags_on(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags of a resource, however its type writes them."""
    if kind == "AWS::DynamoDB::GlobalTable":
        (properties,) = properties["Replicas"]
    if kind == "AWS::EC2::LaunchTemplate":
        (properties,) = properties["TagSpecifications"]
    found = properties.get("Tags", {})
    return found if isinstance(found, dict) else {one["Key"]: one["Value"] for one in found}


def test_there_is_every_stack(ruled: Assembly) -> None:
    assert set(ruled.stacks) == STACKS


def test_every_resource_that_takes_tags_bears_them(ruled: Assembly) -> None:
    kinds, lacking = set(), []
    for stack, resources in ruled.stacks.items():
        for name, one in resources.items():
            if takes_tags(one["Type"]):
                kinds.add(one["Type"])
                if not tags_on(one["Type"], one["Properties"]).items() >= TAGS.items():
                    lacking.append((stack, name, one["Type"]))

    assert lacking == []
    assert len(kinds) > 20


@pytest.mark.parametrize("stack", ["lab-core", f"lab-outpost-{AWAY}"])
def test_every_template_tags_all_that_its_launch_makes(ruled: Assembly, stack: str) -> None:
    templates = {
        one["Properties"]["LaunchTemplateName"]: one["Properties"]["LaunchTemplateData"]
        for one in ruled.stacks[stack].values()
        if one["Type"] == "AWS::EC2::LaunchTemplate"
    }

    assert len(templates) == 10
    for name, data in templates.items():
        kinds = {one["ResourceType"] for one in data["TagSpecifications"]}
        # EC2 launches nothing on demand from a template with tags for a spot request.
        spot = {"spot-instances-request"} if name.endswith("--spot") else set()
        assert kinds == {"instance", "network-interface", "volume"} | spot
        for kind in kinds:
            assert tags_of(data, kind).items() >= {**TAGS, tag.DEPLOYMENT: "lab"}.items()


def test_a_launch_finds_the_template_of_its_market(ruled: Assembly) -> None:
    for name in ("plain", "box"):
        (told,) = (
            words(one["Value"])
            for one in of_type(ruled, "AWS::SSM::Parameter")
            if one["Name"] == f"/spindown/lab/workload/{name}"
        )
        of_home = from_json("settings", told)["regions"]["eu-west-1"]
        usual, spot = (of_home["templates"][key] for key in ("x86_64", "x86_64/spot"))
        assert usual["id"] != spot["id"]
        assert "spot" in spot["id"]


def test_the_launch_s_own_tags_are_in_the_settings(ruled: Assembly) -> None:
    (told,) = (
        words(one["Value"])
        for one in of_type(ruled, "AWS::SSM::Parameter")
        if one["Name"] == "/spindown/lab/deployment"
    )

    assert decode(DeploymentSettings, from_json("settings", told)).tags == TAGS


#: Statement on all resources -> why it names none, each action without a resource in the Service
#: Authorization Reference of its service.
UNBOUND = {
    **dict.fromkeys(
        ("FindInstances", "FindTargets", "SeeInstances", "SeePrices", "SeeTypes"),
        "ec2:Describe... take no resource",
    ),
    "ExchangeMessages": "ec2messages of the agent of Systems Manager take no resource",
    "FindImages": "ec2:DescribeImages and tag:GetResources take no resource",
    "OpenSessions": "ssmmessages take no resource, and the agent names its own instance",
    "SeeListPrices": "pricing:GetProducts takes no resource",
    "SeeQuotas": "servicequotas:ListServiceQuotas takes no resource",
    "SignInToRegistry": "ecr:GetAuthorizationToken takes no resource",
}


def test_all_resources_are_granted_for_known_reasons_alone(ruled: Assembly) -> None:
    """And then in the regions where they are asked for alone."""
    found = {}
    for one in of_type(ruled, "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role"):
        inline = [each["PolicyDocument"] for each in one.get("Policies", ())]
        for document in [one["PolicyDocument"]] if "PolicyDocument" in one else inline:
            for statement in document["Statement"]:
                if "*" in map(words, listed(statement["Resource"])):
                    found[statement.get("Sid", "")] = statement

    assert found.keys() == UNBOUND.keys()
    for statement in found.values():
        assert listed(statement["Condition"]["StringEquals"]["aws:RequestedRegion"])


def test_who_approves_reads_what_is_granted_on_all_resources() -> None:
    page = (ROOT / "docs" / "account.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| What is granted on all"))

    assert UNBOUND.keys() <= set(re.findall(r"`(\w+)`", row))


def test_who_launches_may_tag_spot_requests(ruled: Assembly) -> None:
    for role in ("ControlScalerRole", "ControlInterruptionRole"):
        tagged = [words(one) for one in ruled.statements(role)["TagLaunches"]["Resource"]]
        assert any(one.endswith(":spot-instances-request/*") for one in tagged)
    assert "sqs:TagQueue" in ruled.statements("ControlIntakeRole")["RouteMessages"]["Action"]


def test_what_is_baked_bears_them_and_is_found_as_ever(ruled: Assembly) -> None:
    for made_on in of_type(ruled, "AWS::ImageBuilder::InfrastructureConfiguration"):
        assert made_on["ResourceTags"].items() >= TAGS.items()
        assert tag.DEPLOYMENT not in made_on["ResourceTags"]
    for pipeline in of_type(ruled, "AWS::ImageBuilder::ImagePipeline"):
        assert pipeline["ImageTags"].items() >= TAGS.items()
    for distribution in of_type(ruled, "AWS::ImageBuilder::DistributionConfiguration"):
        for place in distribution["Distributions"]:
            assert place["AmiDistributionConfiguration"]["AmiTags"].items() >= TAGS.items()
    for policy in of_type(ruled, "AWS::ImageBuilder::LifecyclePolicy"):
        assert not TAGS.keys() & policy["ResourceSelection"]["TagMap"].keys()


def test_every_role_is_bounded(ruled: Assembly) -> None:
    roles = list(of_type(ruled, "AWS::IAM::Role"))

    assert len(roles) == 15
    assert {words(one.get("PermissionsBoundary")) for one in roles} == {BOUNDARY}
    assert not list(of_type(ruled, "AWS::IAM::User", "AWS::IAM::Group"))


def test_all_that_has_a_path_in_iam_has_this_one(ruled: Assembly) -> None:
    kinds = ("AWS::IAM::Role", "AWS::IAM::ManagedPolicy", "AWS::IAM::InstanceProfile")

    for kind in kinds:
        found = list(of_type(ruled, kind))
        assert found
        assert {one.get("Path") for one in found} == {PATH}


def test_every_name_of_a_role_begins_so_and_is_one_role_s(ruled: Assembly) -> None:
    names = [one["RoleName"] for one in of_type(ruled, "AWS::IAM::Role")]
    profiles = [one["InstanceProfileName"] for one in of_type(ruled, "AWS::IAM::InstanceProfile")]
    policies = [one["ManagedPolicyName"] for one in of_type(ruled, "AWS::IAM::ManagedPolicy")]

    for found in (names, profiles, policies):
        assert found
        assert all(one.startswith(PREFIX) and len(one) <= 64 for one in found)
        assert len(set(found)) == len(found)


def test_what_abroad_refers_to_is_there_by_that_name(ruled: Assembly) -> None:
    """A role by its name, an instance profile by its ARN with its path."""
    home = ruled.stacks["lab-core"].values()
    roles = {one["Properties"]["RoleName"] for one in home if one["Type"] == "AWS::IAM::Role"}
    profiles = {
        one["Properties"]["InstanceProfileName"]
        for one in home
        if one["Type"] == "AWS::IAM::InstanceProfile"
    }
    for one in ruled.stacks[f"lab-outpost-{AWAY}"].values():
        if one["Type"] == "AWS::IAM::ManagedPolicy":
            assert set(one["Properties"]["Roles"]) <= roles
        if one["Type"] == "AWS::EC2::LaunchTemplate":
            data = one["Properties"]["LaunchTemplateData"]
            arn = words(data["IamInstanceProfile"]["Arn"])
            path, _, name = arn.partition(":instance-profile")[2].rpartition("/")
            assert (f"{path}/", name in profiles) == (PATH, True)


@pytest.mark.parametrize("what", ["scaler", "of-a-workload-with-so-long-a-name"])
def test_with_another_path_everything_has_another_name(tmp_path: Path, what: str) -> None:
    """CloudFormation cannot replace a role by one of the same name."""
    names = {
        iam_name(load(write_project(tmp_path, with_path(path))).deployment, what)
        for path in ("", "/team/", "/team/vision/")
    }

    assert len(names) == 3
    assert all(len(name) <= 64 for name in names)


def with_path(path: str) -> str:
    set_path = f'role_path = "{path}"\n' if path else ""
    text = PLAIN.format(image="").replace('"lab"', '"of-a-department-of-a-team"')
    return text.replace("zones", f'{set_path}role_name_prefix = "{PREFIX}"\nzones')


def test_a_name_too_long_for_a_role_keeps_apart(tmp_path: Path) -> None:
    head, _, workload = PLAIN.format(image="").partition("[workload.plain.run]")
    head = head.replace('"lab"', '"of-a-department-of-a-company"')
    head = head.replace("zones", f'role_name_prefix = "{PREFIX}of-the-team-"\nzones')
    workload, _, _ = workload.partition("[workload")
    text = head + "".join(f"[workload.which-has-a-long-name-{n}.run]{workload}" for n in "123")

    core = synthesise_core(write_project(tmp_path, text), tmp_path / "out")

    names = [one["RoleName"] for one in core.all_of("AWS::IAM::Role")]
    assert len(set(names)) == len(names)
    assert max(len(one) for one in names) <= 64


def test_logs_are_kept_as_long_as_asked(ruled: Assembly) -> None:
    groups = list(of_type(ruled, "AWS::Logs::LogGroup"))

    assert {one["RetentionInDays"] for one in groups} == {DAYS}
    assert len(groups) == 15


@pytest.mark.parametrize(
    ("key", "policy"), [("", "Delete"), ("keep_logs = true\n", "RetainExceptOnCreate")]
)
def test_logs_outlive_their_stack_where_it_is_asked(key: str, policy: str, tmp_path: Path) -> None:
    text = PLAIN.format(image="").replace("zones =", f"{key}zones =")
    core = synthesise_core(write_project(tmp_path, text), tmp_path / "out")

    groups = [one for one in core.resources.values() if one["Type"] == "AWS::Logs::LogGroup"]
    assert len(groups) == 5
    assert {(one["DeletionPolicy"], one["UpdateReplacePolicy"]) for one in groups} == {
        (policy, policy if policy == "Delete" else "Retain")
    }


@pytest.mark.parametrize(("key", "protected"), [("", False), ("protect = true\n", True)])
def test_stacks_and_ledger_are_not_deleted_where_it_is_asked(
    key: str, protected: bool, tmp_path: Path
) -> None:
    head, tail = PLAIN.format(image="").split("zones =")
    text = f'{head}{key}outpost.{AWAY}.zones = ["{AWAY}b"]\nzones ={tail}'
    made = synthesise(write_project(tmp_path, text), tmp_path / "out")

    manifest = json.loads((made.directory / "manifest.json").read_bytes())
    stacks = {
        name: one["properties"].get("terminationProtection")
        for name, one in manifest["artifacts"].items()
        if one["type"] == "aws:cloudformation:stack"
    }
    assert stacks.keys() >= {"lab-core", "lab-insight", f"lab-outpost-{AWAY}"}
    assert {*stacks.values()} == {protected}
    (table,) = of_type(made, "AWS::DynamoDB::GlobalTable")
    assert table["Replicas"][0].get("DeletionProtectionEnabled", False) is protected


def test_cloudwatch_knows_every_retention() -> None:
    known = set(schema_of("AWS::Logs::LogGroup")["properties"]["RetentionInDays"]["enum"])
    assert set(RETENTION_DAYS) == {days for days in known if days <= 3650}


def key_of(stack: str) -> str:
    return AWAY_KEY if stack.endswith(AWAY) else HOME_KEY


#: Type -> where it names the key that encrypts what it holds.
KEYS: Mapping[str, Callable[[Any], Any]] = {
    "AWS::Athena::WorkGroup": lambda one: one["WorkGroupConfiguration"]["ResultConfiguration"][
        "EncryptionConfiguration"
    ]["KmsKey"],
    "AWS::DynamoDB::GlobalTable": lambda one: one["Replicas"][0]["SSESpecification"][
        "KMSMasterKeyId"
    ],
    "AWS::EC2::LaunchTemplate": lambda one: one["LaunchTemplateData"]["BlockDeviceMappings"][0][
        "Ebs"
    ]["KmsKeyId"],
    "AWS::ImageBuilder::ImageRecipe": lambda one: one["BlockDeviceMappings"][0]["Ebs"]["KmsKeyId"],
    "AWS::Logs::LogGroup": lambda one: one["KmsKeyId"],
    "AWS::S3::Bucket": lambda one: one["BucketEncryption"]["ServerSideEncryptionConfiguration"][0][
        "ServerSideEncryptionByDefault"
    ]["KMSMasterKeyID"],
    "AWS::SNS::Topic": lambda one: one["KmsMasterKeyId"],
    "AWS::SQS::Queue": lambda one: one["KmsMasterKeyId"],
}


def test_all_that_stores_is_encrypted_by_the_region_s_key(ruled: Assembly) -> None:
    seen = set()
    for stack, resources in ruled.stacks.items():
        for one in resources.values():
            if (find := KEYS.get(one["Type"])) is not None:
                seen.add(one["Type"])
                assert words(find(one["Properties"])) == key_of(stack)
    assert seen == KEYS.keys()
    for made in of_type(ruled, "AWS::ImageBuilder::DistributionConfiguration"):
        (abroad,) = [one for one in made["Distributions"] if one["Region"] == AWAY]
        assert abroad["AmiDistributionConfiguration"]["KmsKeyId"] == AWAY_KEY


def test_nothing_else_that_we_make_takes_a_key_to_store(ruled: Assembly) -> None:
    """What a key could encrypt too, by CloudFormation's description, and holds no user's data."""
    left = {
        "AWS::CloudWatch::Dashboard",
        "AWS::ImageBuilder::Component",
        "AWS::Lambda::Function",
        "AWS::Scheduler::Schedule",
    }
    kinds = {one["Type"] for resources in ruled.stacks.values() for one in resources.values()}
    takes = {
        kind
        for kind in kinds
        if not kind.startswith(("Custom::", "AWS::CDK::"))
        and re.search(r"kms", str(schema_of(kind)["properties"]), re.IGNORECASE)
    }

    assert takes - KEYS.keys() <= left


def statements_by_role(ruled: Assembly, stack: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return what each role of a stack may do, by its logical id or its name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in ruled.stacks[stack].values():
        if one["Type"] in {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}:
            for role in one["Properties"]["Roles"]:
                name = role if isinstance(role, str) else role["Ref"]
                found.setdefault(name, []).extend(one["Properties"]["PolicyDocument"]["Statement"])
    return found


@pytest.mark.parametrize("stack", ["lab-core", f"lab-outpost-{AWAY}"])
def test_who_uses_what_is_encrypted_may_use_the_key(ruled: Assembly, stack: str) -> None:
    for role, statements in statements_by_role(ruled, stack).items():
        actions = {action for one in statements for action in listed(one["Action"])}
        services = {one.partition(":")[0] for one in actions} & KEY_USE.keys()
        by_sid = {one.get("Sid", ""): one for one in statements}
        if services:
            use = by_sid["UseOwnKey"]
            through = listed(use["Condition"]["StringEquals"]["kms:ViaService"])
            assert set(through) == {f"{one}.eu-west-1.amazonaws.com" for one in services}, role
            assert use["Resource"] == HOME_KEY
        if "ec2:RunInstances" in actions:
            assert by_sid["EncryptDisks"]["Resource"] == key_of(stack)
            assert by_sid["LendKeyToDisks"]["Resource"] == key_of(stack)
            assert by_sid["LendKeyToDisks"]["Condition"]["Bool"] == {
                "kms:GrantIsForAWSResource": "true"
            }


def test_a_key_is_used_through_services_alone(ruled: Assembly) -> None:
    for stack in ruled.stacks:
        for statements in statements_by_role(ruled, stack).values():
            for one in statements:
                if any(action.startswith("kms:") for action in listed(one["Action"])):
                    # CDK itself grants the use of a key to who sends to an encrypted queue.
                    assert "Sid" not in one or "kms:ViaService" in one["Condition"]["StringEquals"]


def test_metadata_is_a_hop_away_but_for_containers_that_may_ask(ruled: Assembly) -> None:
    for name in ("plain", "baked", "box"):
        data = launch_data(ruled, f"lab--{name}--x86_64")
        hops = data["MetadataOptions"]["HttpPutResponseHopLimit"]
        assert hops == (2 if name == "box" else 1)


def test_all_that_is_uploaded_goes_where_this_bootstrap_put_it(ruled: Assembly) -> None:
    texts = [path.read_text() for path in ruled.directory.glob("*.json")]

    assert {found for one in texts for found in re.findall(r"\bcdk-(\w+)-assets", one)} == {
        QUALIFIER
    }
    assert {found for one in texts for found in re.findall(r"\bcdk-(\w+)-deploy-role", one)} == {
        QUALIFIER
    }


def test_a_construct_has_the_same_rules(ruled: Assembly, tmp_path: Path) -> None:
    app = App(
        outdir=str(tmp_path),
        context={**FLAGS, "aws:cdk:bundling-stacks": []},
        builtin_cloud_formation_validation=False,
        analytics_reporting=False,
    )
    Deployment.from_file(app, "Lab", ruled.project)
    app.synth()

    other = Assembly(ruled.project, tmp_path, "lab-core")
    for kind in ("AWS::IAM::Role", "AWS::Logs::LogGroup", "AWS::SQS::Queue"):
        assert list(of_type(other, kind)) == list(of_type(ruled, kind))


def test_no_rule_of_others_finds_more_with_all_settings(tmp_path: Path) -> None:
    project = write_ruled_project(tmp_path)

    found = {
        re.sub(r"<(\w+)[0-9A-F]{8}\.", r"<\1.", rule).replace("/box/", "/plain/")
        for rule, _ in report_findings(project, tmp_path / "out")
    }

    assert {rule for rule in found if not rule.startswith("AwsSolutions-IAM5")} <= set(KEPT)


def test_the_limits_of_iam_and_parameters_hold_with_them(tmp_path: Path) -> None:
    project = write_ruled_project(tmp_path)
    app = make_app(project, tmp_path / "out")
    describe(app)

    synthesise_app(app, load_config(app))

    made_of = Assembly(project, tmp_path / "out", "lab-core")
    for one in of_type(made_of, "AWS::SSM::Parameter"):
        assert len(words(one["Value"])) < 4096
    assert load(project).deployment.tags == TAGS


def test_the_strict_example_has_each_setting_of_the_guide(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "account.md").read_text(encoding="utf-8")
    table = page.partition("| rule | key |")[2].partition("\n\n")[0]
    keys = {row.split("|")[2].strip(" `") for row in table.splitlines()[2:]}
    project = ROOT / "examples" / "strict.toml"

    assert len(keys) > 10
    assert keys <= load(project).deployment.model_fields_set
    assert synthesise(project, tmp_path).stacks.keys() == {"strict-core", "strict-insight"}
