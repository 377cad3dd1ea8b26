"""What the functions may do.

A function launches workers only from our templates, into our subnets and with our tag. A launch is
two actions of the caller: CreateFleet, and RunInstances within it. EC2 checks both for each thing
that they use or make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from spindown.contract import tag
from spindown.contract.learned_size import PREFIX as SIZES
from spindown.contract.learned_size import sizes_key
from spindown.contract.location import work_root
from spindown.contract.name import queue_name, resource_name
from spindown.contract.queue import SHAPES, queue_of_shape
from spindown.contract.row import control_partition, worker_partition
from spindown.contract.settings import (
    deployment_parameter,
    live_parameter,
    outpost_parameter,
    workload_parameter,
)
from spindown.contract.usage import MEASURED, PREFIX
from spindown.domain.offer import NEURON_MAKER, InstanceRequirements, pricing_region
from spindown.infra.iam.statement import (
    CHANGE_ROWS,
    READ_EACH,
    READ_FEW,
    READ_ROWS,
    allow,
    parameter,
    public,
    regional,
    see,
    within,
)
from spindown.infra.shared.resources import INSTANCE_INDEX


def keep_ledger(*, table_arn: str) -> iam.PolicyStatement:
    """Allow reading and changing the whole ledger and its index."""
    return allow(
        "KeepLedger",
        sorted({*READ_ROWS, READ_EACH, *READ_FEW, *CHANGE_ROWS}),
        [table_arn, f"{table_arn}/index/{INSTANCE_INDEX}"],
    )


def read_ledger(*, table_arn: str) -> iam.PolicyStatement:
    """Allow reading all live rows of a workload, and so what each day cost."""
    return allow("ReadLedger", [READ_EACH, *READ_FEW], [table_arn])


def keep_notes(*, table_arn: str) -> iam.PolicyStatement:
    """Allow keeping which alerts were sent, and when each queue was looked through."""
    actions = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:UpdateItem"]
    return allow("KeepNotes", actions, [table_arn], within(control_partition("*")))


def tell_people(*, topic_arn: str) -> iam.PolicyStatement:
    """Allow sending people what only a person can solve."""
    return allow("TellPeople", ["sns:Publish"], [topic_arn])


def read_settings(*, deployment: str) -> iam.PolicyStatement:
    """Allow reading the deployment's parameters, live edits among them.

    The statement does not name the workloads: a policy has no room for many of them.
    """
    names = [
        deployment_parameter(deployment),
        workload_parameter(deployment, "*"),
        live_parameter(deployment, "*"),
    ]
    return allow("ReadSettings", ["ssm:GetParameters"], [parameter(name) for name in names])


def bake_images(*, deployment: str) -> list[iam.PolicyStatement]:
    """Allow starting the pipelines of a deployment, and reading what they have made.

    The first build of an account creates Image Builder's own role (Service Authorization Reference,
    "Actions defined by Amazon EC2 Image Builder", dependent actions).
    """
    ours = resource_name(deployment, "*")
    path = "aws-service-role/imagebuilder.amazonaws.com/AWSServiceRoleForImageBuilder"
    return [
        allow(
            "BakeImages",
            ["imagebuilder:GetImagePipeline", "imagebuilder:StartImagePipelineExecution"],
            [regional("imagebuilder", f"image-pipeline/{ours}")],
        ),
        allow("SeeImages", ["imagebuilder:GetImage"], [regional("imagebuilder", f"image/{ours}")]),
        allow(
            "MakeBuilderRole",
            ["iam:CreateServiceLinkedRole"],
            [f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{path}"],
            {"StringEquals": {"iam:AWSServiceName": "imagebuilder.amazonaws.com"}},
        ),
    ]


def see_queues(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Allow reading the depth of queues."""
    return allow("SeeQueues", ["sqs:GetQueueAttributes"], queue_arns)


