"""The traffic of a queue, as CloudWatch remembers it: the metric ``NumberOfMessagesSent``."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spindown.app.port import Clock, Sent
from spindown.aws.error import translated

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

#: (age, period) of what CloudWatch keeps: minutes for 15 days, five minutes for 63, hours for 455
#: (CloudWatch User Guide, "Metrics retention").
_KEPT = (
    (timedelta(days=15), timedelta(minutes=1)),
    (timedelta(days=63), timedelta(minutes=5)),
    (timedelta(days=455), timedelta(hours=1)),
)
#: A point on the edge of an age may be gone when the call is answered.
_EDGE = timedelta(hours=1)


class CloudWatchTrafficHistory:
    """TrafficHistory on CloudWatch, as fine as it still is at each age."""

    def __init__(self, client: "CloudWatchClient", clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def sent(self, queue: str, *, since: datetime, until: datetime) -> Sequence[Sent]:
        """Return the periods in which messages came, oldest first."""
        found: list[Sent] = []
        for begin, end, period in _spans(since, until, self._clock.now()):
            found.extend(self._read(queue, begin, end, period))
        return sorted(found, key=lambda sent: sent.at)

    def _read(
        self, queue: str, begin: datetime, end: datetime, period: timedelta
    ) -> Iterator[Sent]:
        seconds = int(period.total_seconds())
        pages = self._client.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[
                {
                    "Id": "sent",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": "AWS/SQS",
                            "MetricName": "NumberOfMessagesSent",
                            "Dimensions": [{"Name": "QueueName", "Value": queue}],
                        },
                        "Period": seconds,
                        "Stat": "Sum",
                    },
                }
            ],
            StartTime=begin,
            EndTime=end,
        )
        with translated():
            for page in pages:
                for series in page["MetricDataResults"]:
                    for at, value in zip(series["Timestamps"], series["Values"], strict=True):
                        if value >= 1.0:
                            yield Sent(at=at, period=float(seconds), messages=round(value))


def _spans(
    since: datetime, until: datetime, now: datetime
) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """Yield (begin, end, period), newest first: each age at the finest period that is kept."""
    end = until
    coarser = [period for _, period in _KEPT[1:]] + [_KEPT[-1][1]]
    for (age, period), next_period in zip(_KEPT, coarser, strict=True):
        # Where two periods meet a whole one of the coarser ends: half of it would be read twice.
        begin = max(_ceil(now - age + _EDGE, next_period), _floor(since, period))
        if begin < end:
            yield begin, end, period
            end = begin


def _floor(at: datetime, period: timedelta) -> datetime:
    """Return the begin of the period that an instant falls into."""
    past = timedelta(seconds=at.timestamp() % period.total_seconds())
    return at - past


def _ceil(at: datetime, period: timedelta) -> datetime:
    """Return the end of the period that an instant falls into; a begin of one is itself."""
    begin = _floor(at, period)
    return at if begin == at else begin + period
