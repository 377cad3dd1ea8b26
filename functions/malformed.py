"""The answer to an event that cannot be read, or whose workload does not exist any more.

Such an event is counted, logged with the reason, and ignored: an error would make Lambda and
EventBridge send the same event again.
"""

from aws_lambda_powertools import Logger

from spindown.contract.metric import DEPLOYMENT, FUNCTION
from spindown.error import SpindownError
from spindown.port import ControlPorts, Datum

logger = Logger(service="malformed")


def acknowledge(
    error: SpindownError, *, function: str, deployment: str, ports: ControlPorts
) -> dict[str, str]:
    """Count and log a malformed event; return what the function answers."""
    dimensions = {DEPLOYMENT: deployment, FUNCTION: function}
    ports.metrics.emit([Datum(name="MalformedEvents", value=1, dimensions=dimensions)])
    logger.warning("event_ignored", extra={"action": "event_ignored", "reason": str(error)})
    return {"outcome": "ignored", "summary": str(error)}
