"""Route the messages of a workload with types to the queues of their shapes.

Trigger: the scaler, whenever a tick sees messages in the entry queue.
Input: which workload; nothing else in the event is trusted.
Effects: moves messages between queues, makes a queue when it is first needed, fails jobs of sizes
that nobody sells, wakes the scaler.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aws_lambda_powertools import Logger

from spindown.contract.event import parse_wake_up
from spindown.contract.settings import WorkloadSettings
from spindown.control.market import types_on_sale, types_within_reach
from spindown.control.policy_edit import current_policy
from spindown.error import ContractError, NotFound, SpindownError
from spindown.functions.malformed import acknowledge
from spindown.functions.port import connect, control_ports, work_ports
from spindown.job.route import route
from spindown.port import ControlPorts, Waker, WorkPorts

logger = Logger(service="intake")


def handle(
    event: object,
    ports: ControlPorts,
    work_of: Callable[[WorkloadSettings], WorkPorts],
    scaler: Waker,
) -> dict[str, Any]:
    """Route what waits; return what became of it."""
    try:
        workload = parse_wake_up(event, deployment=ports.name).workload
        settings, policy = current_policy(workload, ports)
    except (ContractError, NotFound) as exc:
        return dict(acknowledge(exc, function="intake", deployment=ports.name, ports=ports))
    now = ports.clock.now()
    sold = types_on_sale(settings, ports, now)
    reach = types_within_reach(sold, settings, policy, ports, now)
    done = route(settings, policy, work_of(settings), ports, sold=sold, within_reach=reach)
    if done.routed:
        # If it is not woken now, its next tick comes within a minute.
        with suppress(SpindownError):
            scaler.wake(workload)
    counts = {"routed": done.routed, "postponed": done.postponed, "dropped": done.dropped}
    return {"workload": workload, **counts, **done.rejected}


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001 - Lambda's form
    """Lambda entry point: route the messages of one workload."""
    ports = control_ports()
    said = handle(event, ports, work_ports, connect().waker(ports.deployment().scaler))
    logger.info("routed", extra={"action": "routed", **said})
    return said
