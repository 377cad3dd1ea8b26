"""What the control plane uses up beside machines, and what that costs at list prices.

How much one tick and one job use is counted by tests (``tests/infra/test_idle.py``,
``test_job_cost.py``). What only AWS can show, such as the time that a function takes, is an
estimate that says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spindown.domain.list_price import PRICES, Usage
from spindown.domain.offer import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationUse:
    """What one invocation of a function uses up."""

    #: Billed duration.
    seconds: float
    #: Usage of one invocation.
    used: Mapping[Usage, float]
    #: Metrics that it sends each hour.
    metrics: int
    #: Where the figures come from.
    basis: str


#: Memory of each function in GB; Lambda charges by it.
FUNCTION_GIB = 0.5

#: Lambda's START, END and REPORT, and the line that the function writes; metrics are extra.
_LOG_BYTES = 1_000
_GIB = 1e9

#: The scaler with an empty queue and no worker.
TICK = InvocationUse(
    seconds=0.3,
    used={
        Usage.QUEUE_REQUEST: 1,
        # One consistent query of a ledger of up to 12 KB, 4 KB a unit.
        Usage.TABLE_READ: 3,
        # The lock, and a transaction over three rows; a write in a transaction counts twice.
        Usage.TABLE_WRITE: 7,
        Usage.LOG_GIB: (_LOG_BYTES + 500) / _GIB,
    },
    # That it ran, and how long it took.
    metrics=2,
    basis="calls and metrics as counted over an idle tick; 0.3 s billed is an estimate",
)

#: The offers function.
REFRESH = InvocationUse(
    seconds=30.0,
    used={
        # Since when the queue has not been empty.
        Usage.TABLE_READ: 1,
        Usage.OBJECT_READ: 1,
        Usage.OBJECT_WRITE: 1,
        # Versions of about 1 MB that expire after 30 days.
        Usage.OBJECT_GIB: 0.001 * 30 * 24 / HOURS_PER_MONTH,
        Usage.LOG_GIB: (_LOG_BYTES + 500) / _GIB,
    },
    # The number of types, and the age of three sources.
    metrics=4,
    basis="an estimate: 30 s billed and a catalogue of 1 MB",
)

#: What the offers function also does for each workload: judge what its items cost.
JUDGEMENT = InvocationUse(
    seconds=0.1,
    used={
        # One consistent query of a ledger of up to 12 KB, 4 KB a unit.
        Usage.TABLE_READ: 3,
        Usage.LOG_GIB: 300 / _GIB,
    },
    # What an hour of one warm machine would cost.
    metrics=1,
    basis="calls and metrics as counted over an idle hour; 0.1 s billed is an estimate",
)

#: A job whose items are in the message, and whose results are committed once; its machine is no
#: part of it. ``tests/infra/test_job_cost.py`` counts it over a slot that works.
JOB: Mapping[Usage, float] = {
    # Sent, received, deleted.
    Usage.QUEUE_REQUEST: 3,
    # The manifest at the claim and at the end, and the part.
    Usage.OBJECT_WRITE: 3,
    # In a transaction a write counts twice.
    Usage.TABLE_WRITE: 11,
    # Sent when it is over, later than the test looks.
    Usage.EVENT: 1,
}

#: The ledger without a worker.
LEDGER_GIB = 0.001

#: Runs of a workload's tick an hour: one a minute, and the spare ones.
_TICKS_AN_HOUR = 60.0 + 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUnits:
    """So many units of what AWS bills beside machines."""

    usage: Usage
    quantity: float

    @property
    def listed(self) -> float:
        """Return USD by list price."""
        return self.quantity * PRICES[self.usage].each

    @property
    def billed(self) -> float:
        """Return USD after the free units of a month, if nothing else in the account uses them."""
        price = PRICES[self.usage]
        return max(0.0, self.quantity - price.free) * price.each


def estimate_control(
    *, hours: float, workloads: int, jobs: float, alarm_metrics: int
) -> tuple[UsedUnits, ...]:
    """Return what the control plane has used within a month, by estimate.

    Args:
        hours: for how many it has run.
        workloads: how many have a tick.
        jobs: how many were done.
        alarm_metrics: metrics that its alarms read; 0: no alarm and no dashboard is deployed.
    """
    months = hours / HOURS_PER_MONTH
    used: dict[Usage, float] = {}
    for usage, quantity in (
        *_runs(TICK, hours * _TICKS_AN_HOUR * workloads, months * workloads),
        *_runs(REFRESH, hours, months),
        *_runs(JUDGEMENT, hours * workloads, months * workloads, is_call=False),
        *((usage, quantity * jobs) for usage, quantity in JOB.items()),
        (Usage.ALARM_METRIC, alarm_metrics * months),
        # One for each workload, and the overview.
        (Usage.DASHBOARD, (workloads + 1) * months if alarm_metrics else 0.0),
        (Usage.TABLE_GIB, LEDGER_GIB * months),
        (Usage.TABLE_BACKUP_GIB, LEDGER_GIB * months),
    ):
        used[usage] = used.get(usage, 0.0) + quantity
    return tuple(UsedUnits(usage=usage, quantity=used[usage]) for usage in Usage if used.get(usage))


def _runs(
    use: InvocationUse, times: float, months: float, *, is_call: bool = True
) -> Iterator[tuple[Usage, float]]:
    """Yield what so many runs use up; one that is no call is part of another's."""
    if is_call:
        yield Usage.SCHEDULE, times
        yield Usage.LAMBDA_REQUEST, times
    yield Usage.LAMBDA_GIB_SECOND, times * use.seconds * FUNCTION_GIB
    yield Usage.CUSTOM_METRIC, use.metrics * months
    yield from ((usage, quantity * times) for usage, quantity in use.used.items())
