"""What a worker must be able to call, and what it must not."""

from tests.infra.call.resource import (
    ASSETS,
    BEARS_OURS,
    CODE,
    CODES_OF_OTHERS,
    DEAD_LETTERS,
    KIT,
    OURS,
    QUEUE,
    SHAPE_QUEUE,
    TABLE,
    objects,
    rows,
)
from tests.infra.policy import ACCOUNT, REGION, STORE, Call, ours

_KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
_WORKER_LOG = ours("logs", "log-group:/spindown/lab/worker/rich:log-stream:i-1")

WORKER_CALLS = [
    # Jobs: received, extended, ended, re-sent and split, given up.
    *(
        Call(f"sqs:{action}", queue)
        for queue in (QUEUE, SHAPE_QUEUE)
        for action in ("ChangeMessageVisibility", "DeleteMessage", "SendMessage")
    ),
    Call("sqs:ReceiveMessage", QUEUE),
    Call("sqs:SendMessage", DEAD_LETTERS),
    # The manifest, and its older versions when it is torn; parts; large files in parts.
    *objects(["GetObject", "GetObjectVersion", "PutObject"], "workloads/rich/jobs/j/manifest.json"),
    *objects(["AbortMultipartUpload", "PutObject"], "workloads/rich/jobs/j/parts/1-0-9/0/a.png"),
    # The user's own checkpoint.
    *objects(["AbortMultipartUpload", "GetObject", "PutObject"], "workloads/rich/state/j/5a"),
    Call("s3:ListBucket", STORE),
    Call("s3:ListBucketVersions", STORE, {"s3:prefix": ["workloads/rich/jobs/j/manifest.json"]}),
    # What a job names: files that submit has uploaded, declared inputs, their listing.
    *objects(["GetObject"], "workloads/rich/inputs/b-1/a.png"),
    Call("s3:GetObject", "arn:aws:s3:::papers/2026/a.pdf"),
    Call("s3:GetObject", "arn:aws:s3:::papers/2025/a.pdf"),
    # Declared without a slash: an object of this name, too.
    Call("s3:GetObject", "arn:aws:s3:::models/ocr"),
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
    *(Call("s3:GetObject", one, {"aws:ResourceAccount": [ACCOUNT]}) for one in (CODE, KIT)),
    # Its row, leases; the policy in force; how an owner that is gone has ended.
    *(rows(action, "w#rich") for action in ("GetItem", "Query", "UpdateItem", "DeleteItem")),
    rows("GetItem", "c#rich"),
    rows("GetItem", "h#rich"),
    # What other systems hear of jobs.
    *(
        Call(
            "events:PutEvents",
            ours("events", "event-bus/default"),
            {"events:source": ["spindown.lab.rich"], "events:detail-type": [f"Spindown Job {end}"]},
        )
        for end in ("Completed", "Failed")
    ),
    # Its log, metrics and usage.
    *objects(["PutObject"], "measured/rich/2026-03-09/j-1.jsonl"),
    Call("logs:CreateLogStream", _WORKER_LOG),
    Call("logs:PutLogEvents", _WORKER_LOG),
]

