"""What each use case of the control plane must be able to call, and what none may."""

from spindown.contract import tag
from spindown.contract.learned_size import sizes_key
from tests.infra.call.launch import LAUNCH_CALLS, an_instance
from tests.infra.call.resource import (
    BEARS_OURS,
    DEAD_LETTERS,
    HERE,
    OURS,
    QUEUE,
    SHAPE_QUEUE,
    TABLE,
    TEMPLATES,
    WORK_QUEUES,
    objects,
    rows,
)
from tests.infra.policy import STORE, Call, ours

REFRESH_CALLS = [
    *(
        Call("ssm:GetParameters", ours("ssm", f"parameter/spindown/lab/{name}"))
        for name in ("deployment", "workload/plain", "workload/rich", "live/plain", "live/rich")
    ),
    *objects(["GetObject", "PutObject"], "offers/catalogue.json"),
    Call("s3:ListBucket", STORE),
    Call("ec2:DescribeInstanceTypes", context=HERE),
    Call("ec2:DescribeInstanceTypeOfferings", context=HERE),
    Call("pricing:GetProducts", context={"aws:RequestedRegion": ["eu-central-1"]}),
    Call("servicequotas:ListServiceQuotas", context=HERE),
]

RECONCILE_CALLS = [
    *REFRESH_CALLS,
    *(
        Call(f"dynamodb:{action}", TABLE)
        for action in (
            "BatchGetItem",
            "ConditionCheckItem",
            "DeleteItem",
            "GetItem",
            "PartiQLSelect",
            "Query",
            "UpdateItem",
        )
    ),
    Call("dynamodb:Query", f"{TABLE}/index/instance"),
    *objects(["PutObject"], "decisions/rich/2026-11-20/120000-d.json"),
    *(
        Call(f"sqs:{action}", ours("sqs", f"lab--{name}"))
        for action in ("GetQueueAttributes", "ChangeMessageVisibility")
        for name in WORK_QUEUES
    ),
    Call("ec2:DescribeInstances", context=HERE),
    Call("ec2:DescribeSpotInstanceRequests", context=HERE),
    Call("ec2:DescribeSpotPriceHistory", context=HERE),
    *LAUNCH_CALLS,
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), BEARS_OURS),
]

RENEW_CALLS = [
    rows("GetItem", "c#rich"),
    rows("UpdateItem", "c#rich"),
    *(
        Call(f"sqs:{action}", ours("sqs", f"lab--{name}"))
        for action in ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")
        for name in WORK_QUEUES
    ),
    Call("sqs:DeleteQueue", SHAPE_QUEUE),
    *objects(["PutObject"], "workloads/rich/jobs/j/bodies/d.json"),
]

COMPACT_CALLS = [
    *objects(["GetObject"], "measured/rich/2026-03-09/j-1.jsonl"),
    *objects(["PutObject"], "usage/workload=rich/day=2026-03-09/type=rich/usage.parquet"),
    *objects(["PutObject"], "usage/workload=rich/day=2026-03-09/_SUCCESS"),
]

TELL_CALLS = [Call("sns:Publish", ours("sns", "lab--alarms"))]

JUDGE_CALLS = [
    *(Call(f"dynamodb:{action}", TABLE) for action in ("BatchGetItem", "PartiQLSelect", "Query")),
    *(
        rows(action, f"c#{name}")
        for action in ("DeleteItem", "UpdateItem")
        for name in ("plain", "rich")
    ),
    Call("ec2:DescribeSpotPriceHistory", context=HERE),
    *TELL_CALLS,
]

FOLLOW_CALLS = [
    *objects(
        ["GetObject"],
        "workloads/rich/batches/b.json",
        "workloads/rich/submitted/b/00000.jsonl",
        "workloads/rich/jobs/j/manifest.json",
    ),
    *objects(["PutObject"], "workloads/rich/jobs/j/manifest.json"),
    *objects(["DeleteObject"], "workloads/rich/open/b"),
    Call("sqs:SendMessage", QUEUE),
]

COUNT_LOST_CALLS = [
    rows("GetItem", "w#rich"),
    *objects(["GetObject"], "workloads/rich/batches/b.json", "workloads/rich/jobs/j/manifest.json"),
    *(
        Call("sqs:GetQueueAttributes", ours("sqs", f"lab--{name}"))
        for name in (*WORK_QUEUES, "plain--dlq", "rich--dlq")
    ),
]

TEARDOWN_CALLS = [
    # Locks, taken and given back; instances, found and ended.
    rows("UpdateItem", "c#rich"),
    Call("ec2:DescribeInstances", context=HERE),
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), BEARS_OURS),
    # Queues that no template has made, also of a workload that has left.
    rows("Query", "c#gone"),
    Call("sqs:DeleteQueue", SHAPE_QUEUE),
    Call("sqs:DeleteQueue", ours("sqs", "lab--gone--c0m8")),
]

