"""The calls that each role must be able to make, and those that it must not.

Read off the adapters in ``spindown.aws``: what each method calls, on what, for whom.
"""

from collections.abc import Mapping, Sequence

from spindown.contract import tag
from tests.infra.policy import REGION, STORE, Call, ours

WORKER = "WorkloadrichFleetRole"
SCALER = "ControlScalerRole"
INTERRUPTION = "ControlInterruptionRole"
OFFERS = "ControlOffersRole"
TEARDOWN = "ControlTeardownFunctionRole"
TRIGGER = "ControlTriggerRole"

#: Stand for the archives, whose names are digests.
CODE = "arn:aws:s3:::<code>"
KIT = "arn:aws:s3:::<kit>"

_TABLE = ours("dynamodb", "table/lab-ledger")
_QUEUE = ours("sqs", "lab-rich")
_DEAD_LETTERS = ours("sqs", "lab-rich-dlq")
_WORKER_LOG = ours("logs", "log-group:/spindown/lab/worker/rich:log-stream:i-1")
_KEY = "arn:aws:kms:eu-west-1:111122223333:key/1-2"
_HERE = {"aws:RequestedRegion": [REGION]}
_OURS = {f"aws:RequestTag/{tag.DEPLOYMENT}": ["lab"]}
_BEARS_OURS = {f"aws:ResourceTag/{tag.DEPLOYMENT}": ["lab"]}
_TEMPLATES = [
    ours("ec2", f"launch-template/Workload{name}")
    for name in (
        "plainFleetTemplatex8664",
        "richFleetTemplatearm64",
        "richFleetTemplatex8664",
    )
]


def rows(action: str, partition: str) -> Call:
    """Return a call on rows of one partition."""
    return Call(f"dynamodb:{action}", _TABLE, {"dynamodb:LeadingKeys": [partition]})


def _objects(actions: Sequence[str], *keys: str) -> list[Call]:
    return [Call(f"s3:{action}", f"{STORE}/{key}") for action in actions for key in keys]


_WORKER_NEEDS = [
    # Jobs: received, extended, ended, re-sent and split, given up.
    *(
        Call(f"sqs:{action}", _QUEUE)
        for action in ("ReceiveMessage", "ChangeMessageVisibility", "DeleteMessage", "SendMessage")
    ),
    Call("sqs:SendMessage", _DEAD_LETTERS),
    # The manifest, and its older versions when it is torn; parts; large files in parts.
    *_objects(
        ["GetObject", "GetObjectVersion", "PutObject"], "workloads/rich/jobs/j/manifest.json"
    ),
    *_objects(["AbortMultipartUpload", "PutObject"], "workloads/rich/jobs/j/parts/1-0-9/0/a.png"),
    # The user's own checkpoint.
    *_objects(["AbortMultipartUpload", "GetObject", "PutObject"], "workloads/rich/state/j/5a"),
    Call("s3:ListBucket", STORE),
    Call("s3:ListBucketVersions", STORE, {"s3:prefix": ["workloads/rich/jobs/j/manifest.json"]}),
    # What a job names: files that submit has uploaded, declared inputs, their listing.
    *_objects(["GetObject"], "workloads/rich/inputs/b-1/a.png"),
    Call("s3:GetObject", "arn:aws:s3:::papers/2026/a.pdf"),
    Call("s3:GetObject", "arn:aws:s3:::papers/2025/a.pdf"),
    Call("s3:GetObject", "arn:aws:s3:::models/ocr/a.bin"),
    Call("s3:ListBucket", "arn:aws:s3:::papers", {"s3:prefix": ["2025/may/"]}),
    Call("s3:ListBucket", "arn:aws:s3:::papers", {"s3:prefix": ["2026/"]}),
    Call("s3:ListBucket", "arn:aws:s3:::models", {"s3:prefix": ["ocr/"]}),
    # Secrets, each by its name, and the key that all this is encrypted with.
    Call("secretsmanager:GetSecretValue", ours("secretsmanager", "secret:hub/token-a1B2c3")),
    Call("ssm:GetParameter", ours("ssm", "parameter/rich/password")),
    Call("kms:Decrypt", _KEY, {"kms:ViaService": [f"s3.{REGION}.amazonaws.com"]}),
    Call("kms:Decrypt", _KEY, {"kms:ViaService": [f"secretsmanager.{REGION}.amazonaws.com"]}),
    # What it runs.
    Call("s3:GetObject", CODE),
    Call("s3:GetObject", KIT),
    # Its row, leases, the policy in force; how an owner that is gone has ended.
    *(rows(action, "w#rich") for action in ("GetItem", "Query", "UpdateItem", "DeleteItem")),
    rows("GetItem", "h#rich"),
    # What other systems hear of jobs.
    *(
        Call(
            "events:PutEvents",
            ours("events", "event-bus/default"),
            {"events:source": ["spindown"], "events:detail-type": [f"Spindown Job {end}"]},
        )
        for end in ("Completed", "Failed")
    ),
    # Its log, metrics and usage.
    *_objects(["PutObject"], "usage/workload=rich/day=2026-03-09/j-1.jsonl"),
    Call("logs:CreateLogStream", _WORKER_LOG),
    Call("logs:PutLogEvents", _WORKER_LOG),
]

