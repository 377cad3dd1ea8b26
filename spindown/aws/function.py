"""Wake a function for a workload without waiting for it."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from spindown.aws.error import translated
from spindown.contract.event import NUDGE

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class LambdaWaker:
    """Waker of a Lambda function."""

    def __init__(self, make_client: "Callable[[], LambdaClient]", function: str) -> None:
        """Take what makes the client, since few ever wake anybody."""
        self._make_client = make_client
        self._function = function

    def wake(self, workload: str) -> None:
        """Start the function for a workload now; do not wait for its end."""
        payload = json.dumps({"source": NUDGE, "workload": workload})
        with translated():
            self._make_client().invoke(
                FunctionName=self._function, InvocationType="Event", Payload=payload.encode()
            )
