"""CloudWatch's dashboards, and GetMetricData for their graphs."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spindown.aws.error import code_of, translated
from spindown.contract.dashboard import MetricQuery
from spindown.error import BadInput, NotFound
from spindown.port import MetricSeries

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

#: A body that is not there; it has two names.
_NOT_THERE = frozenset({"ResourceNotFound", "DashboardNotFoundError"})
_REFUSED = frozenset({"ValidationError", "ValidationException", "InvalidParameterValue"})


class CloudWatchDashboards:
    """Dashboards on CloudWatch. GetMetricData is billed by the metrics that it reads."""

    def __init__(self, make_client: "Callable[[], CloudWatchClient]") -> None:
        """Take what makes the client."""
        self._make_client = make_client

    def body(self, name: str) -> str:
        """Return the body of a dashboard."""
        with translated():
            try:
                return self._make_client().get_dashboard(DashboardName=name)["DashboardBody"]
            except ClientError as error:
                if code_of(error) in _NOT_THERE:
                    raise NotFound(f"no dashboard {name}") from error
                raise

    def read(
        self, queries: Sequence[MetricQuery], *, since: datetime, until: datetime
    ) -> Sequence[MetricSeries]:
        """Return the lines that the queries of one graph show."""
        pages = self._make_client().get_paginator("get_metric_data")
        found: dict[tuple[str, str], list[tuple[datetime, float]]] = {}
        with translated():
            try:
                for page in pages.paginate(
                    MetricDataQueries=[_query(one) for one in queries],
                    StartTime=since,
                    EndTime=until,
                    ScanBy="TimestampAscending",
                ):
                    for series in page["MetricDataResults"]:
                        key = (series["Id"], series.get("Label", ""))
                        pairs = zip(series["Timestamps"], series["Values"], strict=True)
                        found.setdefault(key, []).extend(
                            (at.astimezone(UTC), float(value)) for at, value in pairs
                        )
            except ClientError as error:
                if code_of(error) not in _REFUSED:
                    raise
                said = str(error)[:200]
                raise BadInput("dashboard", said, "deploy this version's insight stack") from error
        return tuple(
            MetricSeries(query_id=query_id, label=label, points=tuple(sorted(points)))
            for (query_id, label), points in found.items()
        )


def _query(query: MetricQuery) -> Any:
    common: dict[str, Any] = {"Id": query.query_id, "ReturnData": query.is_shown}
    if query.label:
        common["Label"] = query.label
    if query.expression:
        return {**common, "Expression": query.expression, "Period": query.period}
    dimensions = [{"Name": key, "Value": value} for key, value in (query.dimensions or {}).items()]
    metric = {"Namespace": query.namespace, "MetricName": query.name, "Dimensions": dimensions}
    stat = {"Metric": metric, "Period": query.period, "Stat": query.statistic}
    return {**common, "MetricStat": stat}