WORKER_MUST_NOT = [
    # Another workload's jobs, and what lies in the dead-letter queue.
    Call("sqs:ReceiveMessage", ours("sqs", "lab--plain")),
    Call("sqs:SendMessage", ours("sqs", "lab--plain")),
    Call("sqs:ReceiveMessage", DEAD_LETTERS),
    Call("sqs:PurgeQueue", QUEUE),
    Call("sqs:ReceiveMessage", SHAPE_QUEUE),
    # What decides, and what is only to be read.
    *objects(["GetObject", "PutObject"], "offers/catalogue.json", "decisions/rich/d.json"),
    *objects(["PutObject"], "workloads/rich/inputs/b-1/a.png", "workloads/rich/batches/b-1.json"),
    *objects(["GetObject", "PutObject"], "workloads/rich/submitted/b-1/00000.jsonl"),
    *objects(["GetObject", "PutObject"], "workloads/plain/jobs/j/manifest.json"),
    *objects(["GetObject", "PutObject"], "workloads/plain/state/j/5a"),
    *objects(
        ["GetObject"], "workloads/plain/inputs/b-1/a.png", "workloads/richer/jobs/j/manifest.json"
    ),
    *objects(["PutObject"], "measured/plain/2026-03-09/j-1.jsonl"),
    *objects(["GetObject", "DeleteObject"], "measured/rich/2026-03-09/j-1.jsonl"),
    # What others read of it, its own too.
    *objects(["PutObject"], "usage/workload=rich/day=2026-03-09/type=rich/usage.parquet"),
    *objects(["PutObject"], "usage/workload=rich/day=2026-03-09/_SUCCESS"),
    *objects(["GetObject", "PutObject"], "sizes/rich.json"),
    *objects(["DeleteObject", "DeleteObjectVersion"], "workloads/rich/jobs/j/manifest.json"),
    Call("s3:PutObject", "arn:aws:s3:::papers/2026/a.pdf"),
    # What was not declared.
    Call("s3:GetObject", "arn:aws:s3:::papers/2024/a.pdf"),
    Call("s3:GetObject", "arn:aws:s3:::other/2026/a.pdf"),
    Call("s3:ListBucket", "arn:aws:s3:::papers", {"s3:prefix": ["2024/"]}),
    Call("s3:ListBucket", "arn:aws:s3:::papers"),
    Call("s3:ListBucketVersions", STORE),
    Call("s3:ListBucketVersions", STORE, {"s3:prefix": ["workloads/plain/jobs/j/manifest.json"]}),
    *(Call("s3:PutObject", archive) for archive in (CODE, KIT)),
    # A bucket of that name that somebody else has made.
    *(Call("s3:GetObject", one, {"aws:ResourceAccount": ["444455556666"]}) for one in (CODE, KIT)),
    *(Call("s3:GetObject", archive) for archive in CODES_OF_OTHERS),
    Call("s3:GetObject", f"{ASSETS}/0123456789abcdef.json"),
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
    # What the control plane obeys.
    *(rows(action, "c#rich") for action in ("UpdateItem", "DeleteItem", "Query")),
    Call("dynamodb:PartiQLSelect", TABLE),
    Call("dynamodb:Scan", TABLE),
    Call("dynamodb:Query", f"{TABLE}/index/instance"),
    # Events that are not its own to tell.
    *(
        Call(
            "events:PutEvents",
            ours("events", "event-bus/default"),
            {"events:source": sources, "events:detail-type": [kind]},
        )
        for sources, kind in (
            (["aws.ec2"], "Spindown Job Failed"),
            (["spindown"], "Spindown Job Failed"),
            (["spindown.lab.plain"], "Spindown Job Failed"),
            (["spindown.lab-rich.rich"], "Spindown Job Failed"),
            (["spindown.lab.rich", "spindown.lab.plain"], "Spindown Job Failed"),
            (["spindown.lab.rich"], "EC2 Spot Instance Interruption Warning"),
        )
    ),
    # Anything of instances, settings and roles.
    Call("ec2:RunInstances", ours("ec2", "instance/i-1"), OURS),
    Call("ec2:TerminateInstances", ours("ec2", "instance/i-1"), BEARS_OURS),
    Call("ssm:GetParameters", ours("ssm", "parameter/spindown/lab/deployment")),
    *(
        Call(f"ssm:{action}", ours("ec2", "instance/i-1"))
        for action in ("SendCommand", "StartSession", "TerminateSession")
    ),
    Call("lambda:InvokeFunction", ours("lambda", "function:lab--scaler")),
    Call("logs:PutLogEvents", ours("logs", "log-group:/spindown/lab/scaler:log-stream:s")),
]
