"""The least rights of people name one deployment of one account, and fit into a policy."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from spindown.contract.folder import digest_of, folder_key
from spindown.operate.iam_policy import RIGHTS, Whose, policy

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
    unbound = {"SeeMarket", "SeeProof", "SeeSources", "MakeRoleOfExperiments"}
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

    *look, use = [one for one in with_key if one not in policy(role, a_deployment())["Statement"]]
    assert [one["Resource"] for one in look] == ([[key, abroad]] if role == "operator" else [])
    through = use["Condition"]["StringEquals"]["kms:ViaService"]
    assert use["Resource"] == [key]
    assert {one.removesuffix(".eu-west-1.amazonaws.com") for one in through} == services


def test_a_deployer_acts_as_the_roles_of_its_own_bootstrap() -> None:
    (statement,) = policy("deployer", replace(a_deployment(), qualifier="acme1"))["Statement"]

    assert all(":role/cdk-acme1-" in arn for arn in statement["Resource"])
