"""What a worker may do: its jobs, its results, its rows. Nothing about instances.

Which statements a role gets: ``WorkerFleet._grants`` in infra/workload.py.
"""

import re
from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from spindown.contract import row
from spindown.contract.folder import folder_prefix
from spindown.contract.job.batch import UPLOADS
from spindown.contract.job.event import DETAIL_TYPES, event_source
from spindown.contract.job.manifest import STATES
from spindown.contract.location import parse_location, work_root
from spindown.contract.run_spec import ecr_registry, is_parameter
from spindown.contract.usage import measured_prefix
from spindown.infra.iam.statement import (
    OF_THIS_ACCOUNT,
    READ_ROWS,
    allow,
    literal,
    parameter,
    regional,
    see,
    see_missing_objects,
    within,
)


def work_jobs(
    *, queue_arn: str, other_arn: str, dead_letters_arn: str
) -> list[iam.PolicyStatement]:
    """Allow what a worker does with messages: receive, extend, delete, send again, dead-letter.

    From ``other_arn`` it receives nothing: with types it sends back there what is not for it. It
    keeps what it holds after a deploy that adds the first type or removes the last.
    """
    held = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:SendMessage"]
    return [
        allow("WorkQueue", [*held, "sqs:ReceiveMessage"], [queue_arn]),
        allow("KeepJobs", held, [other_arn]),
        allow("GiveUpJobs", ["sqs:SendMessage"], [dead_letters_arn]),
    ]


def keep_results(*, bucket_arn: str, workload: str) -> list[iam.PolicyStatement]:
    """Allow what a worker does with objects: manifests, parts, checkpoints, uploaded inputs."""
    root = f"{bucket_arn}/{work_root(workload)}"
    return [
        allow(
            "KeepResults",
            ["s3:AbortMultipartUpload", "s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"],
            [f"{root}jobs/*", f"{root}{STATES}*"],
        ),
        allow("ReadUploads", ["s3:GetObject"], [f"{root}{UPLOADS}*"]),
        see_missing_objects(bucket_arn=bucket_arn),
        allow(
            "SeeVersions",
            ["s3:ListBucketVersions"],
            [bucket_arn],
            {"StringLike": {"s3:prefix": f"{work_root(workload)}jobs/*"}},
        ),
    ]


def keep_usage(*, bucket_arn: str, workload: str) -> iam.PolicyStatement:
    """Allow writing what was measured of the workload's jobs."""
    return allow("KeepUsage", ["s3:PutObject"], [f"{bucket_arn}/{measured_prefix(workload)}*"])


def tell_of_jobs(*, deployment: str, workload: str) -> iam.PolicyStatement:
    """Allow sending events of the workload's jobs, and no event of another source or name.

    A request has several events, so a condition holds of them all or not (Service Authorization
    Reference, Amazon EventBridge: both keys are lists). None of them comes without these values.
    """
    bus = f"arn:{Aws.PARTITION}:events:{Aws.REGION}:{Aws.ACCOUNT_ID}:event-bus/default"
    wanted = {
        "events:source": [event_source(deployment, workload)],
        "events:detail-type": list(DETAIL_TYPES),
    }
    return allow("TellOfJobs", ["events:PutEvents"], [bus], {"ForAllValues:StringEquals": wanted})


def read_code(*, archives_arn: str) -> iam.PolicyStatement:
    """Allow reading the code archives of one workload, one a release, and nothing beside them."""
    return allow("ReadCode", ["s3:GetObject"], [archives_arn], OF_THIS_ACCOUNT)


def read_folders(*, bucket_arn: str, workload: str) -> iam.PolicyStatement:
    """Allow reading what `spindown run` has sent for this workload."""
    return allow("ReadFolders", ["s3:GetObject"], [f"{bucket_arn}/{folder_prefix(workload)}*"])


def read_kit(*, archives_arn: str) -> iam.PolicyStatement:
    """Allow reading the kits that instances install themselves from, one a release."""
    return allow("ReadKit", ["s3:GetObject"], [archives_arn], OF_THIS_ACCOUNT)


def open_sessions(regions: Sequence[str]) -> iam.PolicyStatement:
    """Allow what the agent of Session Manager does; these actions take no resource.

    Source: AWS Systems Manager User Guide, "Add Session Manager permissions to an existing IAM
    role".
    """
    return see(
        "OpenSessions",
        [
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ],
        regions=regions,
    )


