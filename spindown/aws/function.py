"""Invoke the scaler: wake it without waiting for it, or have it rehearse launches."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from spindown.aws.error import translated
from spindown.contract.codec import decode, from_json
from spindown.contract.event import NUDGE
from spindown.contract.rehearsal import Rehearsal, RehearsalRequest, rehearsal_event
from spindown.error import ContractError, NotFound

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


class LambdaWebhook:
    """What has the function of the webhook read its secret, and posts nothing."""

    def __init__(self, make_client: "Callable[[], LambdaClient]", function: str) -> None:
        """Take what makes the client, since few ever ask."""
        self._make_client = make_client
        self._function = function

    def __call__(self) -> None:
        """Have it handle no text at all.

        Raises:
            AccessDenied: the caller may not invoke the function.
            NotFound: there is no such function.
            ContractError: it has failed.
        """
        with translated({"ResourceNotFoundException": NotFound}):
            answer = self._make_client().invoke(
                FunctionName=self._function, Payload=json.dumps({"Records": []}).encode()
            )
            text = answer["Payload"].read()
        if answer.get("FunctionError"):
            raise ContractError(self._function, _error_of(text), "read its log")


def _error_of(text: bytes) -> str:
    """Return what a function has raised, in its own words where they can be read."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    words = said.get("errorMessage") if isinstance(said, dict) else None
    return (words if isinstance(words, str) else text.decode(errors="replace"))[:400]


class LambdaRehearser:
    """What has a scaler rehearse launches, and waits for its answer."""

    def __init__(self, make_client: "Callable[[], LambdaClient]", function: str) -> None:
        """Take what makes the client, since few ever rehearse."""
        self._make_client = make_client
        self._function = function

    def __call__(self, request: RehearsalRequest) -> Rehearsal:
        """Return what EC2 has said to the scaler.

        Raises:
            AccessDenied: the caller may not invoke the function.
            ContractError: the function has failed, or it is of a release without rehearsals.
        """
        payload = json.dumps(rehearsal_event(request)).encode()
        with translated():
            answer = self._make_client().invoke(FunctionName=self._function, Payload=payload)
            text = answer["Payload"].read()
        found = from_json("answer of the scaler", text)
        if answer.get("FunctionError") or not isinstance(found, dict) or "launches" not in found:
            said = text.decode(errors="replace")[:400]
            raise ContractError(self._function, said, "read its log; deploy it anew")
        return decode(Rehearsal, found)
