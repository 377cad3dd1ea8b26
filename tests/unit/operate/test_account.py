"""What doctor says of the account: credentials, deployment, plan, spot role, concurrency."""

import pytest

from spindown.error import AccessDenied, NotFound, SpindownError, Throttled, Unreachable
from spindown.operate.doctor.finding import Severity
from spindown.operate.doctor.unknown import Unknown
from spindown.port import AccountPlan, VpcCount
from tests.unit.operate.examined import BOOTSTRAP, REGION, Examined, a_config

DENIED = AccessDenied("GetSomething: AccessDenied: no")


@pytest.mark.parametrize("is_deployed", [True, False], ids=["after a deploy", "before a deploy"])
def test_all_is_well(is_deployed: bool) -> None:
    report = Examined(is_deployed=is_deployed).report()

    assert [f.what for f in report.findings if f.severity is not Severity.GOOD] == []
    assert report.can_launch


def test_without_credentials_nothing_else_is_said() -> None:
    world = Examined()
    world.account.faults["caller"] = AccessDenied("GetCallerIdentity: ExpiredToken: expired")

    (finding,) = world.report().findings

    assert (finding.what, finding.severity) == ("credentials", Severity.BLOCKED)
    assert "ExpiredToken" in finding.found


def test_says_who_asks() -> None:
    assert "123456789012" in Examined().finding("credentials").found


def test_a_free_plan_can_launch_no_gpu() -> None:
    world = Examined()
    world.account.account_plan = AccountPlan.FREE

    finding = world.finding("account plan")

    assert finding.severity is Severity.BLOCKED
    assert "aws freetier upgrade-account-plan" in finding.remedy
    assert not world.report().can_launch


def test_an_account_from_before_there_were_plans_is_paid() -> None:
    world = Examined()
    world.account.account_plan = None

    assert world.severity("account plan") is Severity.GOOD


@pytest.mark.parametrize(
    ("error", "found"), [(NotFound("no"), "missing"), (DENIED, "AccessDenied")]
)
def test_the_key_of_disks_is_made_by_being_asked_for(error: SpindownError, found: str) -> None:
    world = Examined()
    assert world.severity(f"key alias/aws/ebs in {REGION}") is Severity.GOOD
    arn = f"arn:aws:kms:{REGION}:123456789012:alias/aws/ebs"
    world.account.unreadable = {arn: error}

    finding = world.finding(f"key alias/aws/ebs in {REGION}")

    assert found in finding.found
    assert finding.severity is Severity.WARNING
    assert f"aws kms describe-key --key-id alias/aws/ebs --region {REGION}" in finding.remedy


def test_the_role_for_spot_is_made_by_one_command() -> None:
    world = Examined()
    world.account.spot_role = False

    finding = world.finding("role AWSServiceRoleForEC2Spot")

    assert (finding.found, finding.severity) == ("missing", Severity.WARNING)
    assert finding.remedy.endswith("--aws-service-name spot.amazonaws.com")


def test_the_spot_role_is_not_read_where_nothing_is_spot() -> None:
    policy = {"ladder": [{"after": "0s", "capacity_types": ["on-demand"]}]}
    world = Examined(config=a_config(policy=policy), is_deployed=False)
    world.account.spot_role = False

    assert not any("Spot" in finding.what for finding in world.report().findings)


@pytest.mark.parametrize(
    ("executions", "severity"), [(2, Severity.WARNING), (3, Severity.GOOD), (10, Severity.GOOD)]
)
def test_each_function_may_run_at_once(executions: int, severity: Severity) -> None:
    world = Examined()
    world.account.executions = executions

    finding = world.finding("Lambda concurrency")

    assert finding.severity is severity
    assert ("--quota-code L-B99A9384 --desired-value 1000" in finding.remedy) is (executions < 3)


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("plan", "account plan"),
        ("has_spot_role", "role AWSServiceRoleForEC2Spot"),
        ("concurrency", "Lambda concurrency"),
    ],
)
def test_what_cannot_be_asked_is_said_and_blocks_nothing(method: str, what: str) -> None:
    world = Examined()
    world.account.faults[method] = DENIED

    finding = world.finding(what)

    assert (finding.found, finding.severity) == (str(DENIED), Severity.WARNING)
    # No quota is asked for and no role made where nobody knows whether it is there.
    assert not finding.remedy.startswith("aws ")
    assert world.report().can_launch


