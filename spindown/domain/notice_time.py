"""The times of an interruption notice: two minutes, the last commit, the hour that is not charged.

The control plane notes a notice in ``control.instance_event``, marks the worker in
``control.plan.terminate`` (``mark_interrupted``), and requeues what it left in
``control.free_lease``. What a worker *does* with a notice is in ``worker_lifecycle``: the row
``Noticed`` of the table "What ends a worker", and what follows from ``leave_by``.
``worker.attempt`` stops the job in hand by then.
"""

import math
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy

#: EC2 takes the instance this long after the notice (EC2 User Guide, interruption notices).
NOTICE = timedelta(minutes=2)
#: A spot instance that EC2 itself interrupts within this time is not charged (EC2 User Guide,
#: "Billing for interrupted Spot Instances"); one that we end is charged for its seconds.
FREE_FOR = timedelta(hours=1)
#: EC2 is late at times. If it has not come this long after the deadline, it will not come.
RECLAIM_GRACE = timedelta(minutes=5)


def deadline_after(noticed_at: datetime) -> datetime:
    """Return when EC2 takes an instance whose notice named no time."""
    return noticed_at + NOTICE


def commit_by(deadline: datetime, policy: Policy) -> datetime:
    """Return when the last commit before an instance's end must begin."""
    return deadline - policy.commit_margin


def should_power_off(
    *,
    launched_at: datetime,
    deadline: datetime | None,
    capacity_type: CapacityType,
    now: datetime,
) -> bool:
    """Tell whether a worker that is done should power its instance off.

    Not when EC2 is about to reclaim a spot instance within its first hour: then that hour is free,
    but it is charged if the worker ends the instance first.

    Args:
        launched_at: when EC2 started it.
        deadline: when EC2 takes it; None without a notice.
        capacity_type: how it was bought.
        now: the present.
    """
    if deadline is None or capacity_type is not CapacityType.SPOT:
        return True
    if now > deadline + RECLAIM_GRACE:
        return True
    return deadline - launched_at >= FREE_FOR


#: Below this product the closed form loses digits; three terms of its series give nine digits.
_SMALL = 1e-3


def free_hours(rate: float, planned_hours: float) -> float:
    """Return the expected hours of an instance's life that EC2 does not charge.

    The life until a reclaim is exponential with ``rate`` l. Only a reclaim within the first hour,
    and before the instance ends by itself, is free: with h = min(1, planned hours)
    P(reclaimed) = 1 - e^(-lh), mean life then = (1 - e^(-lh) (1 + lh)) / (l (1 - e^(-lh))), and
    the product is (1 - e^(-lh) (1 + lh)) / l.

    Worked: l = 0.5, planned 2 h, so h = 1: P = 0.393469, mean 0.458506 h, free = 0.180408 h.
    For small l it is l h^2 / 2: half the window, times the chance of a reclaim in it.
    """
    window = min(1.0, max(0.0, planned_hours))
    exposed = rate * window
    if exposed < _SMALL:
        return exposed * window * (0.5 - exposed * (1.0 / 3.0 - exposed / 8.0))
    return (1.0 - math.exp(-exposed) * (1.0 + exposed)) / rate
