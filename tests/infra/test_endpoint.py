"""Networks without public addresses: what is made for them, and what they could not do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spindown import config
from spindown.contract import tag
from spindown.error import ConfigError
from tests.infra.assembly import PLAIN, Assembly, listed, synthesise_core, words, write_project
from tests.infra.policy import Call, ours, read_statements

OWN = 'mode = "ami"\nparameters = { x86_64 = "/my/image" }'
OWN_IMAGE = PLAIN.format(image=OWN)
PRIVATE = OWN_IMAGE.replace("zones =", "public_addresses = false\nzones =")
ALWAYS = {"dynamodb", "events", "logs", "s3", "sqs"}
NETWORK = """
[deployment.network]
vpc_id = "vpc-1"
subnets = { eu-west-1a = "subnet-a" }
"""


def endpoints(made: Assembly) -> dict[str, dict[str, object]]:
    return {
        one["ServiceName"].rpartition("eu-west-1.")[2]: dict(one)
        for one in made.all_of("AWS::EC2::VPCEndpoint")
    }


def synthesise(tmp_path: Path, text: str) -> Assembly:
    return synthesise_core(write_project(tmp_path, text), tmp_path / "out")


def test_workers_without_addresses_reach_what_they_need(tmp_path: Path) -> None:
    secret = '[workload.plain.run]\nsecrets = { KEY = "/a/key" }'
    made = synthesise(tmp_path, PRIVATE.replace("[workload.plain.run]", secret))

    assert not made.all_of("AWS::EC2::InternetGateway")
    assert not made.all_of("AWS::EC2::Route")
    assert [one["MapPublicIpOnLaunch"] for one in made.all_of("AWS::EC2::Subnet")] == [False]
    found = endpoints(made)
    assert found.keys() == ALWAYS | {"ssm"}
    kinds = {name: one["VpcEndpointType"] for name, one in found.items()}
    assert {name for name, kind in kinds.items() if kind == "Gateway"} == {"s3", "dynamodb"}
    for name in found.keys() - {"s3", "dynamodb"}:
        assert found[name]["PrivateDnsEnabled"] is True
        assert len(found[name]["SubnetIds"]) == 1  # type: ignore[arg-type]
    groups = {one["GroupDescription"]: one for one in made.all_of("AWS::EC2::SecurityGroup")}
    (way,) = groups["Spindown workers: nothing comes in"]["SecurityGroupEgress"]
    assert (way["FromPort"], way["ToPort"], way["IpProtocol"]) == (443, 443, "tcp")
    (rule,) = groups["Spindown endpoints: requests to AWS come in"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"], rule["IpProtocol"]) == (443, 443, "tcp")
    assert words(rule["SourceSecurityGroupId"]).startswith("<NetworkWorkers")


def test_another_account_s_credentials_pass_through_no_endpoint(tmp_path: Path) -> None:
    image = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/box:1"
    code = 'entrypoint = "job:run"\ncode = "code"'
    found = endpoints(synthesise(tmp_path, PRIVATE.replace(code, f'image = "{image}"')))

    assert found.keys() == ALWAYS | {"ecr.api", "ecr.dkr"}
    for name, one in found.items():
        own, *beside = one["PolicyDocument"]["Statement"]  # type: ignore[index]
        assert own["Action"] == f"{name.partition('.')[0]}:*"
        assert own["Condition"] == {
            "StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}
        }
        layers = "arn:<AWS::Partition>:s3:::prod-eu-west-1-starport-layer-bucket/*"
        assert [(each["Action"], words(each["Resource"])) for each in beside] == (
            [("s3:GetObject", layers)] if name == "s3" else []
        )


def test_endpoints_that_others_use_too_are_open_to_them(tmp_path: Path) -> None:
    keys = f'{NETWORK}route_tables = ["rtb-1"]\ninterface_endpoints = true\n[workload.plain.run]'
    made = synthesise(tmp_path, OWN_IMAGE.replace("[workload.plain.run]", keys))

    assert not [one for one in endpoints(made).values() if "PolicyDocument" in one]


@pytest.mark.parametrize("network", ["", NETWORK], ids=["made", "of one's own"])
def test_workers_send_where_the_account_lets_them(tmp_path: Path, network: str) -> None:
    egress = 'egress = ["10.0.0.0/8:5432", "pl-6da54004:443"]\nzones ='
    text = PLAIN.format(image="").replace("zones =", egress)
    made = synthesise(
        tmp_path, text.replace("[workload.plain.run]", f"{network}[workload.plain.run]")
    )

    ways = made.one_of("AWS::EC2::SecurityGroup")["SecurityGroupEgress"]
    assert [
        (one["IpProtocol"], one["FromPort"], one["ToPort"], one.get("CidrIp")) for one in ways
    ] == [("tcp", 5432, 5432, "10.0.0.0/8"), ("tcp", 443, 443, None)]
    assert ways[1]["DestinationPrefixListId"] == "pl-6da54004"


def test_a_subnet_that_another_account_shares_is_launched_into(tmp_path: Path) -> None:
    text = OWN_IMAGE.replace("[workload.plain.run]", f"{NETWORK}[workload.plain.run]")
    made = synthesise(tmp_path, text)

    parts = made.statements("ControlScalerRole")["LaunchWithParts"]["Resource"]
    assert "arn:<AWS::Partition>:ec2:<AWS::Region>:*:subnet/subnet-a" in map(words, parts)


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        ("", set()),
        ('route_tables = ["rtb-1", "rtb-2"]', {"s3", "dynamodb"}),
        ("interface_endpoints = true", ALWAYS - {"s3", "dynamodb"}),
        ('route_tables = ["rtb-1"]\ninterface_endpoints = true', ALWAYS),
    ],
)
def test_a_network_of_ones_own_has_the_endpoints_asked_for(
    tmp_path: Path, keys: str, made: set[str]
) -> None:
    text = OWN_IMAGE.replace("[workload.plain.run]", f"{NETWORK}{keys}\n[workload.plain.run]")

    found = endpoints(synthesise(tmp_path, text))

    assert found.keys() == made
    assert all(one["VpcId"] == "vpc-1" for one in found.values())


@pytest.mark.parametrize(
    ("key", "clients"),
    [
        ("", {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"}),
        ('endpoint_clients = ["10.1.0.0/16"]\n', {"10.1.0.0/16"}),
    ],
    ids=["all", "those that are named"],
)
def test_endpoints_in_a_network_of_others_answer_its_hosts(
    tmp_path: Path, key: str, clients: set[str]
) -> None:
    keys = f"{NETWORK}interface_endpoints = true\n{key}[workload.plain.run]"
    made = synthesise(tmp_path, OWN_IMAGE.replace("[workload.plain.run]", keys))

    groups = {one["GroupDescription"]: one for one in made.all_of("AWS::EC2::SecurityGroup")}
    rules = groups["Spindown endpoints: requests to AWS come in"]["SecurityGroupIngress"]

    assert all((one["FromPort"], one["ToPort"]) == (443, 443) for one in rules)
    workers, *others = rules
    assert words(workers["SourceSecurityGroupId"]).startswith("<NetworkWorkers")
    assert {one["CidrIp"] for one in others} == clients


@pytest.mark.parametrize("network", ["", NETWORK], ids=["made", "of one's own"])
def test_without_addresses_no_launch_may_ask_for_one(tmp_path: Path, network: str) -> None:
    made = synthesise(
        tmp_path, PRIVATE.replace("[workload.plain.run]", f"{network}[workload.plain.run]")
    )

    for one in made.all_of("AWS::EC2::LaunchTemplate"):
        data = one["LaunchTemplateData"]
        (interface,) = data["NetworkInterfaces"]
        assert interface["AssociatePublicIpAddress"] is False
        assert words(interface["Groups"][0]).startswith("<NetworkWorkers")
        assert "SecurityGroupIds" not in data
    (grant,) = (
        one for one in read_statements(made, "ControlScalerRole") if one.sid == "LaunchTaggedParts"
    )
    interface_arn = ours("ec2", "network-interface/*")
    asked = {f"aws:RequestTag/{tag.DEPLOYMENT}": ["lab"]}
    public = {**asked, "ec2:AssociatePublicIpAddress": ["true"]}
    private = {**asked, "ec2:AssociatePublicIpAddress": ["false"]}
    assert [
        grant.allows(Call("ec2:RunInstances", interface_arn, one))
        for one in (public, private, asked)
    ] == [False, True, True]


@pytest.mark.parametrize("network", ["", NETWORK], ids=["made", "of one's own"])
def test_a_network_that_is_made_logs_its_flows_where_asked(tmp_path: Path, network: str) -> None:
    text = PLAIN.format(image="").replace("zones =", "flow_log = true\nzones =")
    made = synthesise(
        tmp_path, text.replace("[workload.plain.run]", f"{network}[workload.plain.run]")
    )

    flows = made.all_of("AWS::EC2::FlowLog")
    if network:
        assert flows == []
        return
    assert [(one["ResourceType"], one["TrafficType"]) for one in flows] == [("VPC", "ALL")]
    assert words(flows[0]["ResourceId"]).startswith("<NetworkVpc")
    assert made.one_of("AWS::Logs::LogGroup", LogGroupName="/spindown/lab/flow")
    assert words(made.statements("FlowsRole")["WriteLog"]["Resource"]).startswith("<FlowsLog")


AMAZON, UBUNTU, FRIEND, SELF = "amazon", "099720109477", "444455556666", "<AWS::AccountId>"
OWNERS = f'image_owners = ["{FRIEND}"]'


@pytest.mark.parametrize(
    ("keys", "image", "owners"),
    [
        ("", "", [AMAZON]),
        ("", OWN.replace("/my/", "/aws/service/canonical/"), [AMAZON, UBUNTU]),
        (OWNERS, "", [AMAZON, FRIEND]),
        (OWNERS, OWN, [AMAZON, FRIEND, SELF]),
        ("", OWN, None),
    ],
    ids=["AWS's", "Ubuntu's", "a friend's too", "of one's own, by owner", "of one's own"],
)
def test_an_image_of_strangers_is_not_started(
    tmp_path: Path, keys: str, image: str, owners: list[str] | None
) -> None:
    text = PLAIN.format(image=image).replace("zones =", f"{keys}\nzones =")
    granted = synthesise(tmp_path, text).statements("ControlScalerRole")

    told = granted["LaunchImages"].get("Condition", {}).get("StringEquals", {}).get("ec2:Owner")
    assert (told and [words(one) for one in listed(told)]) == owners


def test_of_the_account_only_what_was_baked_here_is_started(tmp_path: Path) -> None:
    made = synthesise(tmp_path, PLAIN.format(image=""))

    (bound,) = made.statements("ControlScalerRole")["LaunchBaked"]["Condition"].values()

    assert {key: words(one) for key, one in bound.items()} == {
        "ec2:Owner": SELF,
        "aws:ResourceTag/spindown:deployment": "lab",
    }


AWAY = '[deployment.outpost.us-west-2]\nzones = ["us-west-2a"]\n'
AWAY_NETWORK = """[deployment.outpost.us-west-2.network]
vpc_id = "vpc-2"
subnets = { us-west-2a = "subnet-b" }
"""


def test_a_region_with_nat_may_stand_beside_a_home_without(tmp_path: Path) -> None:
    keys = f"{AWAY}{AWAY_NETWORK}[workload.plain.run]"
    made = synthesise(tmp_path, PRIVATE.replace("[workload.plain.run]", keys))

    assert made.all_of("AWS::EC2::Subnet")
    assert not made.all_of("AWS::EC2::InternetGateway")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (PLAIN.format(image="").replace("zones =", "public_addresses = false\nzones ="), "public"),
        (
            PRIVATE.replace(
                "[workload.plain.run]",
                f"{AWAY}[workload.plain.run]",
            ),
            "outpost.us-west-2.network",
        ),
        (
            PRIVATE.replace(
                "[workload.plain.run]",
                f"{NETWORK}{AWAY}[workload.plain.run]",
            ),
            "outpost.us-west-2.network",
        ),
        (
            OWN_IMAGE.replace(
                "[workload.plain.run]",
                f"{AWAY}{AWAY_NETWORK}interface_endpoints = true\n[workload.plain.run]",
            ),
            "interface_endpoints",
        ),
    ],
    ids=["installs at its start", "two regions", "one of two regions", "endpoints abroad"],
)
def test_what_endpoints_could_not_serve_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        config.load(write_project(tmp_path, text))


def with_functions(tmp_path: Path, beside: str = "") -> Assembly:
    """Return a deployment whose functions are in a network of one's own."""
    keys = f'{NETWORK}{beside}function_subnets = ["subnet-0b", "subnet-0c"]\n[workload.plain.run]'
    return synthesise(tmp_path, OWN_IMAGE.replace("[workload.plain.run]", keys))


