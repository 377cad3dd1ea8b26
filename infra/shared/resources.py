"""The resources that workloads and functions share: ledger table, bucket, topic, log groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aws_cdk import Aws, Duration, IStackSynthesizer, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spindown.config import DeploymentConfig
from spindown.contract.job.batch import BATCHES, OPEN, SUBMITTED
from spindown.contract.location import work_root
from spindown.contract.name import resource_name
from spindown.contract.usage import MEASURED, MEASURED_DAYS
from spindown.infra.shared.archive import KitArchive
from spindown.infra.shared.network import Network
from spindown.infra.shared.stack import DeploymentStack

#: The index that finds the worker row of an instance. It holds keys only; a consistent read of the
#: row follows.
INSTANCE_INDEX = "instance"

#: Where Athena writes the answers to saved queries.
ANSWERS = "athena/"


class LedgerTable(Construct):
    """The table ``{deployment}--ledger``: live control state and recent history.

    It is deleted with the stack: DynamoDB keeps a backup of a deleted table for 35 days where
    point-in-time recovery was on (Amazon DynamoDB Developer Guide, "Point-in-time recovery").
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: str) -> None:
        super().__init__(scope, construct_id)
        key = DeploymentStack.holding(self).find_key()
        encryption = dynamodb.TableEncryptionV2
        self.table = dynamodb.TableV2(
            self,
            "Table",
            table_name=resource_name(deployment, "ledger"),
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing=dynamodb.Billing.on_demand(),
            encryption=encryption.customer_managed_key(key)
            if key
            else encryption.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires",
            deletion_protection=DeploymentStack.holding(self).deployment.protect or None,
            removal_policy=RemovalPolicy.DESTROY,
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name=INSTANCE_INDEX,
                    partition_key=dynamodb.Attribute(
                        name="instance_id", type=dynamodb.AttributeType.STRING
                    ),
                    # Workers may name any instance in rows of any key: only its own key is asked.
                    sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
                    projection_type=dynamodb.ProjectionType.KEYS_ONLY,
                )
            ],
        )


class DeploymentBucket(Construct):
    """The private, versioned bucket: manifests, results, checkpoints, usage, decisions, offers.

    It stays when the stack is deleted. Versions serve the manifest: where the latest version is
    truncated, the one before it is read. Every commit makes a version, so old versions expire.
    """

    def __init__(self, scope: Construct, construct_id: str, *, workloads: Sequence[str]) -> None:
        super().__init__(scope, construct_id)
        key = DeploymentStack.holding(self).find_key()
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            # With no retention nothing is locked, unless somebody locks an object by itself.
            object_lock_enabled=DeploymentStack.holding(self).deployment.object_lock or None,
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            # Else each object is a request to KMS.
            bucket_key_enabled=True if key else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire-old-versions",
                    noncurrent_version_expiration=Duration.days(30),
                    expired_object_delete_marker=True,
                ),
                s3.LifecycleRule(
                    id="abort-torn-uploads",
                    abort_incomplete_multipart_upload_after=Duration.days(7),
                ),
                s3.LifecycleRule(
                    id="expire-decisions", prefix="decisions/", expiration=Duration.days(90)
                ),
                # A query can be asked again.
                s3.LifecycleRule(id="expire-answers", prefix=ANSWERS, expiration=Duration.days(7)),
                # By then it is in the tables.
                s3.LifecycleRule(
                    id="expire-measured",
                    prefix=MEASURED,
                    expiration=Duration.days(MEASURED_DAYS),
                ),
                *self._expire_work(),
            ],
        )
        self._let_nobody_replace_batches(workloads)
        self._tell_of_access()

    def _tell_of_access(self) -> None:
        """Log access and tell of objects, where the account's rules ask for it."""
        deployment = DeploymentStack.holding(self).deployment
        bucket = cast("s3.CfnBucket", self.bucket.node.default_child)
        if deployment.access_log_bucket is not None:
            bucket.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
                destination_bucket_name=deployment.access_log_bucket,
                log_file_prefix=f"{deployment.name}/",
            )
        if deployment.bucket_events:
            # What CDK itself makes for this is a function that edits the bucket.
            on = s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
            bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
                event_bridge_configuration=on
            )

    def _expire_work(self) -> list[s3.LifecycleRule]:
        kept = DeploymentStack.holding(self).deployment.work_retention
        if kept is None:
            return []
        return [
            s3.LifecycleRule(
                id="expire-work", prefix="workloads/", expiration=Duration.days(kept.days)
            )
        ]

    def _let_nobody_replace_batches(self, workloads: Sequence[str]) -> None:
        """Deny a write over the index, the mark or the messages of a batch, whoever it is of.

        So of two submits of one name the first counts, and a submitter, who may write below these
        prefixes, changes nothing of another's batch (Amazon S3 User Guide, "Enforce conditional
        writes on Amazon S3 buckets"). An upload in parts and a copy carry no such header, and are
        denied as well.

        Each workload is named: IAM's ``*`` matches a slash too, and an item may leave a file in a
        folder ``open``.
        """
        prefixes = [
            f"{work_root(name)}{part}" for name in workloads for part in (BATCHES, OPEN, SUBMITTED)
        ]
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="WriteBatchesOnce",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["s3:PutObject"],
                resources=[self.bucket.arn_for_objects(f"{prefix}*") for prefix in prefixes],
                conditions={"Null": {"s3:if-none-match": "true"}},
            )
        )


