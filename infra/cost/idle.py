"""What a deployment does by itself while nothing happens: one tick, one refresh of the offers.

Calls and metrics of a tick are counted by a test over the real reconcile; what only AWS can
show, such as the time that a function takes, is an estimate that says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.cost.price import Usage

#: Hours of a mean month.
HOURS_A_MONTH = 730.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What one invocation of a function uses up."""

    #: Billed duration.
    seconds: float
    #: Of one invocation.
    used: Mapping[Usage, float]
    #: Metrics that it sends each hour.
    metrics: int
    basis: str


#: Lambda's START, END and REPORT, and the line that the function writes; metrics come besides.
_LOG_BYTES = 1_000
_GIB = 1e9

#: The scaler with an empty queue and no worker.
TICK = Errand(
    seconds=0.3,
    used={
        Usage.QUEUE_REQUEST: 1,
        # One consistent query of a ledger of up to 12 KB, 4 KB a unit.
        Usage.TABLE_READ: 3,
        # The lock, and a transaction over three rows, which counts twice.
        Usage.TABLE_WRITE: 7,
        Usage.LOG_GIB: (_LOG_BYTES + 500) / _GIB,
    },
    # That it ran, and how long.
    metrics=2,
    basis="calls and metrics as counted over an idle tick; 0.3 s billed is an estimate",
)

#: The offers function.
REFRESH = Errand(
    seconds=30.0,
    used={
        # Since when the queue has not been empty.
        Usage.TABLE_READ: 1,
        Usage.OBJECT_READ: 1,
        Usage.OBJECT_WRITE: 1,
        # Versions of about 1 MB that expire after 30 days.
        Usage.OBJECT_GIB: 0.001 * 30 * 24 / HOURS_A_MONTH,
        Usage.LOG_GIB: (_LOG_BYTES + 500) / _GIB,
    },
    # The number of types, and the age of three sources.
    metrics=4,
    basis="an estimate: 30 s billed and a catalogue of 1 MB",
)

#: What the offers function does besides for each workload: judge what its items have cost.
JUDGEMENT = Errand(
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

#: The ledger without a worker.
LEDGER_GIB = 0.001
