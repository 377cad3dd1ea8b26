"""The query protocol against botocore's own serialiser and parser, and the app around it."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import botocore.parsers
import botocore.serialize
import pytest
from botocore.model import OperationModel

from spindown.local.market import service_of
from spindown.local.market.wire.asgi import Response, call
from spindown.local.market.wire.protocol import ApiError, fields_of, operation_model, parse, render
from tests.local.market.world import World, a_world, asgi_scope, finished, refused


def _fields(operation: OperationModel, parameters: dict[str, Any]) -> dict[str, str]:
    serializer = botocore.serialize.create_serializer("ec2")
    body = serializer.serialize_to_request(parameters, operation)["body"]
    return fields_of(urlencode(body).encode())


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (
        "CreateFleet",
        {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "2"},
                    "Overrides": [
                        {"InstanceType": f"g6.{size}xlarge", "Priority": float(size)}
                        for size in range(12)
                    ],
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 3},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "a=b&c", "Value": "grün"}]}
            ],
        },
    ),
    (
        "DescribeSpotPriceHistory",
        {
            "StartTime": datetime(2026, 3, 1, 12, tzinfo=UTC),
            "InstanceTypes": ["g6.xlarge", "g5.xlarge"],
            "MaxResults": 7,
            "DryRun": False,
        },
    ),
    (
        "ModifyInstanceAttribute",
        {"InstanceId": "i-1", "InstanceInitiatedShutdownBehavior": {"Value": "stop"}},
    ),
    ("DescribeInstances", {"Filters": [{"Name": "tag:k", "Values": ["v", "w"]}]}),
]


@pytest.mark.parametrize(("name", "parameters"), REQUESTS, ids=[name for name, _ in REQUESTS])
def test_reads_back_what_botocore_writes(name: str, parameters: dict[str, Any]) -> None:
    operation = operation_model("ec2", name)
    assert parse(operation, _fields(operation, parameters)) == parameters


def test_botocore_reads_back_what_is_written() -> None:
    operation = operation_model("ec2", "DescribeSpotPriceHistory")
    answer = {
        "NextToken": "",
        "SpotPriceHistory": [
            {
                "AvailabilityZone": "us-east-1a",
                "SpotPrice": "0.100000",
                "Timestamp": datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=UTC),
            }
        ],
    }
    body = render(operation, answer, request_id="r")
    parser = botocore.parsers.create_parser("ec2")
    assert operation.output_shape is not None
    read = parser.parse({"status_code": 200, "headers": {}, "body": body}, operation.output_shape)
    assert read.pop("ResponseMetadata")["RequestId"] == "r"
    assert read == answer


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"Colour": "red"}, "UnknownParameter", id="unknown"),
        pytest.param({"Filter.1.Colour": "red"}, "UnknownParameter", id="unknown-nested"),
        pytest.param({"InstanceId.x": "i-1"}, "UnknownParameter", id="no-index"),
        pytest.param({"MaxResults": "many"}, "InvalidParameterValue", id="no-number"),
        pytest.param({"DryRun": "perhaps"}, "InvalidParameterValue", id="no-boolean"),
        pytest.param({"InstanceId": "i-1"}, "InvalidParameterValue", id="no-list"),
    ],
)
def test_refuses_what_ec2_would_not_understand(fields: dict[str, str], code: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(operation_model("ec2", "DescribeInstances"), fields)
    assert caught.value.code == code


def test_a_required_parameter_must_be_there() -> None:
    with pytest.raises(ApiError) as caught:
        parse(operation_model("ec2", "TerminateInstances"), {})
    assert caught.value.code == "MissingParameter"


def _signed(service: str) -> list[tuple[bytes, bytes]]:
    scope = f"AWS4-HMAC-SHA256 Credential=AKIA/20260301/us-east-1/{service}/aws4_request, x=y"
    return [(b"authorization", scope.encode())]


def test_service_is_read_from_the_credential_scope() -> None:
    assert service_of(_signed("servicequotas")) == "servicequotas"
    assert service_of([(b"host", b"localhost")]) is None
    assert service_of([(b"authorization", b"Bearer x")]) is None


def _raw(world: World, fields: dict[str, str]) -> Response:
    scope = asgi_scope("POST", "http://localhost/", {})
    scope["headers"] = _signed("ec2")
    return finished(call(world.app, scope, urlencode(fields).encode()))


def test_actions_of_others_go_upstream_with_their_body() -> None:
    fields = {"Action": "DescribeVpcs", "VpcId.1": "vpc-1"}
    answer = _raw(a_world(), fields)
    assert (answer.status, answer.body) == (418, urlencode(fields).encode())


def test_tags_of_others_go_upstream_too() -> None:
    fields = {"Action": "CreateTags", "ResourceId.1": "vpc-1", "Tag.1.Key": "k", "Tag.1.Value": ""}
    assert _raw(a_world(), fields).status == 418


def test_an_error_is_ec2s_xml() -> None:
    answer = _raw(a_world(), {"Action": "DescribeInstances", "Colour": "red"})
    assert answer.status == 400
    assert b"<Response><Errors><Error><Code>UnknownParameter</Code>" in answer.body


def test_the_request_rate_is_limited_when_the_scenario_says_so() -> None:
    world = a_world("\n[api_rate]\nper_second = 2.0\nburst = 3\n")
    for _ in range(3):
        world.ec2.describe_instances()
    with refused("RequestLimitExceeded"):
        world.ec2.describe_instances()
    world.wait(1)
    world.ec2.describe_instances()


def test_a_fault_of_the_scenario_lasts_for_its_time() -> None:
    world = a_world(
        '\n[[fault]]\naction = "CreateFleet"\ncode = "UnauthorizedOperation"\nuntil = "10s"\n'
    )
    with refused("UnauthorizedOperation"):
        world.fleet()
    world.wait(10)
    assert world.fleet()["Instances"]


def test_json_services_refuse_what_they_do_not_know() -> None:
    quotas = a_world().client("service-quotas")
    with refused("UnknownOperationException"):
        quotas.list_services()