def read_declared(uris: Sequence[str]) -> list[iam.PolicyStatement]:
    """Allow reading a workload's inputs and models, each ``s3://bucket/prefix``.

    One without a slash at its end is an object, or a folder: no key that only begins alike.
    """
    places = [parse_location(uri) for uri in uris]
    if not places:
        return []
    prefixes: dict[str, list[str]] = {}
    for place in places:
        prefixes.setdefault(place.bucket, []).append(f"{literal(place.below)}*")
    objects = [
        f"arn:{Aws.PARTITION}:s3:::{place.bucket}/{key}"
        for place in places
        for key in (
            *([] if place.key == place.below else [literal(place.key)]),
            f"{literal(place.below)}*",
        )
    ]
    return [
        allow("ReadInputs", ["s3:GetObject"], objects),
        *(
            allow(
                f"ListInputs{number}",
                ["s3:ListBucket"],
                [f"arn:{Aws.PARTITION}:s3:::{bucket}"],
                {"StringLike": {"s3:prefix": keys}},
            )
            for number, (bucket, keys) in enumerate(sorted(prefixes.items()), 1)
        ),
    ]


def pull_image(image: str | None) -> list[iam.PolicyStatement]:
    """Allow pulling one repository of Amazon ECR; an image that is elsewhere needs no statement.

    GetAuthorizationToken takes no resource (Service Authorization Reference, Amazon ECR).
    """
    registry = ecr_registry(image or "")
    if image is None or registry is None:
        return []
    account, _, _, region, *_ = registry.split(".")
    repository = re.split(r"[:@]", image.removeprefix(f"{registry}/"))[0]
    arn = f"arn:{Aws.PARTITION}:ecr:{region}:{account}:repository/{repository}"
    return [
        see("SignInToRegistry", ["ecr:GetAuthorizationToken"], regions=[region]),
        allow("PullImage", ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"], [arn]),
    ]


def read_secrets(
    secrets: Sequence[str], *, own_key: str | None = None
) -> list[iam.PolicyStatement]:
    """Allow reading secrets, each by its name; ``own_key``, the account's, may encrypt them.

    Secrets Manager adds six characters of its own to the ARN of a secret (AWS Secrets Manager
    User Guide, "What's in a Secrets Manager secret?").
    """
    parameters = [parameter(one) for one in secrets if is_parameter(one)]
    managed = [
        one if one.startswith("arn:") else regional("secretsmanager", f"secret:{one}-??????")
        for one in secrets
        if not is_parameter(one)
    ]
    return [
        *([allow("ReadParameters", ["ssm:GetParameter"], parameters)] if parameters else []),
        *([allow("ReadSecrets", ["secretsmanager:GetSecretValue"], managed)] if managed else []),
        *(_decrypt("DecryptSecrets", [own_key], _VAULTS) if own_key and secrets else []),
    ]


def use_keys(arns: Sequence[str]) -> list[iam.PolicyStatement]:
    """Allow decrypting what a workload reads, through the services that it reads from."""
    return _decrypt("UseKeys", arns, ("s3", *_VAULTS)) if arns else []


#: Services that keep secrets.
_VAULTS = ("secretsmanager", "ssm")


def _decrypt(sid: str, arns: Sequence[str], services: Sequence[str]) -> list[iam.PolicyStatement]:
    regions = {arn.split(":")[3] for arn in arns}
    through = sorted(f"{one}.{region}.amazonaws.com" for one in services for region in regions)
    return [allow(sid, ["kms:Decrypt"], arns, {"StringEquals": {"kms:ViaService": through}})]


def keep_own_rows(*, table_arn: str, workload: str) -> list[iam.PolicyStatement]:
    """Allow using the rows of the worker's own workload in the ledger.

    It writes what workers tell, and reads what the control plane has decided and what is past.
    """
    return [
        allow(
            "KeepOwnRows",
            [*READ_ROWS, "dynamodb:DeleteItem", "dynamodb:UpdateItem"],
            [table_arn],
            within(row.worker_partition(workload)),
        ),
        allow(
            "ReadPolicy",
            ["dynamodb:GetItem"],
            [table_arn],
            within(row.control_partition(workload)),
        ),
        allow(
            "ReadOwnHistory",
            ["dynamodb:GetItem"],
            [table_arn],
            within(row.history_partition(workload)),
        ),
    ]