def requeue_jobs(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Allow returning the jobs of an ended worker to the queue."""
    return allow("RequeueJobs", ["sqs:ChangeMessageVisibility"], queue_arns)


def route_jobs(
    *,
    queue_arns: Sequence[str],
    shapes_arns: Sequence[str],
    dead_letters_arns: Sequence[str],
    tagged: bool,
) -> list[iam.PolicyStatement]:
    """Allow moving the messages of workloads to the queues of their shapes, which it makes.

    SQS asks for the right to tag where a queue is made with tags (Amazon SQS API Reference,
    "CreateQueue").
    """
    made = ["sqs:CreateQueue", *(["sqs:TagQueue"] if tagged else [])]
    taken = ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")
    return [
        # Also from a shape that the policy no longer comes to; and to where it was, if it stays.
        allow("TakeMessages", [f"sqs:{action}" for action in taken], [*queue_arns, *shapes_arns]),
        allow("RouteMessages", made, shapes_arns),
        allow("GiveUpMessages", ["sqs:GetQueueAttributes", "sqs:SendMessage"], dead_letters_arns),
    ]


def keep_shapes(*, table_arn: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Allow reading policies, and listing which shapes are in use."""
    partitions = [control_partition(name) for name in workloads]
    actions = [*READ_ROWS, "dynamodb:UpdateItem"]
    return allow("KeepShapes", actions, [table_arn], within(*partitions))


def keep_bodies(*, bucket_arn: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Allow storing what messages have no room for, and reading it."""
    keys = ("bodies/*.json", "message")
    objects = [f"{bucket_arn}/{work_root(name)}jobs/*/{key}" for name in workloads for key in keys]
    return allow("KeepBodies", ["s3:GetObject", "s3:PutObject"], objects)


def give_up_jobs(*, bucket_arn: str, workloads: Sequence[str]) -> list[iam.PolicyStatement]:
    """Allow seeing which sizes are on sale, and failing the jobs that need another."""
    manifests = [f"{bucket_arn}/{work_root(name)}jobs/*/manifest.json" for name in workloads]
    return [
        allow("SeeOffers", ["s3:GetObject"], [f"{bucket_arn}/offers/*"]),
        allow("GiveUpJobs", ["s3:GetObject", "s3:PutObject"], manifests),
    ]


def wake(name: str, *, deployment: str) -> iam.PolicyStatement:
    """Allow invoking another function of the deployment."""
    function = regional("lambda", f"function:{resource_name(deployment, name)}")
    return allow(f"Wake{name.capitalize()}", ["lambda:InvokeFunction"], [function])


def remove_queues(*, deployment: str) -> iam.PolicyStatement:
    """Allow deleting the queues of shapes that nobody uses, also of a workload that has left."""
    shapes = queue_of_shape(queue_name(deployment, "*"), SHAPES)
    return allow("RemoveQueues", ["sqs:DeleteQueue"], [regional("sqs", shapes)])


def find_shapes(*, table_arn: str) -> iam.PolicyStatement:
    """Allow reading which shapes have queues."""
    return allow("FindShapes", ["dynamodb:Query"], [table_arn], within(control_partition("*")))


def see_leases(*, table_arn: str, workloads: Sequence[str] = ("*",)) -> iam.PolicyStatement:
    """Allow reading whether a worker holds a job."""
    partitions = [worker_partition(name) for name in workloads]
    return allow("SeeLeases", ["dynamodb:GetItem"], [table_arn], within(*partitions))


def count_lost(
    *, bucket_arn: str, table_arn: str, queue_arns: Sequence[str]
) -> list[iam.PolicyStatement]:
    """Allow counting the jobs that have no message; ``queue_arns``: dead-letter queues too."""
    keys = ("batches/*.json", "jobs/*/manifest.json")
    return [
        allow("SeeJobs", ["s3:GetObject"], [f"{bucket_arn}/workloads/*/{key}" for key in keys]),
        see_leases(table_arn=table_arn),
        allow("CountMessages", ["sqs:GetQueueAttributes"], queue_arns),
    ]


def look_at_batches(*, bucket_arn: str, deployment: str) -> list[iam.PolicyStatement]:
    """Allow seeing how far batches are, and starting or cancelling those that wait for others.

    The statements do not name the workloads: a policy has no room for many of them. So they allow
    more, since IAM's ``*`` matches a slash too: such keys below what items leave. No code asks.
    """

    def objects(*keys: str) -> list[str]:
        return [f"{bucket_arn}/{work_root('*')}{key}" for key in keys]

    manifests = "jobs/*/manifest.json"
    read = objects("batches/*.json", "submitted/*.jsonl", manifests)
    queues = regional("sqs", queue_name(deployment, "*"))
    return [
        allow("FollowBatches", ["s3:GetObject"], read),
        allow("CancelBatches", ["s3:PutObject"], objects(manifests)),
        allow("CloseBatches", ["s3:DeleteObject"], objects("open/*")),
        allow("StartBatches", ["sqs:SendMessage"], [queues]),
    ]


def renew_messages(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Allow replacing messages by copies before SQS deletes them."""
    actions = ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")
    return allow("RenewMessages", [f"sqs:{action}" for action in actions], queue_arns)


def keep_items(*, bucket_arn: str) -> iam.PolicyStatement:
    """Allow storing the items for which the copy of a message has no room."""
    return allow("KeepBodies", ["s3:PutObject"], [f"{bucket_arn}/workloads/*/jobs/*/bodies/*.json"])


def compact_usage(*, bucket_arn: str) -> list[iam.PolicyStatement]:
    """Allow making tables of what workers have measured."""
    return [
        allow("ReadMeasured", ["s3:GetObject"], [f"{bucket_arn}/{MEASURED}*"]),
        allow("KeepUsage", ["s3:PutObject"], [f"{bucket_arn}/{PREFIX}*"]),
    ]


def learn_sizes(*, bucket_arn: str) -> iam.PolicyStatement:
    """Allow keeping what is learned of the sizes of jobs."""
    return allow("LearnSizes", ["s3:GetObject", "s3:PutObject"], [f"{bucket_arn}/{SIZES}*"])


def read_sizes(*, bucket_arn: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Allow reading what is learned of the sizes of jobs."""
    keys = [f"{bucket_arn}/{sizes_key(name)}" for name in workloads]
    return allow("ReadSizes", ["s3:GetObject"], keys)


def keep_offers(*, bucket_arn: str) -> iam.PolicyStatement:
    """Allow renewing the catalogue; its old parts replace what cannot be read now."""
    return allow("KeepOffers", ["s3:GetObject", "s3:PutObject"], [f"{bucket_arn}/offers/*"])


def keep_decisions(*, bucket_arn: str) -> iam.PolicyStatement:
    """Allow storing decisions."""
    return allow("KeepDecisions", ["s3:PutObject"], [f"{bucket_arn}/decisions/*"])


def see_instances() -> iam.PolicyStatement:
    """Allow reading which of our instances run, and why one ended."""
    return _see("SeeInstances", ["DescribeInstances", "DescribeSpotInstanceRequests"])


def find_instances() -> iam.PolicyStatement:
    """Allow reading which of our instances run."""
    return _see("FindInstances", ["DescribeInstances"])


def keep_reconcile_out(*, table_arn: str) -> iam.PolicyStatement:
    """Allow taking the lock of every workload, so that none reconciles."""
    return allow(
        "KeepReconcileOut", ["dynamodb:UpdateItem"], [table_arn], within(control_partition("*"))
    )


def see_prices() -> iam.PolicyStatement:
    """Allow reading spot prices."""
    return _see("SeePrices", ["DescribeSpotPriceHistory"])


def read_outposts(*, deployment: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Allow reading the parameters that describe an outpost."""
    names = [outpost_parameter(deployment, name) for name in workloads]
    return allow("ReadOutposts", ["ssm:GetParameters"], [parameter(name) for name in names])


def see_types() -> iam.PolicyStatement:
    """Allow reading instance types and the zones that offer them."""
    return _see("SeeTypes", ["DescribeInstanceTypeOfferings", "DescribeInstanceTypes"])


def see_market(*, home: str, regions: Sequence[str]) -> list[iam.PolicyStatement]:
    """Allow reading what the catalogue of offers is made of: types, zones, prices, quotas."""
    return [
        see_types(),
        see("SeeListPrices", ["pricing:GetProducts"], regions=[pricing_region(home)]),
        see("SeeQuotas", ["servicequotas:ListServiceQuotas"], regions=regions),
    ]


def end_workers(*, deployment: str, home: str) -> iam.PolicyStatement:
    """Allow terminating instances of this deployment: another home may have one of its name."""
    ours = {tag.DEPLOYMENT: deployment, tag.REGION: home}
    return allow(
        "EndWorkers",
        ["ec2:TerminateInstances"],
        [regional("ec2", "instance/*")],
        {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in ours.items()}},
    )


def _see(sid: str, actions: Sequence[str]) -> iam.PolicyStatement:
    """Allow reading EC2: these actions take no resource, so the region bounds them."""
    return see(sid, [f"ec2:{action}" for action in actions], regions=[Aws.REGION])


_LAUNCH = ["ec2:CreateFleet", "ec2:RunInstances"]


def use_parts(
    *,
    template_ids: Sequence[str],
    subnet_arns: Sequence[str],
    security_group_id: str,
    images: Sequence[str] = (),
    owners: Sequence[str] = (),
) -> list[iam.PolicyStatement]:
    """Allow using what a launch finds: templates, network, images.

    Images are AWS's and those of ``owners``. Where a parameter of ``images`` is a person's own,
    they are all of the account as well, and if no owners are named, anybody's. EC2 tells the owner
    to RunInstances, within CreateFleet too (Service Authorization Reference, Amazon EC2, "image").
    """
    image = public("ec2", "image/*")
    parts = [
        public("ec2", "snapshot/*"),
        regional("ec2", f"security-group/{security_group_id}"),
        *subnet_arns,
    ]
    ubuntu = [_CANONICAL] if any(one.startswith(_OF_CANONICAL) for one in images) else []
    known = ["amazon", *ubuntu, *owners, *([] if _are_known(images) else [Aws.ACCOUNT_ID])]
    is_bound = owners or _are_known(images)
    return [
        allow("LaunchFromTemplates", _LAUNCH, _templates(template_ids)),
        allow("LaunchWithParts", _LAUNCH, parts),
        allow("ChooseImages", ["ec2:CreateFleet"], [image]),
        allow(
            "LaunchImages",
            ["ec2:RunInstances"],
            [image],
            {"StringEquals": {"ec2:Owner": known}} if is_bound else None,
        ),
    ]


def use_baked(*, deployment: str, images: Sequence[str]) -> list[iam.PolicyStatement]:
    """Allow starting what was baked here, in each region, where not all of the account may be.

    Image Builder tags what it makes (``infra.image_stack``), and neither the functions nor who
    operates may tag an image.
    """
    ours = {"ec2:Owner": Aws.ACCOUNT_ID, f"aws:ResourceTag/{tag.DEPLOYMENT}": deployment}
    everywhere = f"arn:{Aws.PARTITION}:ec2:*::image/*"
    baked = allow("LaunchBaked", ["ec2:RunInstances"], [everywhere], {"StringEquals": ours})
    return [baked] if _are_known(images) else []


def _are_known(images: Sequence[str]) -> bool:
    """Tell whether no person writes where the parameters of images lead."""
    return all(one.startswith(_OWN_OR_AWS) for one in images)


#: The publisher of Ubuntu (Ubuntu on AWS, "Find Ubuntu images").
_CANONICAL = "099720109477"
_OF_CANONICAL = "/aws/service/canonical/"
#: Parameters that no person writes: of AWS, and of images that are baked here.
_OWN_OR_AWS = ("/aws/service/", "/imagebuilder/spindown/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What a workload's launches are made of, as far as IAM is asked about it."""

    workload: str
    template_ids: tuple[str, ...]
    #: Patterns of the instance types that may do, and of those that may not.
    types: tuple[str, ...]
    types_denied: tuple[str, ...]


#: Maker -> how the names of its instance types begin (Amazon EC2 Instance Types guide,
#: "Naming conventions": g and p are of GPUs, inf and trn of Inferentia and Trainium).
_TYPES_OF: Mapping[str, tuple[str, ...]] = {"NVIDIA": ("g*", "p*"), NEURON_MAKER: ("inf*", "trn*")}
_ANY: tuple[str, ...] = ("*",)


def bound_launches(
    workload: str, template_ids: Sequence[str], wanted: InstanceRequirements
) -> Launched:
    """Return what IAM can tell of a workload's launches, whatever the catalogue will say.

    It knows no number of instances, no price and no memory: those the scaler keeps to.
    """
    types = _ANY if wanted.allows_no_gpu else _TYPES_OF.get(wanted.gpu_manufacturer or "", _ANY)
    if wanted.instance_types is not None:
        types = tuple(sorted(wanted.instance_types))
    denied = [f"{family}.*" for family in sorted(wanted.families_denied)]
    return Launched(
        workload=workload,
        template_ids=tuple(template_ids),
        types=types,
        types_denied=(*([] if wanted.allow_bare_metal else ["*.metal*"]), *denied),
    )


def make_tagged(
    *, deployment: str, launched: Sequence[Launched], spot_too: bool, has_addresses: bool = True
) -> list[iam.PolicyStatement]:
    """Allow making what a launch makes; everything carries our tag from the start.

    An instance is of a type that its workload may have, bears the workload's name and the time
    after which anybody may end it, and gives no metadata without a token. Workloads that may have
    the same types share a statement: a policy has no room for one each.

    The launch within CreateFleet names its template, as the error of a refused one shows
    (github.com/aws/karpenter-provider-aws/issues/1488). So the statement can require our templates
    (Amazon EC2 User Guide, "Use launch templates to control launching").

    A spot request carries tags only where the account has some (``spot_too``): else the same
    template serves on-demand launches, and no tag is asked of it: EC2 makes a spot request only
    together with an instance, which carries the tag.

    Without public addresses (``has_addresses``) an interface that asks for one is refused. The
    template says so of each; a request that does not speak of it passes, since what EC2 then tells
    IAM is not documented.
    """
    instances = regional("ec2", "instance/*")
    beside = [regional("ec2", f"{kind}/*") for kind in ("network-interface", "volume")]
    private = {} if has_addresses else {"BoolIfExists": {"ec2:AssociatePublicIpAddress": "false"}}
    made = [regional("ec2", "fleet/*"), instances, *beside]
    ours = {f"aws:RequestTag/{tag.DEPLOYMENT}": deployment}
    spot = regional("ec2", "spot-instances-request/*")
    tagged = [*made, spot] if spot_too else made
    launching = {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}
    return [
        allow("RequestTaggedFleets", ["ec2:CreateFleet"], made, {"StringEquals": ours}),
        allow("RequestSpot", _LAUNCH[:1] if spot_too else _LAUNCH, [spot]),
        allow(
            "LaunchTaggedParts",
            ["ec2:RunInstances"],
            [*beside, spot] if spot_too else beside,
            {"StringEquals": ours, **private},
        ),
        *(
            allow(
                f"LaunchTaggedInstances{'' if number == 1 else number}",
                ["ec2:RunInstances"],
                [instances],
                _bounds(deployment, alike),
            )
            for number, alike in enumerate(_group(launched), 1)
        ),
        allow("TagLaunches", ["ec2:CreateTags"], tagged, {"StringEquals": {**ours, **launching}}),
    ]


def _group(launched: Sequence[Launched]) -> list[list[Launched]]:
    """Return the workloads by the types that they may have."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Launched]] = {}
    for one in launched:
        alike.setdefault((one.types, one.types_denied), []).append(one)
    return list(alike.values())


def _bounds(deployment: str, alike: Sequence[Launched]) -> dict[str, dict[str, Any]]:
    """Return the condition on an instance of these workloads, which may have the same types."""
    first = alike[0]
    templates = [id_ for one in alike for id_ in one.template_ids]
    return {
        "StringEquals": {
            f"aws:RequestTag/{tag.DEPLOYMENT}": deployment,
            f"aws:RequestTag/{tag.WORKLOAD}": [one.workload for one in alike],
            "ec2:MetadataHttpTokens": "required",
        },
        "Null": {f"aws:RequestTag/{tag.LEASE_UNTIL}": "false"},
        "ArnEquals": {"ec2:LaunchTemplate": _templates(templates)},
        "StringLike": {"ec2:InstanceType": list(first.types)},
        **(
            {"StringNotLike": {"ec2:InstanceType": list(first.types_denied)}}
            if first.types_denied
            else {}
        ),
    }


def pass_roles(*, worker_role_arns: Sequence[str]) -> list[iam.PolicyStatement]:
    """Allow passing worker roles to EC2, and creating EC2's own role for spot.

    The first spot request of an account creates the latter.
    """
    path = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return [
        allow(
            "PassWorkerRoles",
            ["iam:PassRole"],
            worker_role_arns,
            {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        ),
        allow(
            "MakeSpotRole",
            ["iam:CreateServiceLinkedRole"],
            [f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{path}"],
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
    ]


def encrypt_disks(key_arn: str | None) -> list[iam.PolicyStatement]:
    """Allow EC2 to encrypt disks by the account's own key, on behalf of who launches.

    Source: Amazon EBS User Guide, "Amazon EBS encryption", "Permissions for IAM users". A launch on
    spot is made by EC2's role for spot, to which the key's owner gives the same.
    """
    if key_arn is None:
        return []
    through = {"StringEquals": {"kms:ViaService": f"ec2.{key_arn.split(':')[3]}.amazonaws.com"}}
    used = [
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:GenerateDataKeyWithoutPlaintext",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    ]
    for_aws = {**through, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        allow("EncryptDisks", used, [key_arn], through),
        allow("LendKeyToDisks", ["kms:CreateGrant"], [key_arn], for_aws),
    ]


def resolve_images(parameters: Sequence[str]) -> iam.PolicyStatement:
    """Allow reading the parameters of images, which EC2 reads as the caller.

    EC2's guide says GetParameters; CreateFleet has been seen to ask for GetParameter
    (github.com/kent8192/reinhardt-web/issues/2027).
    """
    arns = [parameter(name) for name in sorted(set(parameters))]
    return allow("ResolveImages", ["ssm:GetParameter", "ssm:GetParameters"], arns)


def _templates(template_ids: Sequence[str]) -> list[str]:
    return [regional("ec2", f"launch-template/{one}") for one in template_ids]