def test_functions_send_by_https_from_subnets_of_one_s_own(tmp_path: Path) -> None:
    made = with_functions(tmp_path)

    (placed, *others) = (one["VpcConfig"] for one in made.all_of("AWS::Lambda::Function"))
    assert len(others) > 2
    assert all(one == placed for one in others)
    assert placed["SubnetIds"] == ["subnet-0b", "subnet-0c"]
    (group,) = map(words, placed["SecurityGroupIds"])
    found = made.resources[group.strip("<>").partition(".")[0]]["Properties"]
    ways = found["SecurityGroupEgress"]
    assert [(one["FromPort"], one["ToPort"], one["IpProtocol"]) for one in ways] == [
        (443, 443, "tcp"),
        (53, 53, "udp"),
        (53, 53, "tcp"),
    ]
    assert "SecurityGroupIngress" not in found


def test_endpoints_answer_functions_of_their_network(tmp_path: Path) -> None:
    beside = 'interface_endpoints = true\nendpoint_clients = ["10.9.0.0/16"]\n'
    made = with_functions(tmp_path, beside)

    (group,) = {words(*one["VpcConfig"]["SecurityGroupIds"]) for one in functions(made)}
    answering = made.one_of(
        "AWS::EC2::SecurityGroup",
        GroupDescription="Spindown endpoints: requests to AWS come in",
    )
    sources = [one.get("SourceSecurityGroupId") for one in answering["SecurityGroupIngress"]]
    assert group in {words(one) for one in sources if one}


