"""Act on interruption warnings, rebalance recommendations and state changes of instances.

Trigger: EventBridge rules on EC2's events; every instance of the account, ours or not.
Input: the instance; the ledger says whether it is ours.
Effects: notes it in the instance's row, bounds its leases, ticks at once.
"""

from typing import Any

from aws_lambda_powertools import Logger

from spindown.contract.decision import Decision
from spindown.contract.event import parse_instance_event
from spindown.control.instance_event import react
from spindown.error import ContractError, NotFound
from spindown.functions.malformed import acknowledge
from spindown.functions.port import control_ports, deployment_name
from spindown.port import ControlPorts
from spindown.reason_text import say_outcome

logger = Logger(service="interruption")


def handle(event: object, *, deployment: str, holder: str, ports: ControlPorts) -> dict[str, Any]:
    """Act on an event; return what was done."""
    try:
        parsed = parse_instance_event(event)
    except ContractError as exc:
        return acknowledge(exc, function="interruption", deployment=deployment, ports=ports)
    try:
        reaction = react(parsed, ports, holder=holder)
    except NotFound as exc:
        return acknowledge(exc, function="interruption", deployment=deployment, ports=ports)
    return {
        "instance_id": reaction.instance_id,
        "workload": reaction.workload,
        "acted": reaction.acted,
        "summary": _summary(reaction.decision),
    }


def _summary(decision: Decision | None) -> str:
    return "" if decision is None else say_outcome(decision.outcome, decision.summary)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda entry point: one event of EC2, and a tick if it concerns a worker."""
    holder = context.aws_request_id
    said = handle(event, deployment=deployment_name(), holder=holder, ports=control_ports())
    logger.info("reacted", extra={"action": "reacted", **said})
    return said
