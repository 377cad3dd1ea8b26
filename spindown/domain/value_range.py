"""Numbers that stored rows may hold: each kind with its least and its greatest value.

Rows are written by workers too, so a number can be anything. The codec checks these bounds when it
reads a row; what is decoded is never checked again.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The least and the greatest value that a field may hold."""

    least: float
    most: float


#: Ten years: nothing takes longer, and it may be added to any instant and to itself.
_HOURS_MOST = 87_600.0


def span(hours: float) -> timedelta:
    """Return hours as a time, ten years at most: what is worked out from rows may be any number."""
    return timedelta(hours=min(hours, _HOURS_MOST))


#: Jobs that one worker can hold at once; the index of one of them.
SlotCount = Annotated[int, ValueRange(1, 1024)]
SlotIndex = Annotated[int, ValueRange(0, 1023)]
#: Instances of one launch request.
LaunchCount = Annotated[int, ValueRange(1, 1000)]
#: Whatever is counted: jobs, items, claims, versions.
Tally = Annotated[int, ValueRange(0, 10**15)]
#: Items of one job, or the index of one of them: more fit into no list.
ITEMS_MOST = 10**9
ItemCount = Annotated[int, ValueRange(0, ITEMS_MOST)]
#: Items an hour of one slot: no code is called more often.
RATE_MOST = 1e9
#: The same as a sum of fractions: items, hours, seconds, bytes in GiB.
AMOUNT_MOST = 1e15
Amount = Annotated[float, ValueRange(0.0, AMOUNT_MOST)]
#: The same where something is divided by it.
NotZero = Annotated[float, ValueRange(1e-9, 1e15)]
#: GPUs of one instance; a fraction for partitioned types.
GpuCount = Annotated[float, ValueRange(0.0, 1024.0)]
#: vCPUs of one instance; 0: not known. The largest has 896.
VcpuCount = Annotated[int, ValueRange(0, 10_000)]
#: Whole price of an instance, USD per hour; the most expensive costs a few hundred.
Price = Annotated[float, ValueRange(0.0, 1000.0)]
#: The same of an instance that ran; the cheapest cost a thousandth of a dollar.
PaidPrice = Annotated[float, ValueRange(1e-6, 1000.0)]
#: A sum of USD; below 0 where refunds outweigh.
Dollars = Annotated[float, ValueRange(-1e9, 1e9)]
#: USD set aside; below 0 where a tick and an event that charge at once both give back.
Reserved = Annotated[float, ValueRange(-1e6, 1e6)]
#: A slot may use more than its share.
Percent = Annotated[float, ValueRange(0.0, 1e4)]
#: Seconds that one attempt at a job held a slot: a job is given back after 11 hours
#: (``domain.lease``), and 31 days are more than its code may go on after that.
ATTEMPT_SECONDS_MOST = 31 * 86_400.0
AttemptSeconds = Annotated[float, ValueRange(0.0, ATTEMPT_SECONDS_MOST)]
#: Seconds of a learned sample, a hundred years at most; items an hour, items of a job.
Sample = Annotated[float, ValueRange(0.0, 3.2e9)]
#: Seconds, fourteen days at most in both directions: a message lives no longer.
Margin = Annotated[float, ValueRange(-1209600.0, 1209600.0)]
