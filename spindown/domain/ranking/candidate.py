"""The values of a ranking: what an offer would cost, and why one is left out.

What an item costs on an offer, and so the order, is worked out in ``candidate_list`` (``_score``).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime

from spindown.domain.offer import CapacityType, Offer
from spindown.domain.policy import RankBy
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.relative_throughput import estimate_source


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionBlock:
    """Why nothing is asked for in a region."""

    reason: Reason
    #: When it may lift by itself; None: only when somebody changes something.
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """USD per item by what it pays for. ``refund`` is subtracted."""

    work: float
    boot: float
    redo: float
    idle: float
    refund: float
    transfer: float

    @property
    def total(self) -> float:
        """Return the cost of an item."""
        return self.work + self.boot + self.redo + self.idle - self.refund + self.transfer

    def signed(self) -> dict[str, float]:
        """Return each part by its name, as it counts in the sum."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**parts, "refund": -self.refund}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An offer in the candidate list, with all that decides its place."""

    offer: Offer
    #: USD.
    cost_per_item: float
    parts: CostParts
    #: Of the whole instance.
    items_per_hour: float
    #: Whether this workload has run on such a GPU and count before.
    measured: bool
    #: Expected per hour; 0 on demand.
    interruption_rate: float
    #: How many such workers would share the backlog.
    workers: int
    #: Items of each.
    items: float
    #: Hours that EC2 is expected to charge for each.
    charged_hours: float

    @property
    def speed_source(self) -> str:
        """Return where ``items_per_hour`` comes from: "measured", or what its prior is from."""
        return "measured" if self.measured else estimate_source(self.offer.instance_type).value

    @property
    def expected_dollars(self) -> float:
        """Return what one such worker is expected to cost: what its launch reserves."""
        return self.offer.price * self.charged_hours

    def metric(self, rank_by: RankBy) -> float:
        """Return by what neighbours of the list count as equal (``policy.band``)."""
        return self.cost_per_item if rank_by is RankBy.COST_PER_ITEM else self.offer.price


@dataclass(frozen=True, slots=True)
class Rejection:
    """An offer that is not taken now."""

    offer: Offer
    #: Name of the setting or fact that rules it out, for example ``max_price_per_hour``.
    constraint: str
    code: ReasonCode
    #: Makes the parameters of the reason when they are asked for; most rejections are only counted.
    numbers: Callable[[], About]
    #: When it may come back by itself; None: only by another setting, price or type.
    retry_at: datetime | None = None

    @property
    def reason(self) -> Reason:
        """Return the reason, complete with numbers."""
        return Reason(self.code, self.numbers())


def bands(
    candidates: Iterable[Candidate], band: float, rank_by: RankBy
) -> Iterator[tuple[Candidate, ...]]:
    """Split a sorted candidate list into what one launch request may hold each.

    All candidates of a band have one capacity type, one architecture and one region, and cost at
    most the share ``band`` more than its first. EC2 chooses among them. Bands come in the order of
    their first candidates, and candidates are read only as far as needed. With ``band`` 0 each
    candidate is a band of its own, so that the list is tried one by one.
    """
    if band <= 0.0:
        yield from ((candidate,) for candidate in candidates)
        return
    # Bands that may still grow. The first is the cheapest, and so it is complete first.
    growing: dict[tuple[CapacityType, str, str], list[Candidate]] = {}
    for candidate in candidates:
        metric = candidate.metric(rank_by)
        for key, (first, *_) in list(growing.items()):
            if metric <= first.metric(rank_by) * (1.0 + band):
                break
            yield tuple(growing.pop(key))
        offer = candidate.offer
        place = (offer.capacity_type, offer.instance_type.architecture, offer.region)
        growing.setdefault(place, []).append(candidate)
    yield from map(tuple, growing.values())
