"""Lower bounds on what any policy must pay for given work, by how long work may wait.

All are clairvoyant: they know every arrival, boot and price beforehand.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from research.bound.crowd import crowd_boots, crowd_work
from research.bound.price import Prices
from research.bound.sparse import sparse_boots
from research.bound.supply import Supply
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator.boot import Boot
from spindown.simulator.scenario import Arrival, SimScenario

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """USD that no policy can do without; each field with its own condition."""

    #: L0, work bound: every second of work at the cheapest price of the span it may run in.
    work: float
    #: L1: what a clairvoyant pays on the cheapest type if no job may wait at all.
    zero_wait: float
    #: L2, the denominator of all ratios: no start later than ``start_within`` after arrival.
    bounded_wait: float
    #: L2 made tighter, never below it: a span in which little can be done costs idling or a boot
    #: as well.
    sparse_wait: float
    #: The condition of L2, seconds.
    start_within: float


def bound(scenario: SimScenario, *, start_within: float, is_refunded: bool = True) -> Bound:
    """Return lower bounds on the dollars of a scenario.

    Args:
        scenario: arrivals, prices, capacity and boots; the controller plays no part.
        start_within: seconds from a job's arrival to its start, at most; a job that has begun is
            worked on without a pause.
        is_refunded: whether hours that EC2 will not charge are sought out. Without it this is no
            bound where machines are taken: who has luck with refunds pays less.
    """
    boot = mean_boot(scenario.boot)
    prices = Prices(scenario, is_refunded=is_refunded)
    working = Prices(scenario, boot=boot, is_refunded=is_refunded)
    slowest = min(listing.speed for listing in scenario.listings)
    arrivals = sorted(scenario.arrivals, key=lambda each: each.at)
    work = _work(arrivals, prices, start_within, slowest)
    least = _work(arrivals, working, start_within, slowest)
    sparse = sparse_boots(arrivals, prices, boot, start_within, slowest)
    boots = _boots(arrivals, prices, boot, start_within, slowest)
    if arrivals:
        work = max(work, crowd_work(arrivals, prices, start_within, slowest))
        extra = extra_price_per_hour(scenario.root_volume_gib)
        supply = Supply(scenario, is_refunded=is_refunded)
        crowd = crowd_boots(arrivals, supply, extra, boot, start_within)
        boots, sparse = max(boots, crowd), max(boots, sparse, crowd)
    return Bound(
        work=work,
        zero_wait=_zero_wait(scenario, prices, arrivals, boot),
        bounded_wait=max(work + boots, least),
        sparse_wait=max(work + sparse, least),
        start_within=start_within,
    )


def mean_boot(boot: Boot) -> float:
    """Return the mean seconds of a boot."""
    return boot.at_least + boot.median * math.exp(boot.sigma**2 / 2.0)


def _work(arrivals: Sequence[Arrival], prices: Prices, within: float, slowest: float) -> float:
    return math.fsum(
        each.work_seconds
        / _HOUR
        * prices.work(each.at, each.at + within + each.work_seconds / slowest)
        for each in arrivals
    )


def _boots(
    arrivals: Sequence[Arrival], prices: Prices, boot: float, within: float, slowest: float
) -> float:
    """Return the first boot, and for each span that is empty in every schedule idling or a boot."""
    if not arrivals:
        return 0.0
    first = arrivals[0].at
    dollars = boot / _HOUR * prices.hour(first, first + within)
    done_by = first
    for before, after in pairwise(arrivals):
        done_by = max(done_by, before.at + within + before.work_seconds / slowest)
        empty = after.at - done_by
        if empty > 0.0:
            hour = prices.hour(done_by - boot, after.at + within)
            dollars += min(empty, boot) / _HOUR * hour
    return dollars


def _zero_wait(
    scenario: SimScenario, prices: Prices, arrivals: Sequence[Arrival], boot: float
) -> float:
    """Return the cost of starting each job on arrival, level by level (Lu and Chen, 1112.0442).

    Work goes to the slot that idled last; a gap costs the cheaper of idling and a boot. Of a
    machine of several slots each pays its share.
    """
    best = min(
        scenario.listings,
        key=lambda x: (
            min((p for z in x.zones.values() for _, p in z.spot), default=math.inf)
            / scenario.throughput(x)
        ),
    )
    busy: list[float] = []
    idle: list[float] = []
    dollars = 0.0
    for each in arrivals:
        while busy and busy[0] <= each.at:
            idle.append(heapq.heappop(busy))
        # ``idle`` is in order of time, so its last one idled last.
        gap = each.at - idle.pop() if idle else math.inf
        takes = each.work_seconds / best.speed
        heapq.heappush(busy, each.at + takes)
        seconds = takes + min(gap, boot)
        hour = prices.work(each.at, each.at + takes) * best.speed
        dollars += seconds / _HOUR * hour
    return dollars
