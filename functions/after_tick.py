"""What the scaler does after a tick: find out which batches are over. A failure harms no tick."""

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools import Logger

from spindown.contract.event import NUDGE, parse_wake_up
from spindown.contract.rehearsal import is_rehearsal
from spindown.functions.port import control_ports, store_of, work_ports
from spindown.job.batch_end import look_at_batches

logger = Logger(service="scaler", child=True)


def look_at_named(event: object) -> Mapping[str, Any]:
    """Look at the batches of the workload that an event names; return what failed."""
    if is_rehearsal(event):
        return {}
    try:
        ports = control_ports()
        wake_up = parse_wake_up(event, deployment=ports.name)
        failed = look_at_batches(
            wake_up.workload,
            ports,
            lambda: work_ports(ports.settings.workload(wake_up.workload)[0]),
            store_of,
            told=ports.deployment().batches_told,
            is_nudged=wake_up.source == NUDGE,
        )
    except Exception as exc:
        logger.exception("batches_not_followed")
        failed = {"": str(exc)}
    return {"unfollowed": dict(failed)} if failed else {}
