"""The scaler asked for a rehearsal: its answer is read, its failure told."""

import io
import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from spindown.aws.function import LambdaRehearser, LambdaWebhook
from spindown.contract.rehearsal import Rehearsal, RehearsalRequest, RehearsedLaunch, RehearsedPool
from spindown.domain.offer import CapacityType
from spindown.error import AccessDenied, ContractError

POOL = RehearsedPool(
    region="us-west-2",
    zone="us-west-2a",
    instance_type="g6.xlarge",
    architecture="x86_64",
    capacity_type=CapacityType.SPOT,
)
REQUEST = RehearsalRequest(workload="classify", pools=(POOL,))
SENT = {
    "region": "us-west-2",
    "zone": "us-west-2a",
    "instance_type": "g6.xlarge",
    "architecture": "x86_64",
    "capacity_type": "spot",
}


@pytest.fixture
def asked(session: boto3.Session) -> Iterator[tuple[LambdaRehearser, Stubber]]:
    client = session.client("lambda")
    with Stubber(client) as answers:
        yield LambdaRehearser(lambda: client, "demo--scaler"), answers
        answers.assert_no_pending_responses()


def answer(value: object, **more: str) -> dict[str, Any]:
    text = json.dumps(value).encode()
    return {"StatusCode": 200, "Payload": StreamingBody(io.BytesIO(text), len(text)), **more}


def test_it_invokes_the_scaler_and_reads_what_ec2_said(
    asked: tuple[LambdaRehearser, Stubber],
) -> None:
    rehearse, answers = asked
    event = {"source": "spindown.rehearsal", "workload": "classify", "pools": [SENT]}
    answers.add_response(
        "invoke",
        answer({"launches": [{"pool": SENT, "code": "OptInRequired"}], "ended": "slow down"}),
        {"FunctionName": "demo--scaler", "Payload": json.dumps(event).encode()},
    )

    said = rehearse(REQUEST)

    launch = RehearsedLaunch(pool=POOL, code="OptInRequired")
    assert said == Rehearsal(launches=(launch,), ended="slow down")


@pytest.mark.parametrize(
    "said",
    [
        answer({"errorMessage": "out of memory"}, FunctionError="Unhandled"),
        answer({"outcome": "ignored", "summary": "send a tick"}),
        answer([]),
    ],
    ids=["failed", "older release", "no object"],
)
def test_another_answer_is_no_rehearsal(
    asked: tuple[LambdaRehearser, Stubber], said: dict[str, Any]
) -> None:
    rehearse, answers = asked
    answers.add_response("invoke", said)

    with pytest.raises(ContractError):
        rehearse(REQUEST)


def test_who_may_not_invoke_it_is_told_so(asked: tuple[LambdaRehearser, Stubber]) -> None:
    rehearse, answers = asked
    answers.add_client_error("invoke", "AccessDeniedException", http_status_code=403)

    with pytest.raises(AccessDenied):
        rehearse(REQUEST)


@pytest.mark.parametrize("failed", [False, True], ids=["it reads its secret", "it does not"])
def test_the_webhook_s_function_is_tried_without_a_text(
    session: boto3.Session, failed: bool
) -> None:
    client = session.client("lambda")
    with Stubber(client) as answers:
        said = answer({"errorMessage": "not https", "stackTrace": []}, FunctionError="Unhandled")
        answers.add_response(
            "invoke",
            said if failed else answer({"posted": 0}),
            {"FunctionName": "demo--webhook", "Payload": b'{"Records": []}'},
        )

        with pytest.raises(ContractError, match="'not https'") if failed else nullcontext():
            LambdaWebhook(lambda: client, "demo--webhook")()
