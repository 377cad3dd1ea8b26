"""A dashboard's body and its metrics, as CloudWatch gives them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.contract.dashboard import MetricQuery
from spindown.error import NotFound

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
HOUR = timedelta(hours=1)


def test_a_body_is_what_was_deployed(aws: Aws, session: boto3.Session) -> None:
    cloudwatch: Any = session.client("cloudwatch")
    cloudwatch.put_dashboard(DashboardName="demo", DashboardBody='{"widgets": []}')

    assert aws.dashboards().body("demo") == '{"widgets": []}'


def test_a_dashboard_that_is_not_there_is_not_found(aws: Aws) -> None:
    with pytest.raises(NotFound):
        aws.dashboards().body("nothing")


def test_a_metric_is_read_oldest_first(aws: Aws, session: boto3.Session) -> None:
    cloudwatch: Any = session.client("cloudwatch")
    for ago, value in ((2, 3.0), (5, 1.0)):
        cloudwatch.put_metric_data(
            Namespace="Spindown",
            MetricData=[
                {
                    "MetricName": "Backlog",
                    "Dimensions": [{"Name": "Workload", "Value": "ocr"}],
                    "Timestamp": NOW - ago * timedelta(minutes=1),
                    "Value": value,
                }
            ],
        )
    query = MetricQuery(
        query_id="q0",
        label="waiting",
        namespace="Spindown",
        name="Backlog",
        dimensions={"Workload": "ocr"},
        statistic="Maximum",
    )

    (line,) = aws.dashboards().read([query], since=NOW - HOUR, until=NOW)

    assert (line.query_id, line.label) == ("q0", "waiting")
    assert [value for _, value in line.points] == [1.0, 3.0]
    assert line.points[0][0] < line.points[1][0]
