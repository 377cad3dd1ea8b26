"""The calls that each role must be able to make, and those that it must not.

Read off the adapters in ``spindown.aws``: what each method calls, on what, for whom.
"""

from collections.abc import Mapping, Sequence

from tests.infra.call.control import (
    COMPACT_CALLS,
    CONTROL_MUST_NOT,
    COUNT_LOST_CALLS,
    FOLLOW_CALLS,
    JUDGE_CALLS,
    RECONCILE_CALLS,
    REFRESH_CALLS,
    RENEW_CALLS,
    TEARDOWN_CALLS,
    TELL_CALLS,
)
from tests.infra.call.launch import LAUNCH_CALLS
from tests.infra.call.resource import DEAD_LETTERS, TABLE, objects, rows
from tests.infra.call.worker import WORKER_CALLS, WORKER_MUST_NOT
from tests.infra.policy import ACCOUNT, Call, ours

WORKER = "WorkloadrichFleetRole"
SCALER = "ControlScalerRole"
INTERRUPTION = "ControlInterruptionRole"
OFFERS = "ControlOffersRole"
TEARDOWN = "ControlTeardownFunctionRole"
TRIGGER = "ControlTriggerRole"


def _log(function: str) -> list[Call]:
    stream = ours("logs", f"log-group:/spindown/lab/{function}:log-stream:s")
    return [Call("logs:CreateLogStream", stream), Call("logs:PutLogEvents", stream)]


def _invoke(function: str) -> Call:
    return Call("lambda:InvokeFunction", ours("lambda", f"function:lab--{function}"))


_PIPELINE = ours("imagebuilder", "image-pipeline/lab--rich--arm64")
#: Its own role is created with the first build of an account.
BAKE_CALLS = [
    Call("imagebuilder:StartImagePipelineExecution", _PIPELINE),
    Call("imagebuilder:GetImagePipeline", _PIPELINE),
    Call("imagebuilder:GetImage", ours("imagebuilder", "image/lab--rich--arm64/1.0.0/1")),
    Call(
        "iam:CreateServiceLinkedRole",
        f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/imagebuilder.amazonaws.com"
        "/AWSServiceRoleForImageBuilder",
        {"iam:AWSServiceName": ["imagebuilder.amazonaws.com"]},
    ),
]

_FAILED_EVENTS = Call("sqs:SendMessage", ours("sqs", "ControlFailedEvents"))

CALLS: Mapping[str, Sequence[Call]] = {
    WORKER: WORKER_CALLS,
    SCALER: [*RECONCILE_CALLS, *FOLLOW_CALLS, *TELL_CALLS, *_log("scaler")],
    INTERRUPTION: [*RECONCILE_CALLS, *TELL_CALLS, *_log("interruption"), _FAILED_EVENTS],
    OFFERS: [
        *REFRESH_CALLS,
        *RENEW_CALLS,
        *JUDGE_CALLS,
        *COUNT_LOST_CALLS,
        *COMPACT_CALLS,
        *BAKE_CALLS,
        *_log("offers"),
        _FAILED_EVENTS,
    ],
    TEARDOWN: [*TEARDOWN_CALLS, *_log("teardown"), _FAILED_EVENTS],
    TRIGGER: [_invoke("scaler"), _invoke("offers")],
}

MUST_NOT: Mapping[str, Sequence[Call]] = {
    WORKER: WORKER_MUST_NOT,
    SCALER: [call for call in CONTROL_MUST_NOT if call not in FOLLOW_CALLS],
    INTERRUPTION: CONTROL_MUST_NOT,
    OFFERS: [
        *(call for call in CONTROL_MUST_NOT if call not in [*RENEW_CALLS, *COUNT_LOST_CALLS]),
        *LAUNCH_CALLS,
        Call("dynamodb:Query", f"{TABLE}/index/instance"),
        *(rows(action, "d#") for action in ("DeleteItem", "UpdateItem", "GetItem")),
        *(rows(action, "w#rich") for action in ("DeleteItem", "UpdateItem")),
        Call("sqs:ReceiveMessage", DEAD_LETTERS),
        *objects(["GetObject"], "workloads/rich/jobs/j/bodies/d.json"),
    ],
    TEARDOWN: [
        *CONTROL_MUST_NOT,
        *LAUNCH_CALLS,
        *(Call(f"dynamodb:{action}", TABLE) for action in ("DeleteItem", "GetItem")),
        rows("Query", "w#rich"),
        *(rows("UpdateItem", partition) for partition in ("w#rich", "h#rich", "d#")),
        Call("ssm:GetParameters", ours("ssm", "parameter/spindown/lab/deployment")),
    ],
    TRIGGER: [_invoke("interruption"), *WORKER_CALLS[:5]],
}