_WORKER_MUST_NOT = [
    # Another workload's jobs, and what lies in the dead-letter queue.
    Call("sqs:ReceiveMessage", ours("sqs", "lab-plain")),
    Call("sqs:SendMessage", ours("sqs", "lab-plain")),
    Call("sqs:ReceiveMessage", _DEAD_LETTERS),
    Call("sqs:PurgeQueue", _QUEUE),
    # What decides, and what is only to be read.
    *_objects(["GetObject", "PutObject"], "offers/catalogue.json", "decisions/rich/d.json"),
    *_objects(["PutObject"], "workloads/rich/inputs/b-1/a.png", "workloads/rich/batches/b-1.json"),
    *_objects(["GetObject", "PutObject"], "workloads/plain/jobs/j/manifest.json"),
    *_objects(["GetObject", "PutObject"], "workloads/plain/state/j/5a"),
    *_objects(
        ["GetObject"], "workloads/plain/inputs/b-1/a.png", "workloads/richer/jobs/j/manifest.json"
    ),
    *_objects(["PutObject"], "usage/workload=plain/day=2026-03-09/j-1.jsonl"),
    *_objects(["DeleteObject", "DeleteObjectVersion"], "workloads/rich/jobs/j/manifest.json"),
    Call("s3:PutObject", "arn:aws:s3:::papers/2026/a.pdf"),
    # What was not declared.
    Call("s3:GetObject", "arn:aws:s3:::papers/2024/a.pdf"),
    Call("s3:GetObject", "arn:aws:s3:::other/2026/a.pdf"),
    Call("s3:ListBucket", "arn:aws:s3:::papers", {"s3:prefix": ["2024/"]}),
    Call("s3:ListBucket", "arn:aws:s3:::papers"),
    Call("s3:ListBucketVersions", STORE),
    Call("s3:ListBucketVersions", STORE, {"s3:prefix": ["workloads/plain/jobs/j/manifest.json"]}),
    Call("s3:PutObject", CODE),
    Call("secretsmanager:GetSecretValue", ours("secretsmanager", "secret:hub/token2-a1B2c3")),
    Call("secretsmanager:PutSecretValue", ours("secretsmanager", "secret:hub/token-a1B2c3")),
    Call("ssm:GetParameter", ours("ssm", "parameter/rich/password2")),
    Call("kms:Decrypt", _KEY),
    Call("kms:Encrypt", _KEY, {"kms:ViaService": [f"s3.{REGION}.amazonaws.com"]}),
    # Other rows, and calls that name no keys.
    rows("GetItem", "w#plain"),
    rows("UpdateItem", "w#plain"),
    rows("UpdateItem", "h#rich"),
    rows("UpdateItem", "d#"),
    Call("dynamodb:Scan", _TABLE),
    Call("dynamodb:Query", f"{_TABLE}/index/instance"),
    # Events that are not its own to tell.
    Call(
        "events:PutEvents",
        ours("events", "event-bus/default"),
        {"events:source": ["aws.ec2"], "events:detail-type": ["Spindown Job Failed"]},
    ),
    # Anything of instances, settings and roles.
    Call("ec2:RunInstances", ours("ec2", "instance/i-1"), _OURS),
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), _BEARS_OURS),
    Call("ssm:GetParameters", ours("ssm", "parameter/spindown/lab/deployment")),
    Call("lambda:InvokeFunction", ours("lambda", "function:lab-scaler")),
    Call("logs:PutLogEvents", ours("logs", "log-group:/spindown/lab/scaler:log-stream:s")),
]

_REFRESH_NEEDS = [
    *(
        Call("ssm:GetParameters", ours("ssm", f"parameter/spindown/lab/{name}"))
        for name in ("deployment", "workload/plain", "workload/rich", "live/plain", "live/rich")
    ),
    *_objects(["GetObject", "PutObject"], "offers/catalogue.json"),
    Call("s3:ListBucket", STORE),
    Call("ec2:DescribeInstanceTypes", context=_HERE),
    Call("ec2:DescribeInstanceTypeOfferings", context=_HERE),
    Call("pricing:GetProducts"),
    Call("servicequotas:ListServiceQuotas"),
]

