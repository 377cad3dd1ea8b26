"""What a planned life on spot costs in the mean, if whoever EC2 takes is replaced at its notice.

Nothing here knows when EC2 will take a machine. One that gets notice works on until it is taken;
at the notice another of its kind is launched, ready before that in the mean, which does what is
left of the plan, and so on. A machine that is gone within an hour is free.
"""

import math
from bisect import bisect_right
from functools import cache
from itertools import accumulate, pairwise

from research.compare.integral.market import Market
from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import SimScenario
from spindown.simulator.scenario import Steps, value_at

_HOUR = 3600.0
_NOTICE = NOTICE.total_seconds() / _HOUR
#: A plan in minutes; one that is longer pays the whole price of what is beyond.
_PLANNED = 480
_MINUTE = 1.0 / 60.0


@cache
def mean_charge(reclaims_per_hour: float) -> tuple[float, ...]:
    """Return the hours that are charged in the mean for a plan of 0, 1, 2... minutes.

    A machine is taken in one of the plan's minutes, in the middle of it, or in none; what its
    replacement costs for what is left of the plan stands earlier in the list.
    Worked: a plan of an hour with 0.1 reclaims an hour is charged 0.955 hours.
    """
    rate, charged = reclaims_per_hour, [0.0]
    dies = 1.0 - math.exp(-rate * _MINUTE)
    for minutes in range(1, _PLANNED + 1):
        plan, lives, dollars = minutes * _MINUTE, 1.0, 0.0
        for minute in range(minutes):
            notice = (minute + 0.5) * _MINUTE
            left = plan - notice
            own = 0.0 if notice + _NOTICE < 1.0 else min(notice + _NOTICE, plan)
            # Rounded up to whole minutes, so never cheaper than it is.
            other = charged[minutes - minute] if minute else plan
            dollars += lives * dies * (own + (other if left > _NOTICE else 0.0))
            lives *= 1.0 - dies
        charged.append(dollars + lives * plan)
    return tuple(charged)


class Bill:
    """USD in the mean of a machine of one speed by when it is ready and when it ends, boot and all.

    It stays in the zone that was cheapest when it was launched, among those of one rate of
    reclaims; of the rates, the better one is taken.
    """

    def __init__(self, scenario: SimScenario, market: Market, speed: float) -> None:
        """Sum up the prices of each zone."""
        self._boot, self._starts = market.boot, market.starts
        self._extra = extra_price_per_hour(scenario.root_volume_gib)
        sold = [each for each in scenario.listings if each.speed == speed]
        zones: dict[float, list[list[float]]] = {}
        for each in sold:
            if each.on_demand is not None:
                zones.setdefault(0.0, []).append([each.on_demand] * len(self._starts))
            for zone in each.zones.values():
                zones.setdefault(zone.reclaims_per_hour, []).append(self._prices(zone.spot))
        #: Of each rate: what plans are charged, the cheapest zone of each span, sums by zone.
        self._kinds = []
        for rate, priced in zones.items():
            cheapest = [
                min(range(len(priced)), key=lambda zone, s=span, p=priced: p[zone][s])  # type: ignore[misc]
                for span in range(len(self._starts))
            ]
            sums = [(own, self._sums(own)) for own in priced]
            self._kinds.append((mean_charge(rate), cheapest, sums))

    def __call__(self, ready: float, ends: float) -> float:
        """Return the USD."""
        begins = ready - self._boot
        first = max(bisect_right(self._starts, begins) - 1, 0)
        last = max(bisect_right(self._starts, ends) - 1, 0)
        since, until = begins - self._starts[first], ends - self._starts[last]
        hours, least = (ends - begins) / _HOUR, math.inf
        minutes = hours * 60.0
        whole = int(minutes)
        for charged, cheapest, sums in self._kinds:
            prices, whole_sums = sums[cheapest[first]]
            listed = whole_sums[last] + until * prices[last] / _HOUR
            listed -= whole_sums[first] + since * prices[first] / _HOUR
            if whole >= _PLANNED:
                paid = charged[-1] + hours - _PLANNED * _MINUTE
            else:
                paid = charged[whole] + (minutes - whole) * (charged[whole + 1] - charged[whole])
            least = min(least, listed * paid / hours)
        return least + self._extra * hours

    def _prices(self, spot: Steps) -> list[float]:
        return [math.inf if (p := value_at(spot, at)) is None else p for at in self._starts]

    def _sums(self, prices: list[float]) -> list[float]:
        spans = (
            (after - before) * price / _HOUR
            for (before, after), price in zip(pairwise(self._starts), prices, strict=False)
        )
        return [0.0, *accumulate(spans)]
