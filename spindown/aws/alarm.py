"""The states of CloudWatch's alarms."""

from collections.abc import Callable, Mapping
from typing import Any

from spindown.aws.error import translated


class CloudWatchAlarms:
    """AlarmStates on CloudWatch."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        """Take what makes the client."""
        self._make_client = make_client

    def states(self, prefix: str) -> Mapping[str, str]:
        """Return name -> state of each alarm whose name begins so."""
        with translated():
            pages = self._make_client().get_paginator("describe_alarms")
            return {
                str(alarm["AlarmName"]): str(alarm["StateValue"])
                for page in pages.paginate(AlarmNamePrefix=prefix)
                for alarm in page.get("MetricAlarms", [])
            }
