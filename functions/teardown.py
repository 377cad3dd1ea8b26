"""End every instance before the deployment that it belongs to is deleted.

Trigger: CloudFormation, when it creates, changes or deletes the stack. It waits for an answer.
Input: what is removed: the whole deployment, or workloads and subnets that a deploy leaves out.
Effects: stops the scaler, terminates instances, waits until they are gone, answers.
"""

import json
import urllib.request
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger

from spindown.aws.clock import pause
from spindown.contract.event import StackEvent, parse_stack_event
from spindown.error import SpindownError, Unreachable
from spindown.functions.port import connect
from spindown.operate.teardown import TeardownPorts, tear_down

logger = Logger(service="teardown")

#: How long the address may take to accept the answer.
_TIMEOUT_SECONDS = 10.0
#: CloudFormation takes 4 KiB in all (AWS CloudFormation User Guide, "Custom resource response
#: objects").
_REASON_CHARACTERS = 1000
#: The part of the function's time that is kept for the answer.
_RESERVE = timedelta(seconds=30)


def handle(event: StackEvent, ports: TeardownPorts, *, left: timedelta) -> dict[str, Any]:
    """End what is removed within ``left``; return what was ended (raises StillRunning)."""
    leaving = event.leaving
    if not (leaving.is_whole or leaving.workloads or leaving.subnets):
        return {"change": event.change, "terminated": []}
    ended = tear_down(
        leaving, ports, holder=event.request_id, deadline=ports.clock.now() + left - _RESERVE
    )
    return {"change": event.change, "terminated": sorted(ended)}


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> None:
    """Answer CloudFormation, whatever happens."""
    asked = parse_stack_event(event)
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    try:
        said = handle(asked, _ports(asked), left=left)
    except (
        Exception
    ) as exc:  # also a fault of our own: without an answer CloudFormation waits for half an hour
        logger.exception("not_torn_down")
        answer_stack(asked, failure=str(exc) if isinstance(exc, SpindownError) else repr(exc))
        return
    logger.info("torn_down", extra={"action": "torn_down", **said})
    answer_stack(asked)


def answer_stack(event: StackEvent, *, failure: str = "") -> None:
    """Send success, or the reason of a failure, to the event's address (raises Unreachable).

    The resource keeps one id, so that no update replaces it: a replaced resource is deleted.
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


def _ports(event: StackEvent) -> TeardownPorts:
    aws, table = connect(), event.leaving.table
    return TeardownPorts(
        clock=aws.clock,
        compute=aws.compute(),
        table=aws.table(table) if table else None,
        pause=pause,
        queue=aws.queue,
    )
