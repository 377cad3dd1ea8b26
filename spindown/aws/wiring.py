"""The one place that builds ports on AWS, from one session, each client at its first use.

Region, credentials and endpoints come from the session, and so from the standard AWS
configuration; nothing here reads the environment by itself.
"""

import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError

from spindown.aws.alarm import CloudWatchAlarms
from spindown.aws.clock import SystemClock
from spindown.aws.cloudwatch import (
    CloudWatchTrafficHistory,
    LoggedMetricSink,
    LogStream,
    PrintedMetricSink,
)
from spindown.aws.dashboard import CloudWatchDashboards
from spindown.aws.dynamodb import DynamoTable
from spindown.aws.ec2 import Ec2Compute
from spindown.aws.eventbridge import EventBridgeBus
from spindown.aws.fault import FisInjector
from spindown.aws.function import LambdaRehearser, LambdaWaker, LambdaWebhook
from spindown.aws.image_builder import AwsImageBuilder
from spindown.aws.imds import ImdsMetadata
from spindown.aws.market import Ec2Market
from spindown.aws.s3 import S3InputSource, S3ObjectStore
from spindown.aws.session import CoreSession
from spindown.aws.sns import SnsTopic
from spindown.aws.sqs import SqsJobQueue, find_queue
from spindown.aws.ssm import SsmSettingsStore
from spindown.aws.stack import CloudFormationStacks
from spindown.contract.row import SCALER_TIMEOUT
from spindown.domain.offer import pricing_region
from spindown.error import BadInput
from spindown.port import Clock

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_service_quotas import ServiceQuotasClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

    from spindown.aws.account import AwsAccount
    from spindown.aws.log import CloudWatchLog
    from spindown.aws.secret import SecretSource

C = TypeVar("C")

#: Seconds. A call is made at most three times, so a function must outlive three of these.
CONNECT_TIMEOUT = 3
READ_TIMEOUT = 10
#: CreateFleet answers only when it has tried its overrides.
EC2_READ_TIMEOUT = 20
#: Longer than the longest poll, 20 s.
SQS_READ_TIMEOUT = 30
S3_READ_TIMEOUT = 30
#: Slots, heartbeats and prefetch of one worker use a client at the same time.
CONNECTIONS = 32


