"""Which stacks there are, as CloudFormation tells it."""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from spindown.aws.stack import CloudFormationStacks
from spindown.error import AccessDenied

A_STACK = {
    "Stacks": [
        {
            "StackName": "lab-fault",
            "CreationTime": datetime(2026, 11, 20, tzinfo=UTC),
            "StackStatus": "CREATE_COMPLETE",
        }
    ]
}


def a_client() -> Any:
    return boto3.client(
        "cloudformation",
        region_name="eu-west-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="nobody",
    )


def test_a_name_that_no_stack_has_is_left_out() -> None:
    client = a_client()
    with Stubber(client) as stub:
        stub.add_client_error(
            "describe_stacks",
            "ValidationError",
            "Stack with id lab-image does not exist",
            expected_params={"StackName": "lab-image"},
        )
        stub.add_response("describe_stacks", A_STACK, {"StackName": "lab-fault"})

        found = CloudFormationStacks(lambda: client).find(["lab-image", "lab-fault"])

    assert found == ["lab-fault"]


def test_who_may_not_look_is_told_so() -> None:
    client = a_client()
    with Stubber(client) as stub:
        stub.add_client_error("describe_stacks", "AccessDenied")

        with pytest.raises(AccessDenied):
            CloudFormationStacks(lambda: client).find(["lab-image"])