#: Of a deployment in which ``plain`` has types.
INTAKE_CALLS = [
    *(
        Call("ssm:GetParameters", ours("ssm", f"parameter/spindown/lab/{name}"))
        for name in ("deployment", "workload/plain", "live/plain")
    ),
    *(rows(action, "c#plain") for action in ("GetItem", "Query", "UpdateItem")),
    rows("GetItem", "w#plain"),
    *(
        Call(f"sqs:{action}", ours("sqs", f"lab--{name}"))
        for action in ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")
        for name in ("plain", "plain--c0m8")
    ),
    Call("sqs:CreateQueue", ours("sqs", "lab--plain--c0m8")),
    *(
        Call(f"sqs:{action}", ours("sqs", "lab--plain--dlq"))
        for action in ("GetQueueAttributes", "SendMessage")
    ),
    Call("s3:ListBucket", STORE),
    *objects(
        ["GetObject", "PutObject"],
        "workloads/plain/jobs/j/bodies/d.json",
        "workloads/plain/jobs/j/message",
    ),
    *objects(["GetObject"], sizes_key("plain"), "offers/catalogue.json"),
    *objects(["GetObject", "PutObject"], "workloads/plain/jobs/j/manifest.json"),
    Call("lambda:InvokeFunction", ours("lambda", "function:lab--scaler")),
]
INTAKE_MUST_NOT = [
    *(
        Call(f"sqs:{action}", ours("sqs", f"lab--{name}"))
        for action in ("ReceiveMessage", "SendMessage")
        for name in ("rich", "rich--c0m8")
    ),
    Call("sqs:ReceiveMessage", ours("sqs", "lab--plain--dlq")),
    Call("sqs:CreateQueue", ours("sqs", "lab--plain")),
    Call("sqs:DeleteQueue", ours("sqs", "lab--plain--c0m8")),
    *(rows(action, name) for action in ("Query", "UpdateItem") for name in ("w#plain", "c#rich")),
    *objects(["GetObject", "PutObject"], "workloads/rich/jobs/j/manifest.json"),
    *objects(["GetObject", "PutObject"], "workloads/plain/jobs/j/parts/1-0.jsonl"),
    Call("ec2:CreateFleet", ours("ec2", "fleet/*")),
]

_INSTANCE = {
    **an_instance("rich"),
    "ec2:LaunchTemplate": [TEMPLATES[0]],
    "ec2:InstanceType": ["g6.xlarge"],
}

CONTROL_MUST_NOT = [
    # Jobs and results.
    Call("sqs:ReceiveMessage", QUEUE),
    Call("sqs:DeleteMessage", QUEUE),
    Call("sqs:DeleteQueue", QUEUE),
    Call("sqs:DeleteQueue", DEAD_LETTERS),
    *objects(["GetObject", "PutObject"], "workloads/rich/jobs/j/manifest.json"),
    Call("dynamodb:Scan", TABLE),
    Call("dynamodb:DeleteTable", TABLE),
    # What is not ours, or elsewhere.
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1")),
    *(
        Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), {**BEARS_OURS, **other})
        for other in (
            {f"aws:ResourceTag/{tag.DEPLOYMENT}": ["other"]},
            {f"aws:ResourceTag/{tag.REGION}": ["ap-south-1"]},
        )
    ),
    Call("ec2:DescribeInstances", context={"aws:RequestedRegion": ["us-east-1"]}),
    Call("ec2:CreateFleet", ours("ec2", "launch-template/lt-foreign")),
    Call("ec2:CreateFleet", ours("ec2", "fleet/*")),
    Call("ec2:RunInstances", ours("ec2", "subnet/subnet-foreign")),
    Call("ec2:RunInstances", ours("ec2", "security-group/sg-foreign")),
    *(
        Call("ec2:RunInstances", ours("ec2", "instance/*"), {**_INSTANCE, **lie})
        for lie in (
            {"ec2:LaunchTemplate": [ours("ec2", "launch-template/lt-foreign")]},
            {"ec2:InstanceType": ["u-24tb1.metal"]},
            {"ec2:InstanceType": ["u-24tb1.112xlarge"]},
            {"ec2:InstanceType": ["g4dn.metal"]},
            {"ec2:MetadataHttpTokens": ["optional"]},
            {f"aws:RequestTag/{tag.DEPLOYMENT}": ["lab-a"]},
            {f"aws:RequestTag/{tag.WORKLOAD}": ["other"]},
        )
    ),
    *(
        Call(
            "ec2:RunInstances",
            ours("ec2", "instance/*"),
            {key: value for key, value in _INSTANCE.items() if key != missing},
        )
        for missing in _INSTANCE
    ),
    Call("ec2:CreateTags", ours("ec2", "instance/i-1"), OURS),
    Call("ec2:StopInstances", ours("ec2", "instance/i-1"), BEARS_OURS),
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
