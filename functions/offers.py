"""Refresh the catalogue of what EC2 offers and at what on-demand price.

Trigger: EventBridge Scheduler, every hour, and on demand.
Input: none.
Effects: writes offers/catalogue.json.
"""

from typing import Any

from aws_lambda_powertools import Logger

from functions.port import control_ports
from spindown.app.control import ControlPorts
from spindown.app.offers import refresh

logger = Logger(service="offers")


def handle(ports: ControlPorts) -> dict[str, Any]:
    """Refresh the catalogue; return what was read."""
    refreshed = refresh(ports)
    return {
        "types": len(refreshed.catalogue.instance_types),
        "failures": dict(refreshed.failures),
    }


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001 - Lambda's form
    """Answer Lambda."""
    said = handle(control_ports())
    logger.info("catalogue_refreshed", extra={"action": "catalogue_refreshed", **said})
    return said
