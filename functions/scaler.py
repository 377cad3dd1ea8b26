"""One tick of one workload (``control.tick``), and what follows it (``after_tick``).

Trigger: the tick of every minute, the spare tick, the backlog alarm, a nudge, `intake`.
Input: which workload; nothing else in the event is trusted.
Effects: launches and ends instances, writes the ledger and the decision; looks at batches.

`spindown doctor` invokes it for a rehearsal, which has EC2 check launches and has no effect.
"""

from typing import Any

from aws_lambda_powertools import Logger

from spindown.contract.codec import encode
from spindown.contract.event import parse_wake_up
from spindown.contract.rehearsal import is_rehearsal, parse_rehearsal
from spindown.control.alert.ledger_missing import ledger_missed
from spindown.control.rehearse import rehearse
from spindown.control.tick import run_tick
from spindown.error import ContractError, NotFound
from spindown.functions.after_tick import look_at_named
from spindown.functions.malformed import acknowledge
from spindown.functions.port import control_ports, deployment_name
from spindown.port import ControlPorts
from spindown.reason_text import say_outcome

logger = Logger(service="scaler")


def handle(event: object, *, deployment: str, holder: str, ports: ControlPorts) -> dict[str, Any]:
    """Tick for the workload that an event names, or rehearse; return what came of it."""
    try:
        if is_rehearsal(event):
            return dict(encode(rehearse(parse_rehearsal(event), ports)))
        wake_up = parse_wake_up(event, deployment=deployment)
    except (ContractError, NotFound) as exc:
        return acknowledge(exc, function="scaler", deployment=deployment, ports=ports)
    try:
        with ledger_missed(ports):
            decision = run_tick(wake_up.workload, ports, holder=holder, source=wake_up.source)
    except NotFound as exc:
        return acknowledge(exc, function="scaler", deployment=deployment, ports=ports)
    return {
        "workload": decision.workload,
        "outcome": decision.outcome.value,
        "summary": say_outcome(decision.outcome, decision.summary),
    }


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda entry point: one tick, then the batches."""
    holder = context.aws_request_id
    said = handle(event, deployment=deployment_name(), holder=holder, ports=control_ports())
    said = {**said, **look_at_named(event)}
    done = {"action": "rehearsed"} if is_rehearsal(event) else {"action": "reconciled"}
    logger.info(done["action"], extra={**done, **said})
    return said
