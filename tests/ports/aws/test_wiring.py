"""How ports on AWS are put together."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import boto3

from spindown.aws.wiring import Aws
from spindown.port import (
    Clock,
    Compute,
    InputSource,
    JobQueue,
    Market,
    Metadata,
    MetricSink,
    ObjectStore,
    SettingsStore,
    Table,
)


class CountedSession(boto3.Session):
    """A session that remembers which clients it made."""

    def __init__(self) -> None:
        super().__init__(
            aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1"
        )
        self.made: list[tuple[str, str]] = []
        # Shadows the method, since its typed overloads cannot be written again here.
        self.client = self._client  # type: ignore[assignment]

    def _client(self, service: str, **options: object) -> object:
        found = boto3.Session.client(self, service, **options)  # type: ignore[call-overload]
        self.made.append((service, found.meta.region_name))
        return found


def test_makes_no_client_before_its_first_use() -> None:
    session = CountedSession()
    aws = Aws(session)
    aws.compute()
    aws.market()
    aws.metadata()

    assert session.made == []
    assert aws.region == "eu-west-1"


def test_makes_a_client_once_however_many_threads_ask() -> None:
    session = CountedSession()
    aws = Aws(session)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: aws.queue(f"https://sqs/{number}"), range(16)))
        list(threads.map(lambda number: aws.table(f"table-{number}"), range(16)))

    assert sorted(session.made) == [("dynamodb", "eu-west-1"), ("sqs", "eu-west-1")]


def test_asks_each_region_in_its_own(session: boto3.Session) -> None:
    counted = CountedSession()
    compute = Aws(counted).compute()
    for region in ("us-east-1", "eu-west-1", "us-east-1"):
        compute.instances(region=region, tags={"spindown:workload": "none"})

    assert counted.made == [("ec2", "us-east-1"), ("ec2", "eu-west-1")]


def test_waits_for_an_answer_longer_than_a_long_poll(aws: Aws) -> None:
    sqs: Any = aws.queue("https://sqs/q")._client.meta.config
    s3: Any = aws.object_store("bucket")._client.meta.config

    assert sqs.read_timeout > 20
    for config in (sqs, s3):
        assert config.retries == {"mode": "standard", "total_max_attempts": 3}
        assert config.connect_timeout <= 5


def test_every_adapter_is_its_port(aws: Aws, clock: Clock) -> None:
    queue: JobQueue = aws.queue("https://sqs/q")
    store: ObjectStore = aws.object_store("bucket")
    inputs: InputSource = aws.input_source(["s3://bucket/"])
    table: Table = aws.table("ledger")
    compute: Compute = aws.compute()
    market: Market = aws.market()
    settings: SettingsStore = aws.settings("prod")
    metrics: MetricSink = aws.logged_metrics(aws.log_stream("group", "stream"))
    metadata: Metadata = aws.metadata("http://127.0.0.1:1")

    assert all((queue, store, inputs, table, compute, market, settings, metrics, metadata))
    assert abs(datetime.now(UTC) - aws.clock.now()).total_seconds() < 60