class Aws:
    """Ports on AWS. Safe to use from several threads.

    Args:
        session: what makes the clients; a store that moves files needs one of boto3's.
    """

    def __init__(self, session: "boto3.Session | CoreSession") -> None:
        self._session = session
        self._clock = SystemClock()
        self._lock = threading.RLock()
        self._clients: dict[tuple[str, str | None], object] = {}

    @property
    def clock(self) -> Clock:
        """Return the clock that the ports use."""
        return self._clock

    @property
    def region(self) -> str | None:
        """Return the session's own region."""
        return self._session.region_name

    def queue(self, url: str) -> SqsJobQueue:
        """Return the queue at a URL."""
        return SqsJobQueue(self._sqs(), url, self._clock)

    def find_queue(self, name: str) -> tuple[str, Mapping[str, str]]:
        """Return the URL and the tags of a queue, by its name (raises NotFound)."""
        return find_queue(self._sqs(), name)

    def object_store(self, bucket: str, root: str = "") -> S3ObjectStore:
        """Return a bucket, or the part of it below ``root``."""
        return S3ObjectStore(self._s3(), bucket, root)

    def input_source(self, declared: Sequence[str]) -> S3InputSource:
        """Return the inputs under the declared ``s3://bucket/prefix``."""
        return S3InputSource(self._s3(), declared)

    def table(self, name: str) -> DynamoTable:
        """Return a table."""
        return DynamoTable(self._dynamodb(), name)

    def compute(self) -> Ec2Compute:
        """Return EC2 in every region."""
        return Ec2Compute(self._ec2)

    def market(self) -> Ec2Market:
        """Return what EC2 offers in every region."""
        return Ec2Market(self._ec2, self._pricing, self._service_quotas, self._clock)

    def account(self) -> "AwsAccount":
        """Return the account that the credentials belong to."""
        from spindown.aws.account import FREE_TIER_REGION, AwsAccount, Clients  # noqa: PLC0415 - the functions do without it

        return AwsAccount(
            Clients(
                sts=lambda: self._make("sts"),
                iam=lambda: self._make("iam"),
                free_tier=lambda: self._make("freetier", FREE_TIER_REGION),
                secrets=lambda region: self._make("secretsmanager", region),
                keys=lambda region: self._make("kms", region),
                schedules=lambda region: self._make("scheduler", region),
                rules=lambda region: self._make("events", region),
                alarms=lambda region: self._make("cloudwatch", region),
                topics=lambda region: self._make("sns", region),
                functions=lambda region: self._make("lambda", region),
                quotas=self._service_quotas,
                ssm=lambda region: self._make("ssm", region),
                ec2=self._ec2,
                s3=self._s3,
            )
        )

    def traffic(self) -> CloudWatchTrafficHistory:
        """Return what CloudWatch remembers of queues in the session's own region."""
        return CloudWatchTrafficHistory(self._make("cloudwatch"), self._clock)

    def job_events(self) -> EventBridgeBus:
        """Return the default bus."""
        return EventBridgeBus(self._make("events"))

    def secrets(self) -> "SecretSource":
        """Return what the secrets of a workload are read from."""
        from spindown.aws.secret import SecretSource  # noqa: PLC0415 - for workers only

        return SecretSource(self._ssm, lambda: self._make("secretsmanager"))

    def settings(self, deployment: str) -> SsmSettingsStore:
        """Return the settings of a deployment."""
        return SsmSettingsStore(self._ssm(), deployment, self._ssm)

    def waker(self, function: str) -> LambdaWaker:
        """Return what wakes a function: the one that ticks, or the one that routes."""
        return LambdaWaker(self._lambda, function)

    def webhook(self, function: str) -> LambdaWebhook:
        """Return what has the function of the webhook read its secret."""
        return LambdaWebhook(self._lambda, function)

    def rehearser(self, function: str) -> LambdaRehearser:
        """Return what has a scaler rehearse launches."""
        config = _config(int(SCALER_TIMEOUT.total_seconds()) + READ_TIMEOUT)
        return LambdaRehearser(
            lambda: self._once("lambda", "", lambda: self._session.client("lambda", config=config)),
            function,
        )

    def image_builder(self) -> AwsImageBuilder:
        """Return EC2 Image Builder."""
        return AwsImageBuilder(lambda: self._make("imagebuilder"))

    def faults(self) -> FisInjector:
        """Return what interrupts spot instances on purpose."""
        return FisInjector(lambda: self._make("fis"))

    def dashboards(self) -> CloudWatchDashboards:
        """Return the dashboards of the session's own region."""
        return CloudWatchDashboards(lambda: self._make("cloudwatch"))

    def alarms(self) -> CloudWatchAlarms:
        """Return what alarms say."""
        return CloudWatchAlarms(lambda: self._make("cloudwatch"))

    def stacks(self) -> CloudFormationStacks:
        """Return the stacks of CloudFormation in the session's own region."""
        return CloudFormationStacks(lambda: self._make("cloudformation"))

    def topic(self, arn: str) -> SnsTopic:
        """Return where people are told."""
        return SnsTopic(lambda: self._make("sns"), arn)

    def printed_metrics(self, stream: TextIO) -> PrintedMetricSink:
        """Return metrics as lines of a stream that Lambda carries to CloudWatch Logs."""
        return PrintedMetricSink(stream, self._clock)

    def log_stream(self, group: str, stream: str) -> LogStream:
        """Return a stream of CloudWatch Logs."""
        return LogStream(self._logs(), group, stream)

    def log_source(self, group: str) -> "CloudWatchLog":
        """Return a group of CloudWatch Logs, to be read."""
        from spindown.aws.log import CloudWatchLog  # noqa: PLC0415 - for people only

        return CloudWatchLog(self._logs(), group)

    def logged_metrics(self, stream: LogStream) -> LoggedMetricSink:
        """Return metrics as events of a log stream."""
        return LoggedMetricSink(stream, self._clock)

    def metadata(self, endpoint: str | None = None) -> ImdsMetadata:
        """Return the metadata of this instance, from another endpoint than the usual if given."""
        return ImdsMetadata(self._clock, endpoint)

    def _sqs(self) -> "SQSClient":
        config = _config(SQS_READ_TIMEOUT)
        return self._once("sqs", None, lambda: self._session.client("sqs", config=config))

    def _s3(self) -> "S3Client":
        config = _config(S3_READ_TIMEOUT)
        return self._once("s3", None, lambda: self._session.client("s3", config=config))

    def _dynamodb(self) -> "DynamoDBClient":
        config = _config()
        return self._once("dynamodb", None, lambda: self._session.client("dynamodb", config=config))

    def _ssm(self, region: str | None = None) -> "SSMClient":
        config = _config()
        return self._once(
            "ssm", region, lambda: self._session.client("ssm", region_name=region, config=config)
        )

    def _lambda(self) -> "LambdaClient":
        return self._once("lambda", None, lambda: self._session.client("lambda", config=_config()))

    def _logs(self) -> "CloudWatchLogsClient":
        return self._once("logs", None, lambda: self._session.client("logs", config=_config()))

    def _ec2(self, region: str) -> "EC2Client":
        config = _config(EC2_READ_TIMEOUT)
        return self._once(
            "ec2",
            region,
            lambda: self._session.client("ec2", region_name=region, config=config),
        )

    def _pricing(self) -> "PricingClient":
        region = pricing_region(self.region or "")
        return self._once(
            "pricing",
            region,
            lambda: self._session.client("pricing", region_name=region, config=_config()),
        )

    def _service_quotas(self, region: str) -> "ServiceQuotasClient":
        return self._once(
            "service-quotas",
            region,
            lambda: self._session.client("service-quotas", region_name=region, config=_config()),
        )

    def _make(self, service: str, region: str | None = None) -> Any:
        """Make a client that is used seldom, in the session's own region if none is given."""
        client: Any = self._session.client
        return self._once(
            service, region, lambda: client(service, region_name=region, config=_config())
        )

    def _once(self, service: str, region: str | None, make: Callable[[], C]) -> C:
        # Making a client is not thread-safe on a shared session; using one is.
        with self._lock:
            key = (service, region)
            if key not in self._clients:
                try:
                    with _without_collection():
                        self._clients[key] = make()
                except (BotoCoreError, ValueError) as exc:
                    where = region or self._session.region_name
                    remedy = f"fix it, or AWS_ENDPOINT_URL: {exc}"
                    raise BadInput("region", where, remedy) from exc
            return cast("C", self._clients[key])


@contextmanager
def _without_collection() -> Iterator[None]:
    """Leave the garbage collector out of it.

    A client's service model is tens of thousands of objects, none of them garbage; to look
    through them again and again takes a tenth of a function's start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _config(read_timeout: int = READ_TIMEOUT) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": 3},
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=read_timeout,
        max_pool_connections=CONNECTIONS,
    )
