"""Tell CloudFormation how its request went: it waits until it is told."""

import json
import urllib.request
from http import HTTPStatus

from spindown.contract.event import StackEvent
from spindown.error import Unreachable

_TIMEOUT_SECONDS = 10.0
#: CloudFormation takes 4 KiB in all (AWS CloudFormation User Guide, "Custom resource response
#: objects").
_REASON_CHARACTERS = 1000


def answer_stack(event: StackEvent, *, failure: str = "") -> None:
    """Put success, or the reason of a failure, where the event says (raises Unreachable).

    The resource keeps one id for its life, so that no update replaces, which is to say deletes, it.
    """
    said = {
        "Status": "FAILED" if failure else "SUCCESS",
        "Reason": failure[:_REASON_CHARACTERS] or "done",
        "PhysicalResourceId": f"{event.stands_for}-of-{event.leaving.deployment}",
        "StackId": event.stack_id,
        "RequestId": event.request_id,
        "LogicalResourceId": event.logical_id,
    }
    request = urllib.request.Request(  # noqa: S310 - CloudFormation's own presigned address
        event.answer_to, data=json.dumps(said).encode(), method="PUT", headers={"Content-Type": ""}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            if response.status != HTTPStatus.OK:
                raise Unreachable(f"CloudFormation answered {response.status}")
    except OSError as exc:
        raise Unreachable(f"CloudFormation was not reached: {exc}") from exc