_FOUND = [
    *_TEMPLATES,
    f"arn:aws:ec2:{REGION}::image/ami-1",
    f"arn:aws:ec2:{REGION}::snapshot/snap-1",
    ours("ec2", "security-group/NetworkWorkers"),
    ours("ec2", "subnet/NetworkSubnetA"),
    ours("ec2", "subnet/NetworkSubnetC"),
]
_BESIDE = [ours("ec2", f"{kind}/*") for kind in ("network-interface", "volume")]
_MADE = [ours("ec2", "fleet/*"), ours("ec2", "instance/*"), *_BESIDE]

_BASE_IMAGE = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)

#: What CreateFleet asks for each thing that it uses or makes, and RunInstances within it.
_LAUNCH_NEEDS = [
    *(Call(f"ec2:{a}", one) for a in ("CreateFleet", "RunInstances") for one in _FOUND),
    *(Call("ec2:CreateFleet", one, _OURS) for one in _MADE),
    *(
        Call(f"ec2:{action}", ours("ec2", "spot-instances-request/*"))
        for action in ("CreateFleet", "RunInstances")
    ),
    *(Call("ec2:RunInstances", one, _OURS) for one in _BESIDE),
    *(
        Call(
            "ec2:RunInstances",
            ours("ec2", "instance/*"),
            {**_OURS, "ec2:LaunchTemplate": [template]},
        )
        for template in _TEMPLATES
    ),
    *(
        Call("ec2:CreateTags", one, {**_OURS, "ec2:CreateAction": [action]})
        for one in _MADE
        for action in ("CreateFleet", "RunInstances")
    ),
    *(
        Call(
            "iam:PassRole",
            f"arn:aws:iam::111122223333:role/Workload{name}FleetRole",
            {"iam:PassedToService": ["ec2.amazonaws.com"]},
        )
        for name in ("plain", "rich")
    ),
    Call(
        "iam:CreateServiceLinkedRole",
        "arn:aws:iam::111122223333:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
        {"iam:AWSServiceName": ["spot.amazonaws.com"]},
    ),
    *(
        Call(f"ssm:{action}", image)
        for action in ("GetParameter", "GetParameters")
        for image in (
            ours("ssm", "parameter/images/rich/arm64"),
            ours("ssm", "parameter/images/rich/x86_64"),
            f"arn:aws:ssm:{REGION}::parameter{_BASE_IMAGE}",
        )
    ),
]

_RECONCILE_NEEDS = [
    *_REFRESH_NEEDS,
    *(
        Call(f"dynamodb:{action}", _TABLE)
        for action in ("ConditionCheckItem", "DeleteItem", "GetItem", "Query", "UpdateItem")
    ),
    Call("dynamodb:Query", f"{_TABLE}/index/instance"),
    *_objects(["PutObject"], "decisions/rich/2026-11-20/120000-d.json"),
    *(
        Call(f"sqs:{action}", ours("sqs", f"lab-{name}"))
        for action in ("GetQueueAttributes", "ChangeMessageVisibility")
        for name in ("plain", "rich")
    ),
    Call("ec2:DescribeInstances", context=_HERE),
    Call("ec2:DescribeSpotInstanceRequests", context=_HERE),
    Call("ec2:DescribeSpotPriceHistory", context=_HERE),
    *_LAUNCH_NEEDS,
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), _BEARS_OURS),
]

_RENEW_NEEDS = [
    rows("GetItem", "w#rich"),
    rows("UpdateItem", "w#rich"),
    *(
        Call(f"sqs:{action}", ours("sqs", f"lab-{name}"))
        for action in ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")
        for name in ("plain", "rich")
    ),
    *_objects(["PutObject"], "workloads/rich/jobs/j/items.jsonl"),
]

_TELL_NEEDS = [Call("sns:Publish", ours("sns", "lab-alarms"))]

_JUDGE_NEEDS = [
    *(
        rows(action, f"w#{name}")
        for action in ("DeleteItem", "Query", "UpdateItem")
        for name in ("plain", "rich")
    ),
    Call("ec2:DescribeSpotPriceHistory", context=_HERE),
    *_TELL_NEEDS,
]

