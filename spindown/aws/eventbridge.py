"""Events of jobs go to the account's default bus of EventBridge."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spindown.aws.error import translated
from spindown.contract.job.event import JobEvent
from spindown.error import Unreachable

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient


#: Entries of one PutEvents (Amazon EventBridge API, "PutEvents").
_ENTRIES_AT_MOST = 10


class EventBridgeBus:
    """JobEvents on EventBridge."""

    def __init__(self, client: "EventBridgeClient") -> None:
        self._client = client

    def send(self, events: Sequence[JobEvent]) -> None:
        """Send events; one that is refused alone is told as all of them (raises Unreachable)."""
        for start in range(0, len(events), _ENTRIES_AT_MOST):
            batch = events[start : start + _ENTRIES_AT_MOST]
            with translated():
                answer = self._client.put_events(
                    Entries=[
                        {
                            "Source": event.source,
                            "DetailType": event.detail_type,
                            "Detail": event.detail,
                            "Time": event.at,
                        }
                        for event in batch
                    ]
                )
            if answer["FailedEntryCount"]:
                codes = {entry.get("ErrorCode", "") for entry in answer["Entries"]} - {""}
                raise Unreachable(f"EventBridge took not all events: {', '.join(sorted(codes))}")
