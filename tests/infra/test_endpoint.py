"""Networks without public addresses: what is made for them, and what they could not do."""

from pathlib import Path

import pytest

from spindown import config
from spindown.error import ConfigError
from tests.infra.assembly import PLAIN, Assembly, synthesise_core, words, write_project

OWN_IMAGE = PLAIN.format(image='mode = "ami"\nparameters = { x86_64 = "/my/image" }')
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


def test_endpoints_in_a_network_of_others_answer_all_its_hosts(tmp_path: Path) -> None:
    keys = f"{NETWORK}interface_endpoints = true\n[workload.plain.run]"
    made = synthesise(tmp_path, OWN_IMAGE.replace("[workload.plain.run]", keys))

    groups = {one["GroupDescription"]: one for one in made.all_of("AWS::EC2::SecurityGroup")}
    rules = groups["Spindown endpoints: requests to AWS come in"]["SecurityGroupIngress"]

    assert all((one["FromPort"], one["ToPort"]) == (443, 443) for one in rules)
    assert {one["CidrIp"] for one in rules} == {
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
    }


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (PLAIN.format(image="").replace("zones =", "public_addresses = false\nzones ="), "public"),
        (
            PRIVATE.replace(
                "[workload.plain.run]",
                '[deployment.outpost.us-west-2]\nzones = ["us-west-2a"]\n[workload.plain.run]',
            ),
            "public",
        ),
        (
            OWN_IMAGE.replace(
                "[workload.plain.run]",
                '[deployment.outpost.us-west-2]\nzones = ["us-west-2a"]\n'
                '[deployment.outpost.us-west-2.network]\nvpc_id = "vpc-2"\n'
                'subnets = { us-west-2a = "subnet-b" }\ninterface_endpoints = true\n'
                "[workload.plain.run]",
            ),
            "interface_endpoints",
        ),
    ],
    ids=["installs at its start", "two regions", "endpoints abroad"],
)
def test_what_endpoints_could_not_serve_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        config.load(write_project(tmp_path, text))
