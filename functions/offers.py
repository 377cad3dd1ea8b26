"""Refresh the catalogue of what EC2 offers and at what on-demand price; resend old messages.

Trigger: Scheduler, hourly, on demand. Effects: catalogue, sizes, usage, images, messages, alerts.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from aws_lambda_powertools import Logger

from spindown.control.alert.cost_rise import judge
from spindown.control.alert.lost_message import tell_lost
from spindown.control.bake import keep_images
from spindown.control.market import refresh
from spindown.control.rightsizing import learn_sizes
from spindown.control.usage import compact_all, share_time
from spindown.functions.port import control_ports, for_each_workload, store_of
from spindown.job.lost_message import count_recent
from spindown.job.old_message import resend_all
from spindown.job.shape_queue import remove_unused
from spindown.port import ControlPorts, ObjectStore

logger = Logger(service="offers")

#: Together with the refresh well within the timeout of the function.
RESEND_FOR = timedelta(minutes=2)
SIZE_FOR = timedelta(minutes=4)


def handle(ports: ControlPorts, store_of: Callable[[str], ObjectStore]) -> dict[str, Any]:
    """Renew old messages, then refresh the catalogue; return what was done."""
    # First, since a refresh that cannot read the market raises an error.
    looks = resend_all(ports, store_of=store_of, until=ports.clock.now() + RESEND_FOR)
    refreshed = refresh(ports)
    judgements = judge(ports)
    # What workers have written takes a turn's time: without its end nothing would be learned.
    turns = share_time(len(ports.deployment().workloads), ports.clock, SIZE_FOR)
    return {
        "types": len(refreshed.catalogue.instance_types),
        "failures": dict(refreshed.failures),
        "expensive": {j.workload: j.diagnosis.cause.value for j in judgements if j.diagnosis},
        "not_judged": {j.workload: j.failure for j in judgements if j.failure},
        "resent": {look.workload: look.resent for look in looks},
        "not_resent": {look.workload: look.why for look in looks if look.why},
        **for_each_workload("queues_removed", remove_unused, ports),
        **for_each_workload("images", keep_images, ports),
        # Last, since what workers have written may take all the time and memory that there is.
        **for_each_workload("sized", lambda w, p: learn_sizes(w, p, has_time=next(turns)), ports),
        **compact_all(ports),
        # And after it what those who submit have written.
        **for_each_workload("lost", lambda w, p: tell_lost(w, p, count_recent, store_of), ports),
    }


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001 - Lambda's form
    """Lambda entry point: all that is done each hour."""
    said = handle(control_ports(), store_of)
    logger.info("catalogue_refreshed", extra={"action": "catalogue_refreshed", **said})
    return said
