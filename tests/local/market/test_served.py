"""The market over HTTP, reading what CloudFormation made in the emulator behind it."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.config import Config
from botocore.utils import InstanceMetadataFetcher, InstanceMetadataRegionFetcher

from tests.local.market.world import refused

TEMPLATE = {
    "Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {
                "VpcId": {"Ref": "Vpc"},
                "CidrBlock": "10.1.1.0/24",
                "AvailabilityZone": "us-east-1b",
            },
        },
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {
                    "ImageId": "ami-0abc",
                    "UserData": base64.b64encode(b"hello guest").decode(),
                    "IamInstanceProfile": {
                        "Arn": "arn:aws:iam::000000000000:instance-profile/worker"
                    },
                    "InstanceInitiatedShutdownBehavior": "terminate",
                    "MetadataOptions": {
                        "HttpTokens": "required",
                        "InstanceMetadataTags": "enabled",
                    },
                    "SecurityGroupIds": ["sg-7"],
                    "TagSpecifications": [
                        {
                            "ResourceType": "instance",
                            "Tags": [{"Key": "project", "Value": "spindown"}],
                        },
                        {
                            "ResourceType": "spot-instances-request",
                            "Tags": [{"Key": "asked", "Value": "yes"}],
                        },
                    ],
                }
            },
        },
    },
    "Outputs": {
        "Subnet": {"Value": {"Ref": "Subnet"}},
        "Template": {"Value": {"Ref": "Template"}},
        "Version": {"Value": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}},
    },
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    program = [sys.executable, "-m", "tests.local.market.served"]
    environment = {key: value for key, value in os.environ.items() if "AWS" not in key}
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _client(service: str, endpoint: str) -> Any:
    create: Any = boto3.client
    return create(
        service,
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


@pytest.fixture(scope="module")
def stack(endpoint: str) -> dict[str, str]:
    cloudformation = _client("cloudformation", endpoint)
    cloudformation.create_stack(StackName="market", TemplateBody=json.dumps(TEMPLATE))
    waiter = cloudformation.get_waiter("stack_create_complete")
    waiter.wait(StackName="market", WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
    outputs = cloudformation.describe_stacks(StackName="market")["Stacks"][0]["Outputs"]
    return {one["OutputKey"]: one["OutputValue"] for one in outputs}


@pytest.fixture(scope="module")
def instance_id(endpoint: str, stack: dict[str, str]) -> str:
    answer = _client("ec2", endpoint).create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": stack["Template"],
                    "Version": stack["Version"],
                },
                "Overrides": [{"InstanceType": "g6.xlarge", "SubnetId": stack["Subnet"]}],
            }
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot",
        },
    )
    launched: str = answer["Instances"][0]["InstanceIds"][0]
    return launched


def test_a_deployed_launch_template_arrives_whole(endpoint: str, instance_id: str) -> None:
    ec2 = _client("ec2", endpoint)
    found = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    tags = {one["Key"]: one["Value"] for one in found["Tags"]}
    request = ec2.describe_spot_instance_requests()["SpotInstanceRequests"][0]

    metadata = f"{endpoint}/{instance_id}/latest"
    asking = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _answer(f"{metadata}/api/token", asking, "PUT")
    presenting = {"X-aws-ec2-metadata-token": token.decode()}

    assert _answer(f"{metadata}/user-data", presenting) == b"hello guest"
    assert found["Placement"]["AvailabilityZone"] == "us-east-1b"
    assert found["ImageId"] == "ami-0abc"
    assert found["IamInstanceProfile"]["Arn"].endswith("instance-profile/worker")
    assert found["SecurityGroups"][0]["GroupId"] == "sg-7"
    assert found["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    assert tags["project"] == "spindown"
    assert request["Tags"] == [{"Key": "asked", "Value": "yes"}]


def _answer(url: str, headers: dict[str, str], method: str = "GET") -> bytes:
    request = Request(url, headers=headers, method=method)  # noqa: S310 - our own address
    with urlopen(request, timeout=5) as answer:  # noqa: S310 - our own address
        data: bytes = answer.read()
    return data


def test_a_missing_template_or_subnet_has_ec2s_code(endpoint: str, stack: dict[str, str]) -> None:
    ec2 = _client("ec2", endpoint)
    asked = {"Type": "instant", "TargetCapacitySpecification": {"TotalTargetCapacity": 1}}
    for template, version, subnet, code in [
        ("lt-00000000000000000", "1", stack["Subnet"], "InvalidLaunchTemplateId.NotFound"),
        (stack["Template"], "9", stack["Subnet"], "InvalidLaunchTemplateId.VersionNotFound"),
        (stack["Template"], "1", "subnet-00000000000000000", "InvalidSubnetID.NotFound"),
    ]:
        specification = {"LaunchTemplateId": template, "Version": version}
        overrides = [{"InstanceType": "g6.xlarge", "SubnetId": subnet}]
        config = {"LaunchTemplateSpecification": specification, "Overrides": overrides}
        with refused(code):
            ec2.create_fleet(**asked, LaunchTemplateConfigs=[config])


def test_networks_are_read_from_the_emulator(endpoint: str, stack: dict[str, str]) -> None:
    subnets = _client("ec2", endpoint).describe_subnets(SubnetIds=[stack["Subnet"]])["Subnets"]
    assert subnets[0]["CidrBlock"] == "10.1.1.0/24"


def test_botocore_finds_role_and_region_in_the_metadata(endpoint: str, instance_id: str) -> None:
    config = {"ec2_metadata_service_endpoint": f"{endpoint}/{instance_id}/"}
    role = InstanceMetadataFetcher(config=config, timeout=5).retrieve_iam_role_credentials()
    assert (role["role_name"], role["access_key"]) == ("worker", f"AKIA-{instance_id}")
    assert InstanceMetadataRegionFetcher(config=config, timeout=5).retrieve_region() == "us-east-1"


def test_pricing_and_quotas_answer_on_the_same_endpoint(endpoint: str) -> None:
    prices = _client("pricing", endpoint).get_products(ServiceCode="AmazonEC2")["PriceList"]
    quotas = _client("service-quotas", endpoint).list_service_quotas(ServiceCode="ec2")["Quotas"]
    assert prices
    assert quotas
