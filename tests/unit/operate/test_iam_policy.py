"""The least rights of people name one deployment of one account, and fit into a policy."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from spindown.contract.folder import digest_of, folder_key
from spindown.operate.iam_policy import RIGHTS, Whose, policies, policy

ACCOUNT = "123456789012"
#: Characters of a managed policy (AWS IAM User Guide, "IAM and AWS STS quotas").
POLICY_CHARACTERS = 6_144


def a_deployment(name: str = "lab", workloads: tuple[str, ...] = ("ocr", "video")) -> Whose:
    regions = ("eu-west-1", "us-east-1")
    return Whose(deployment=name, account=ACCOUNT, regions=regions, workloads=workloads)


@pytest.mark.parametrize("role", RIGHTS)
def test_each_resource_is_of_the_deployment_or_its_account(role: str) -> None:
    statements = {one["Sid"]: one for one in policy(role, a_deployment())["Statement"]}
    # What takes no resource, what no name can bound, and a role of AWS's own.
    unbound = {
        "MakeRoleOfExperiments",
        "SeeMarket",
        "SeeParameters",
        "SeeProof",
        "SeeSources",
        "SeeSpotRole",
    }
    for sid in unbound:
        statements.pop(sid, None)

    for statement in statements.values():
        for arn in statement["Resource"]:
            owner = statement.get("Condition", {}).get("StringEquals", {})
            assert f":{ACCOUNT}:" in arn or owner == {"aws:ResourceAccount": ACCOUNT}
            is_tagged = "lab" in owner.values() and arn.endswith("/*")
            assert "lab" in arn or "role/cdk-" in arn or is_tagged
            assert "*" not in arn.split(":")[3:5]


@pytest.mark.parametrize("role", RIGHTS)
def test_no_action_is_a_pattern(role: str) -> None:
    actions = [
        action for one in policy(role, a_deployment())["Statement"] for action in one["Action"]
    ]

    assert actions
    assert not [action for action in actions if "*" in action]


@pytest.mark.parametrize("role", RIGHTS)
def test_it_fits_into_a_policy(role: str) -> None:
    whose = a_deployment("a" * 30, tuple(f"workload-{n:02}" for n in range(15)))

    assert len(json.dumps(policy(role, whose), separators=(",", ":"))) <= POLICY_CHARACTERS


@pytest.mark.parametrize("role", RIGHTS)
def test_a_large_deployment_has_as_many_policies_as_it_needs(role: str) -> None:
    regions = tuple(f"ap-southeast-{n}" for n in range(1, 11))
    names = tuple(f"a-workload-of-a-long-name-{n:02}" for n in range(36))
    whose = replace(a_deployment("a" * 30, names), regions=regions)

    made = policies(role, whose)

    assert [*made] == [f"{'a' * 30}-{role}-{n}" for n in range(1, len(made) + 1)]
    assert len(made) <= 5
    split: dict[str, set[str]] = {}
    for one in made.values():
        assert len(json.dumps(one, separators=(",", ":"))) <= POLICY_CHARACTERS
        sids = [statement["Sid"] for statement in one["Statement"]]
        assert len(set(sids)) == len(sids)
        for statement in one["Statement"]:
            for action in statement["Action"]:
                split.setdefault(action, set()).update(statement["Resource"])
    whole: dict[str, set[str]] = {}
    for statement in policy(role, whose)["Statement"]:
        for action in statement["Action"]:
            whole.setdefault(action, set()).update(statement["Resource"])
    assert split == whole


def test_the_first_doctor_reads_what_must_be_there() -> None:
    whose = replace(a_deployment(), image_parameters=["/images/ocr"])
    granted = {
        (action, arn)
        for one in policy("operator", whose)["Statement"]
        for action in one["Action"]
        for arn in one["Resource"]
    }
    role = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    asked = [
        ("iam:GetRole", f"arn:aws:iam::{ACCOUNT}:{role}"),
        ("ec2:DescribeVpcs", "*"),
        ("servicequotas:GetServiceQuota", "*"),
        *(
            ("ssm:GetParameter", f"arn:aws:ssm:us-east-1:{owner}:parameter{name}")
            for owner, name in (
                ("", "/aws/service/deeplearning/ami/x86_64/latest/ami-id"),
                (ACCOUNT, "/cdk-bootstrap/hnb659fds/version"),
                (ACCOUNT, "/imagebuilder/spindown/lab/ocr"),
                (ACCOUNT, "/images/ocr"),
            )
        ),
    ]

    for action, arn in asked:
        assert any(action == one and fnmatchcase(arn, of) for one, of in granted), (action, arn)


def test_an_operator_reads_the_logs_of_every_region() -> None:
    (one,) = (
        one for one in policy("operator", a_deployment())["Statement"] if one["Sid"] == "ReadLogs"
    )

    for region in ("eu-west-1", "us-east-1"):
        for group in ("/spindown/lab/worker/ocr", "/aws/imagebuilder/lab--ocr--x86_64"):
            arn = f"arn:aws:logs:{region}:{ACCOUNT}:log-group:{group}:*"
            assert any(fnmatchcase(arn, of) for of in one["Resource"])


def test_an_operator_ends_failed_events_of_every_region() -> None:
    (one,) = (
        one
        for one in policy("operator", a_deployment())["Statement"]
        if one["Sid"] == "EndFailedEvents"
    )

    assert {"sqs:PurgeQueue", "sqs:ReceiveMessage"} < {*one["Action"]}
    for queue in (
        "eu-west-1:{}:lab-core-ControlFailedEvents1-2",
        "us-east-1:{}:lab--failed-events",
    ):
        arn = f"arn:aws:sqs:{queue.format(ACCOUNT)}"
        assert any(fnmatchcase(arn, of) for of in one["Resource"])
    # Not the jobs.
    assert not any(
        fnmatchcase(f"arn:aws:sqs:eu-west-1:{ACCOUNT}:lab--ocr", of) for of in one["Resource"]
    )


def test_who_submits_to_one_workload_sends_to_no_other() -> None:
    text = json.dumps(policy("submitter", a_deployment(workloads=("ocr",))))

    assert "lab--ocr" in text
    assert "video" not in text


@pytest.mark.parametrize("role", sorted(RIGHTS))
def test_only_a_runner_places_code_that_runs(role: str) -> None:
    digest = "0" * 64
    key = folder_key("ocr", digest)
    assert digest_of(f"s3://lab-core-storebucket-1/{key}") == digest

    # As IAM has it: a star matches a slash too.
    writers = [
        arn
        for one in policy(role, a_deployment())["Statement"]
        if "s3:PutObject" in one["Action"]
        for arn in one["Resource"]
        if fnmatchcase(f"arn:aws:s3:::lab-core-storebucket-1/{key}", arn)
    ]

    assert bool(writers) is (role == "runner")


@pytest.mark.parametrize(
    "key",
    [
        "folders/ocr/workloads/ocr/batches/{}.zip",
        "workloads/ocr/inputs/b/{}.zip",
        "folders/ocr/{}",
        "folders/ocr/{}.zip/a.zip",
        "folders/{}.zip",
    ],
)
def test_no_other_key_is_that_of_a_folder(key: str) -> None:
    assert digest_of(f"s3://lab-core-storebucket-1/{key.format('0' * 64)}") == ""


def test_a_deploy_reaches_every_region() -> None:
    (statement,) = policy("deployer", a_deployment())["Statement"]

    assert {arn.rpartition(f"{ACCOUNT}-")[2] for arn in statement["Resource"]} == {
        "eu-west-1",
        "us-east-1",
    }


def test_the_bucket_of_a_long_name_is_found_by_its_beginning() -> None:
    short, long = a_deployment(), a_deployment("a-name-that-is-quite-long")

    assert short.objects() == ["arn:aws:s3:::lab-core-storebucket*"]
    assert long.objects("k") == ["arn:aws:s3:::a-name-that-is-quite*/k"]


@pytest.mark.parametrize(
    ("role", "services"), [("operator", {"dynamodb", "s3", "sqs"}), ("submitter", {"s3", "sqs"})]
)
def test_who_uses_what_a_key_encrypts_may_use_it(role: str, services: set[str]) -> None:
    key = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    abroad = key.replace("eu-west-1", "us-west-2")
    with_key = policy(role, replace(a_deployment(), key_arns=[key, abroad]))["Statement"]

    without = policy(role, a_deployment())["Statement"]
    added = {one["Sid"]: one for one in with_key if one not in without}
    use = added.pop("UseOwnKey")
    looks = {"SeeOwnKeys": [key, abroad], "ReadFailedEvents": [abroad]}
    assert {sid: one["Resource"] for sid, one in added.items()} == (
        looks if role == "operator" else {}
    )
    through = use["Condition"]["StringEquals"]["kms:ViaService"]
    assert use["Resource"] == [key]
    assert {one.removesuffix(".eu-west-1.amazonaws.com") for one in through} == services


def test_a_deployer_acts_as_the_roles_of_its_own_bootstrap() -> None:
    (statement,) = policy("deployer", replace(a_deployment(), qualifier="acme1"))["Statement"]

    assert all(":role/cdk-acme1-" in arn for arn in statement["Resource"])
