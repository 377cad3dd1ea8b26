"""How a baseline buys: which pools it asks, in which order, and which it leaves alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spindown.app.port import LaunchedInstance, LaunchOverride, LaunchRequest
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.simulator.agenda import Agenda
from spindown.simulator.baseline.plan import Baseline, Market
from spindown.simulator.compute import SimCompute
from spindown.simulator.scenario import Listing, SimScenario, Steps, Zone, value_at

#: Share of the on-demand price that a spot price is taken to be (Luna's own setting).
_ESTIMATE = 0.5


@dataclass(frozen=True, slots=True)
class _Stall:
    """One type in one zone."""

    listing: Listing
    zone_name: str
    zone: Zone

    @property
    def key(self) -> tuple[str, str]:
        return self.listing.instance_type.name, self.zone_name


class Shop:
    """The market as one baseline uses it."""

    def __init__(
        self, scenario: SimScenario, baseline: Baseline, agenda: Agenda, compute: SimCompute
    ) -> None:
        self._baseline = baseline
        self._agenda = agenda
        self._compute = compute
        self._asked = 0
        self._left_alone: dict[tuple[str, str], float] = {}
        fixed = fixed_listing(scenario, baseline)
        several = baseline.market in {Market.CHEAPEST, Market.LIST, Market.DEEP}
        self._stalls = [
            _Stall(listing, name, zone)
            for listing in (scenario.listings if several else (fixed,))
            for name, zone in listing.zones.items()
        ]
        if baseline.market is Market.FIXED:
            del self._stalls[1:]

    def buy(self) -> LaunchedInstance | None:
        """Ask one pool after the other; None if all refuse."""
        now = self._agenda.seconds
        for stall in self._in_order(now):
            if self._left_alone.get(stall.key, 0.0) > now:
                continue
            self._asked += 1
            answer = self._compute.launch(
                LaunchRequest(
                    client_token=f"{self._baseline.capacity_type}-{self._asked}",
                    region=stall.listing.region,
                    template=TemplateRef(id="lt", version="1"),
                    capacity_type=self._baseline.capacity_type,
                    overrides=(
                        LaunchOverride(
                            instance_type=stall.listing.instance_type.name,
                            zone=stall.zone_name,
                            subnet_id="subnet",
                        ),
                    ),
                    count=1,
                    tags={},
                )
            )
            if answer.instances:
                return answer.instances[0]
            self.leave_alone(stall.key)
        return None

    def leave_alone(self, key: tuple[str, str]) -> None:
        """Ask a type in a zone no more for a while."""
        self._left_alone[key] = self._agenda.seconds + self._baseline.back_off

    def _in_order(self, now: float) -> Sequence[_Stall]:
        sold = [(price, stall) for stall in self._stalls if (price := self._price(stall, now))]
        match self._baseline.market:
            case Market.LIST:
                sold = [(_estimate(stall.listing, price), stall) for price, stall in sold]
            case Market.DEEP:
                rates = sorted(stall.zone.reclaims_per_hour for _, stall in sold)
                calm = rates[(len(rates) - 1) // 2] if rates else 0.0
                sold = [x for x in sold if x[1].zone.reclaims_per_hour <= calm]
            case _:
                pass
        return [stall for _, stall in sorted(sold, key=lambda each: (each[0], each[1].key))]

    def _price(self, stall: _Stall, now: float) -> float | None:
        if self._baseline.capacity_type is CapacityType.ON_DEMAND:
            return stall.listing.on_demand
        return value_at(stall.zone.spot, now)


def _estimate(listing: Listing, price: float) -> float:
    return price if listing.on_demand is None else listing.on_demand * _ESTIMATE


def fixed_listing(scenario: SimScenario, baseline: Baseline) -> Listing:
    """Return the one type of a baseline that knows only one: the cheapest hour of its kind."""
    if baseline.instance_type:
        return next(x for x in scenario.listings if x.instance_type.name == baseline.instance_type)
    is_spot = baseline.capacity_type is CapacityType.SPOT

    def hour(listing: Listing) -> float:
        zone = next(iter(listing.zones.values()))
        hourly = _mean(zone.spot, scenario.length) if is_spot else listing.on_demand
        return math.inf if hourly is None else hourly

    return min(scenario.listings, key=hour)


def _mean(steps: Steps, length: float) -> float | None:
    """Return the mean over the time until ``length`` that it is in force; None: it never is."""
    ends = [*(begins for begins, _ in steps[1:]), length]
    spans = [
        (max(min(end, length) - begins, 0.0), value)
        for (begins, value), end in zip(steps, ends, strict=False)
    ]
    whole = math.fsum(span for span, _ in spans)
    return math.fsum(span * value for span, value in spans) / whole if whole else None
