"""Dollars per useful second are bounded, whatever messages, accounts and reclaims do.

A machine is paid for work that is kept, or for something that happened: a message, a reclaim, a
fault, a refusal. Each of these may cost one machine once, for as long as it takes to boot, find
nothing to do and end. Wasted work costs no more than the same work on demand
(``domain.wasted_work``); of a job that is given up, no more than twice. So time alone costs
nothing: a cost that grows while nothing happens and nothing is done is above every such bound.
"""

from dataclasses import dataclass

_HOUR = 3600.0
#: Rounding.
_EXACT = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What came of a run, and what it cost. Seconds are those of machines."""

    #: What EC2 bills, USD.
    dollars: float
    #: USD an hour of the dearest machine that did the work, or could have, on demand.
    price_per_hour: float
    #: Of computing whose results are kept.
    useful_seconds: float
    #: Of the longest attempts at what was given up.
    given_up_seconds: float = 0.0
    #: In which machines ran and nobody was there to decide.
    unattended_seconds: float = 0.0
    #: What happened: messages, reclaims, faults, refusals.
    causes: int
    #: Of one machine that comes for nothing: boot, idle time, and until it is seen to have ended.
    seconds_each: float


def most_dollars(record: RunRecord) -> float:
    """Return what a run may have cost at most."""
    seconds = (
        2.0 * (record.useful_seconds + record.given_up_seconds)
        + record.unattended_seconds
        + record.seconds_each * (1 + record.causes)
    )
    return record.price_per_hour * seconds / _HOUR


def is_bounded(record: RunRecord) -> bool:
    """Tell whether a run cost no more than what came of it and what happened explain."""
    return record.dollars <= most_dollars(record) * _EXACT
