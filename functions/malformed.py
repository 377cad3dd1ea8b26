"""What to do with an event that cannot be read, or is of a workload that is gone.

It is counted and let go, and the log says why: an error would make Lambda and EventBridge send
the very same event again.
"""

from aws_lambda_powertools import Logger

from spindown.app.control import ControlPorts
from spindown.app.port import Datum
from spindown.contract.metric import DEPLOYMENT, FUNCTION
from spindown.error import SpindownError

logger = Logger(service="malformed")


def acknowledge(
    error: SpindownError, *, function: str, deployment: str, ports: ControlPorts
) -> dict[str, str]:
    """Count and log a malformed event; return what the function answers."""
    dimensions = {DEPLOYMENT: deployment, FUNCTION: function}
    ports.metrics.emit([Datum(name="MalformedEvents", value=1, dimensions=dimensions)])
    logger.warning("event_ignored", extra={"action": "event_ignored", "reason": str(error)})
    return {"outcome": "ignored", "summary": str(error)}
