"""CloudWatch Logs, read: what workers have written, filtered by the service where it can.

FilterLogEvents costs nothing but its place in a quota of some requests a second for the account
(Amazon CloudWatch Logs User Guide, "CloudWatch Logs service quotas").
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from spindown.aws.error import translated
from spindown.contract.log import is_of
from spindown.error import NotFound
from spindown.port import LogEvent

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient

#: Quota of ``filterPattern`` (API reference, FilterLogEvents).
PATTERN_CHARACTERS = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CloudWatchLog:
    """LogSource on one log group."""

    def __init__(self, client: "CloudWatchLogsClient", group: str) -> None:
        self._client = client
        self._group = group

    def read(
        self, *, since: datetime, jobs: Collection[str] = (), stream: str = ""
    ) -> Iterator[LogEvent]:
        """Yield the events from ``since`` on, oldest first, page by page."""
        asked: dict[str, Any] = {
            "logGroupName": self._group,
            "startTime": (since - _EPOCH) // timedelta(milliseconds=1),
            # What AWS always does, and its stand-ins only if they are asked (API reference).
            "interleaved": True,
        }
        if stream:
            asked["logStreamNames"] = [stream]
        if pattern := _pattern(jobs):
            asked["filterPattern"] = pattern
        pages = self._client.get_paginator("filter_log_events").paginate(**asked)
        with translated({"ResourceNotFoundException": NotFound}):
            for page in pages:
                for event in page["events"]:
                    at = _EPOCH + timedelta(milliseconds=event["timestamp"])
                    # The service need not have filtered: a pattern has a longest length.
                    if at >= since and (not jobs or is_of(event["message"], jobs)):
                        yield LogEvent(
                            stream=event["logStreamName"],
                            at=at,
                            message=event["message"],
                        )


def _pattern(jobs: Collection[str]) -> str:
    """Return a pattern for the events of jobs and their children; "": it would be too long."""
    terms = " || ".join(f'$.job_id = "{job}" || $.job_id = "{job}.*"' for job in sorted(jobs))
    pattern = f"{{ {terms} }}" if terms else ""
    return pattern if len(pattern) <= PATTERN_CHARACTERS else ""