@pytest.mark.parametrize("has_functions", [True, False], ids=["in a VPC", "taken out of it"])
def test_lambda_connects_functions_and_their_code_does_not(
    tmp_path: Path, *, has_functions: bool
) -> None:
    plain = OWN_IMAGE.replace("[workload.plain.run]", f"{NETWORK}[workload.plain.run]")
    made = with_functions(tmp_path) if has_functions else synthesise(tmp_path, plain)
    asked = {"aws:RequestedRegion": ["eu-west-1"]}
    source = {"lambda:SourceFunctionArn": [ours("lambda", "function:lab--scaler")]}

    assert any("VpcConfig" in one for one in functions(made)) is has_functions
    for role in ("ControlScaler", "ControlInterruption", "ControlOffers", "ControlTeardown"):
        grants = read_statements(made, role)
        for context, may in ((asked, True), ({**asked, **source}, False)):
            call = Call("ec2:CreateNetworkInterface", "*", context)
            assert any(one.allows(call) for one in grants) is may


def functions(made: Assembly) -> list[Mapping[str, Any]]:
    return made.all_of("AWS::Lambda::Function")


def test_functions_are_in_no_network_where_none_is_named(tmp_path: Path) -> None:
    made = synthesise(tmp_path, OWN_IMAGE)

    assert not [one for one in made.all_of("AWS::Lambda::Function") if "VpcConfig" in one]
    assert not [one for one in read_statements(made, "Control") if one.sid == "ConnectFunction"]