def test_before_a_deploy_it_says_how_to_deploy() -> None:
    finding = Examined(is_deployed=False).finding("deployment demo")

    assert finding.remedy == "spindown deploy"


def test_before_the_first_deploy_cdk_is_bootstrapped() -> None:
    world = Examined(is_deployed=False)
    del world.account.parameters[REGION, BOOTSTRAP]

    finding = world.finding("CDK in us-west-2")

    assert finding.severity is Severity.WARNING
    assert finding.remedy == "spindown cdk bootstrap aws://123456789012/us-west-2"


def test_a_workload_of_the_file_that_is_not_deployed_is_named() -> None:
    config = a_config()
    config["workload"]["ocr"] = config["workload"]["classify"]

    finding = Examined(config=config).finding("deployment demo")

    assert (finding.found, finding.severity) == ("deployed without ocr", Severity.WARNING)


def test_unreadable_settings_do_not_count_as_no_deployment() -> None:
    world = Examined()

    class Shut:
        def deployment(self) -> None:
            raise Unreachable("SSM is away")

    world.settings = Shut()  # type: ignore[assignment]  # only what is asked first

    finding = world.finding("deployment demo")

    assert (finding.found, finding.severity) == ("SSM is away", Severity.WARNING)
    assert "ssm:" not in finding.remedy


KEY = f"arn:aws:kms:{REGION}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def with_a_key() -> Examined:
    config = a_config()
    config["deployment"]["kms_key_arn"] = KEY
    return Examined(config=config)


def test_a_key_of_one_s_own_is_looked_for_and_its_grant_to_spot() -> None:
    world = with_a_key()
    assert world.severity(f"key {KEY} in {REGION}") is Severity.GOOD
    told = world.finding(f"use of {KEY}")
    assert told.severity is Severity.WARNING
    assert KEY in told.remedy
    assert world.account.who.account in told.remedy

    world.account.lent_to_spot.add(KEY)

    assert world.severity(f"use of {KEY}") is Severity.GOOD


def test_without_a_key_of_one_s_own_nothing_is_lent() -> None:
    assert not [one for one in Examined().report().findings if one.what.startswith("use of")]


def test_a_deploy_needs_room_for_its_vpc() -> None:
    world = Examined(is_deployed=False)
    assert world.severity("VPCs") is Severity.GOOD
    world.account.vpc_count = VpcCount(there=5, quota=5)

    finding = world.finding("VPCs")

    assert finding.severity is Severity.BLOCKED
    assert "--quota-code L-F678F1CE --desired-value 6" in finding.remedy


def test_vpcs_that_nobody_may_count_only_warn() -> None:
    world = Examined(is_deployed=False)
    world.account.faults["vpcs"] = DENIED

    assert world.severity("VPCs") is Severity.WARNING


def test_who_makes_no_vpc_needs_no_room_for_one() -> None:
    config = a_config()
    config["deployment"]["network"] = {
        "vpc_id": "vpc-1",
        "subnets": {f"{REGION}a": "subnet-a", f"{REGION}b": "subnet-b"},
    }
    worlds = (Examined(config=config, is_deployed=False), Examined())

    for world in worlds:
        world.account.vpc_count = VpcCount(there=5, quota=5)
        assert not [one for one in world.report().findings if one.what.startswith("VPCs")]


@pytest.mark.parametrize("is_deployed", [True, False], ids=["ours", "another's"])
def test_a_name_that_another_deployment_has_blocks(*, is_deployed: bool) -> None:
    world = Examined(dashboards={"demo"}, is_deployed=is_deployed)

    told = [one.severity for one in world.report().findings if one.what == "name demo"]

    assert told == ([] if is_deployed else [Severity.BLOCKED])


def test_a_name_that_nobody_has_is_no_finding() -> None:
    found = Examined(is_deployed=False).report().findings

    assert not [one for one in found if one.what == "name demo"]


@pytest.mark.parametrize(
    ("error", "network", "grant"),
    [
        (Throttled("x"), False, False),
        (Unreachable("x"), True, False),
        (AccessDenied("x"), False, True),
    ],
)
def test_no_network_is_blamed_where_aws_asks_to_slow_down(
    error: SpindownError, *, network: bool, grant: bool
) -> None:
    told = Unknown.after(error).remedy("grant it")

    assert ("network" in told, told == "grant it") == (network, grant)
