"""Wake the scaler function without waiting for it."""

import json
from typing import TYPE_CHECKING

from spindown.aws.error import translated
from spindown.contract.event import NUDGE

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class LambdaScaler:
    """Scaler behind a Lambda function."""

    def __init__(self, client: "LambdaClient", function: str) -> None:
        self._client = client
        self._function = function

    def nudge(self, workload: str) -> None:
        """Start a tick of a workload now; do not wait for its end."""
        payload = json.dumps({"source": NUDGE, "workload": workload})
        with translated():
            self._client.invoke(
                FunctionName=self._function, InvocationType="Event", Payload=payload.encode()
            )
