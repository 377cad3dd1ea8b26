"""End every instance before the deployment that it belongs to goes.

Trigger: CloudFormation, when it makes, changes or deletes the stack.
Input: what goes: the whole deployment, or the workloads and subnets that a deploy has left out.
Effects: keeps reconcile out, terminates instances, waits until they are gone, answers.
"""

from datetime import timedelta
from threading import Event
from typing import Any

from aws_lambda_powertools import Logger

from functions.answer import answer_stack
from functions.port import connect
from spindown.app.teardown import TeardownPorts, tear_down
from spindown.contract.event import StackEvent, parse_stack_event
from spindown.error import SpindownError

logger = Logger(service="teardown")
#: Kept of the function's own time, to answer in.
_RESERVE = timedelta(seconds=30)


def handle(event: StackEvent, ports: TeardownPorts, *, left: timedelta) -> dict[str, Any]:
    """End what goes within ``left``; return what was ended (raises StillRunning)."""
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
    except Exception as exc:  # a fault of our own, too: who is not answered waits for half an hour
        logger.exception("not_torn_down")
        answer_stack(asked, failure=str(exc) if isinstance(exc, SpindownError) else repr(exc))
        return
    logger.info("torn_down", extra={"action": "torn_down", **said})
    answer_stack(asked)


def _ports(event: StackEvent) -> TeardownPorts:
    aws, table = connect(), event.leaving.table
    return TeardownPorts(
        clock=aws.clock,
        compute=aws.compute(),
        table=aws.table(table) if table else None,
        pause=_wait,
    )


def _wait(length: timedelta) -> None:
    Event().wait(length.total_seconds())