_CONTROL_MUST_NOT = [
    # Jobs and results.
    Call("sqs:ReceiveMessage", _QUEUE),
    Call("sqs:DeleteMessage", _QUEUE),
    *_objects(["GetObject", "PutObject"], "workloads/rich/jobs/j/manifest.json"),
    Call("dynamodb:Scan", _TABLE),
    Call("dynamodb:DeleteTable", _TABLE),
    # What is not ours, or elsewhere.
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1")),
    Call(
        "ec2:TerminateInstances",
        ours("ec2", "instance/i-1"),
        {f"aws:ResourceTag/{tag.DEPLOYMENT}": ["other"]},
    ),
    Call("ec2:DescribeInstances", context={"aws:RequestedRegion": ["us-east-1"]}),
    Call("ec2:CreateFleet", ours("ec2", "launch-template/lt-foreign")),
    Call("ec2:CreateFleet", ours("ec2", "fleet/*")),
    Call("ec2:RunInstances", ours("ec2", "subnet/subnet-foreign")),
    Call("ec2:RunInstances", ours("ec2", "security-group/sg-foreign")),
    Call("ec2:RunInstances", ours("ec2", "instance/*"), _OURS),
    Call(
        "ec2:RunInstances",
        ours("ec2", "instance/*"),
        {**_OURS, "ec2:LaunchTemplate": [ours("ec2", "launch-template/lt-foreign")]},
    ),
    Call("ec2:RunInstances", ours("ec2", "instance/*"), {"ec2:LaunchTemplate": [_TEMPLATES[0]]}),
    Call("ec2:CreateTags", ours("ec2", "instance/i-1"), _OURS),
    Call("ec2:StopInstances", ours("ec2", "instance/i-1"), _BEARS_OURS),
    Call(
        "iam:PassRole",
        "arn:aws:iam::111122223333:role/Admin",
        {"iam:PassedToService": ["ec2.amazonaws.com"]},
    ),
    Call(
        "iam:PassRole",
        "arn:aws:iam::111122223333:role/WorkloadrichFleetRole",
        {"iam:PassedToService": ["lambda.amazonaws.com"]},
    ),
    Call("ssm:PutParameter", ours("ssm", "parameter/spindown/lab/live/rich")),
    Call("ssm:GetParameters", ours("ssm", "parameter/spindown/other/deployment")),
]


def _log(function: str) -> list[Call]:
    stream = ours("logs", f"log-group:/spindown/lab/{function}:log-stream:s")
    return [Call("logs:CreateLogStream", stream), Call("logs:PutLogEvents", stream)]


def _invoke(function: str) -> Call:
    return Call("lambda:InvokeFunction", ours("lambda", f"function:lab-{function}"))


_TEARDOWN_NEEDS = [
    # Locks, taken and given back; instances, found and ended.
    Call("dynamodb:UpdateItem", _TABLE),
    Call("ec2:DescribeInstances", context=_HERE),
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), _BEARS_OURS),
]

_FAILED_EVENTS = Call("sqs:SendMessage", ours("sqs", "ControlFailedEvents"))

NEEDS: Mapping[str, Sequence[Call]] = {
    WORKER: _WORKER_NEEDS,
    SCALER: [*_RECONCILE_NEEDS, *_TELL_NEEDS, *_log("scaler")],
    INTERRUPTION: [*_RECONCILE_NEEDS, *_TELL_NEEDS, *_log("interruption"), _FAILED_EVENTS],
    OFFERS: [
        *_REFRESH_NEEDS,
        *_RENEW_NEEDS,
        *_JUDGE_NEEDS,
        *_log("offers"),
        _FAILED_EVENTS,
    ],
    TEARDOWN: [*_TEARDOWN_NEEDS, *_log("teardown"), _FAILED_EVENTS],
    TRIGGER: [_invoke("scaler"), _invoke("offers")],
}

MUST_NOT: Mapping[str, Sequence[Call]] = {
    WORKER: _WORKER_MUST_NOT,
    SCALER: _CONTROL_MUST_NOT,
    INTERRUPTION: _CONTROL_MUST_NOT,
    OFFERS: [
        *(call for call in _CONTROL_MUST_NOT if call not in _RENEW_NEEDS),
        *_LAUNCH_NEEDS,
        Call("dynamodb:Query", f"{_TABLE}/index/instance"),
        *(rows(action, "d#") for action in ("DeleteItem", "Query")),
        Call("sqs:ReceiveMessage", _DEAD_LETTERS),
        *_objects(["GetObject"], "workloads/rich/jobs/j/items.jsonl"),
    ],
    TEARDOWN: [
        *_CONTROL_MUST_NOT,
        *_LAUNCH_NEEDS,
        *(Call(f"dynamodb:{action}", _TABLE) for action in ("DeleteItem", "GetItem", "Query")),
        Call("ssm:GetParameters", ours("ssm", "parameter/spindown/lab/deployment")),
    ],
    TRIGGER: [_invoke("interruption"), *_WORKER_NEEDS[:5]],
}
