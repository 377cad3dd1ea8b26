"""What the tests of ranking read of a candidate list, and what they let it know."""

from datetime import datetime, timedelta
from typing import Any

from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.offer import CapacityType, Offer
from spindown.domain.policy import Rung
from tests.builders import SPOT, a_ranking, minutes


def names(candidates: Any) -> list[str]:
    return [candidate.offer.instance_type.name for candidate in candidates]


def zones(candidates: Any) -> list[str]:
    return [candidate.offer.zone for candidate in candidates]


def measured(**items_per_hour: float) -> Knowledge:
    """Return knowledge of ten hours on one GPU of each name, of ten workers."""
    return Knowledge(
        throughput={
            (name, 1.0): ThroughputRecord(items=rate * 10, hours=10.0, reports=50, lives=10)
            for name, rate in items_per_hour.items()
        }
    )


RUNGS = (
    Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=0.30),
    Rung(after=minutes(5), capacity_types=frozenset({SPOT}), max_price_per_hour=0.60),
    Rung(after=minutes(15), capacity_types=frozenset(CapacityType)),
)


def reason(offer: Offer, **changes: Any) -> tuple[str, datetime | None] | None:
    """Return the constraint that rules an offer out, and until when; None: it may be bought."""
    found = a_ranking([offer], **changes)
    if found.candidates:
        assert not found.rejected
        return None
    (rejection,) = found.rejected
    assert rejection.offer is offer
    assert rejection.reason
    return rejection.constraint, rejection.retry_at