def topic_name(deployment: str) -> str:
    """Return the name of the topic of each region of a deployment that has one."""
    return resource_name(deployment, "alarms")


#: Regions that are on in every account and from before March 2019; SNS counts Osaka to the others
#: (Amazon SNS Developer Guide, "Cross-region delivery").
_FIRST_REGIONS = frozenset(
    {
        *("ap-northeast-1", "ap-northeast-2", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
        *("ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3"),
        *("sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2"),
    }
)


def teller(region: str, *, home: str) -> str:
    """Return as whom SNS in a region calls a function at home; "": it does not.

    A topic of a region that an account must opt in to is another principal, and none reaches a
    function in such a region from outside (the same guide, "Prerequisites for integrating Amazon
    SNS with Lambda functions across regions").
    """
    if region == home or {region, home} <= _FIRST_REGIONS:
        return "sns.amazonaws.com"
    return f"sns.{region}.amazonaws.com" if home in _FIRST_REGIONS else ""


class AlarmTopic(Construct):
    """The topic ``{deployment}--alarms``, to which CloudWatch's alarms and the functions publish.

    AWS asks the address of a subscription to confirm it.

    Without a key of the account's own the topic is not encrypted. CloudWatch publishes to an
    encrypted topic only with such a key, which costs 1 USD a month; and the texts hold names and
    settings, no secret.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, deployment: str, email: str | None
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=topic_name(deployment),
            display_name=f"Spindown {deployment}",
            master_key=DeploymentStack.holding(self).find_key(),
            enforce_ssl=True,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="TakeAlarms",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        if email is not None:
            sns.Subscription(
                self,
                "Email",
                topic=self.topic,
                protocol=sns.SubscriptionProtocol.EMAIL,
                endpoint=email,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResources:
    """What every workload and every function of the core stack uses."""

    deployment: DeploymentConfig
    ledger: LedgerTable
    store: DeploymentBucket
    network: Network
    topic: AlarmTopic
    #: What instances install themselves from.
    kit: KitArchive
    #: Where the stack's assets are added.
    assets: IStackSynthesizer


#: Of queues that hold work. Else whoever makes a queue in the account could send messages here
#: without the right to, as its dead letters.
NO_DEAD_LETTERS = sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.DENY_ALL)
#: Of queues where messages end; it is SQS's default. Written out, it tells rules of an organisation
#: that such a queue needs none of its own for dead letters (CT.SQS.PR.1).
ANY_DEAD_LETTERS = sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.ALLOW_ALL)


def encrypt_queue(scope: Construct) -> Mapping[str, Any]:
    """Return what a queue is encrypted by, as CDK's queue takes it."""
    key = DeploymentStack.holding(scope).find_key()
    if key is None:
        return {"encryption": sqs.QueueEncryption.SQS_MANAGED}
    return {"encryption": sqs.QueueEncryption.KMS, "encryption_master_key": key}


def keep_failed_events(scope: Construct, *, name: str | None = None) -> sqs.Queue:
    """Add the queue of events that came to nothing; with no name CloudFormation chooses one."""
    return sqs.Queue(
        scope,
        "FailedEvents",
        **encrypt_queue(scope),
        queue_name=name,
        enforce_ssl=True,
        redrive_allow_policy=ANY_DEAD_LETTERS,
        retention_period=Duration.days(14),
        removal_policy=RemovalPolicy.DESTROY,
    )


def take_events(queue: sqs.Queue, sid: str, rules: Sequence[events.CfnRule]) -> None:
    """Let these rules, and no other, send events to a queue."""
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            sid=sid,
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            resources=[queue.queue_arn],
            conditions={"ArnEquals": {"aws:SourceArn": [rule.attr_arn for rule in rules]}},
        )
    )


def make_log(scope: Construct, name: str) -> logs.LogGroup:
    """Add a log group that is deleted with the stack, unless logs are kept.

    One that is kept is still removed if its first deploy fails, or the next try would find it.

    Metrics of functions and workers come from the same lines (EMF).
    """
    stack = DeploymentStack.holding(scope)
    group = logs.LogGroup(
        scope,
        "Log",
        log_group_name=name,
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        if stack.deployment.keep_logs
        else RemovalPolicy.DESTROY,
    )
    made = group.node.default_child
    assert isinstance(made, logs.CfnLogGroup)  # noqa: S101 - what CDK makes of it
    # In days: CDK's own words for them are another list.
    made.retention_in_days = stack.deployment.log_retention.days
    # The key's own policy lets CloudWatch Logs use it, which no template here writes.
    made.kms_key_id = stack.key_arn
    return group
