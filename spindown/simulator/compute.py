"""EC2 in a simulated world: instances that boot, are taken away, and end, by the scenario.

The rules of launching, quotas and billing are those of ``spindown.ec2sim``; this plans on the
agenda what happens by itself.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Protocol

from spindown.contract.event import InstanceEvent, InterruptionWarning, StateChange
from spindown.domain.offer import CapacityType, Pool, extra_price_per_hour
from spindown.ec2sim import Agenda, CapacityLimit, Planned, Turn
from spindown.memory import MemoryCompute, MemoryMarket
from spindown.port import LaunchAnswer, LaunchedInstance, LaunchRequest
from spindown.simulator.record import SimRecorder
from spindown.simulator.scenario import SimScenario, Steps, value_at

_ZERO = timedelta(0)
#: Instants are whole microseconds: a change planned for a second may come so much before it.
_ROUNDING = 1e-6


class Watcher(Protocol):
    """Who hears of what happens to instances."""

    def launched(self, given: LaunchedInstance) -> None:
        """Hear of a new instance."""
        ...

    def warned(self, instance_id: str, deadline: datetime) -> None:
        """Hear that an instance's metadata announces its end."""
        ...

    def gone(self, instance_id: str) -> None:
        """Hear that an instance has ended."""
        ...

    def tell(self, event: InstanceEvent) -> None:
        """Hear of an event of EC2's, as its function would."""
        ...


class SimCompute(MemoryCompute):
    """Compute of a simulated world."""

    def __init__(
        self,
        scenario: SimScenario,
        *,
        agenda: Agenda,
        random: Random,
        record: SimRecorder,
        watcher: Watcher,
        template_tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Begin with no instance, and with the market of the scenario.

        Args:
            scenario: what is sold, and what happens to what is bought.
            agenda: where what happens by itself is planned.
            random: draws lives, and whom a falling capacity hits.
            record: where it is noted.
            watcher: hears of what happens to instances.
            template_tags: tags of each launch template by id; None: any template is good.
        """
        self.market = _open_market(scenario, agenda)
        super().__init__(
            agenda.clock,
            self.market,
            ending=timedelta(seconds=scenario.delays.ending),
            lag=timedelta(seconds=scenario.delays.described),
            extra_price_per_hour=extra_price_per_hour(scenario.root_volume_gib),
            template_tags=template_tags,
            capacity=self._limit,
        )
        self._scenario = scenario
        self._agenda = agenda
        self._random = random
        self._record = record
        self._watcher = watcher
        self._zones = {
            (listing.instance_type.name, name): zone
            for listing in scenario.listings
            for name, zone in listing.zones.items()
        }
        #: Instances that have not ended -> their reclaim by chance, if any.
        self._living: dict[str, Planned | None] = {}
        for name, zone in self._zones:
            for capacity_type in CapacityType:
                self._plan_reclaims(
                    Pool(instance_type=name, zone=zone, capacity_type=capacity_type)
                )

    @property
    def running(self) -> int:
        """Return how many instances there are."""
        return len(self._living)

    # The port.

    def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """Ask once; what is given lives from now on."""
        answer = super().launch(request)
        self._record.counts["refusals"] += len(answer.refusals)
        for given in answer.instances:
            if given.instance_id not in self._living:
                self._live(given)
        return answer

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> Mapping[str, str]:
        """Terminate instances."""
        states = super().terminate(region=region, instance_ids=instance_ids)
        for instance_id in instance_ids:
            self._record.note("terminated", instance_id)
            self._end(instance_id)
        return states

    # What happens by itself.

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within."""
        if instance_id in self._living:
            super().power_off(instance_id)
            self._end(instance_id)

    def _live(self, given: LaunchedInstance) -> None:
        instance = self.ec2.instances[given.instance_id]
        self._living[given.instance_id] = None
        self._record.note("launched", f"{given.instance_id} {instance.pool}")
        self._record.types[given.instance_type] += 1
        self._record.peak = max(self._record.peak, len(self._living))
        rate = self._zones[given.instance_type, given.zone].reclaims_per_hour
        if rate > 0.0 and instance.is_spot:
            lives = self._random.expovariate(rate) * 3600.0
            self._living[given.instance_id] = self._agenda.plan_in(
                lives, Turn.MARKET, lambda: self._take(given.instance_id)
            )
        self._watcher.launched(given)

    def _take(self, instance_id: str) -> None:
        """Reclaim an instance, with or without a notice, unless EC2 takes it already."""
        instance = self.ec2.instances.get(instance_id)
        if instance is None or instance_id not in self._living or instance.notice is not None:
            return
        self._call_off(instance_id)
        self._record.note("reclaimed", instance_id)
        if self._random.random() < self._scenario.notice_missing:
            self.reclaim(instance_id, notice=_ZERO)
            self._end(instance_id)
            return
        ends = self.reclaim(instance_id)
        warning = InterruptionWarning(
            instance_id=instance_id, region=instance.region, at=self._agenda.now
        )
        self._agenda.plan_in(
            self._scenario.delays.event, Turn.EVENT, lambda: self._watcher.tell(warning)
        )
        seen_in = self._random.random() * self._scenario.delays.metadata
        self._agenda.plan_in(seen_in, Turn.WORKER, lambda: self._watcher.warned(instance_id, ends))
        self._agenda.plan(ends, Turn.END, lambda: self._end(instance_id))

    def _call_off(self, instance_id: str) -> None:
        planned = self._living[instance_id]
        if planned is not None:
            planned.call_off()

    def _end(self, instance_id: str) -> None:
        if instance_id not in self._living:
            return
        self._call_off(instance_id)
        del self._living[instance_id]
        instance = self.ec2.instances[instance_id]
        self._record.note("gone", instance_id)
        self._watcher.gone(instance_id)
        for wait, state in ((0.0, "shutting-down"), (self._scenario.delays.ending, "terminated")):
            event = StateChange(
                instance_id=instance_id,
                region=instance.region,
                at=self._agenda.now + timedelta(seconds=wait),
                state=state,
            )
            self._agenda.plan_in(
                wait + self._scenario.delays.event,
                Turn.EVENT,
                lambda event=event: self._watcher.tell(event),  # type: ignore[misc]
            )

    def _capacity(self, pool: Pool) -> Steps:
        zone = self._zones[pool.instance_type, pool.zone]
        is_spot = pool.capacity_type is CapacityType.SPOT
        return zone.capacity if is_spot else zone.on_demand_capacity

    def _limit(self, pool: Pool) -> CapacityLimit | None:
        most = value_at(self._capacity(pool), self._agenda.seconds + _ROUNDING)
        return None if most is None else CapacityLimit(int(most))

    def _plan_reclaims(self, pool: Pool) -> None:
        """Plan what falls of a pool's capacity take away."""
        for begins, _ in self._capacity(pool):
            self._agenda.plan_at(begins, Turn.MARKET, lambda: self._reclaim_excess(pool))

    def _reclaim_excess(self, pool: Pool) -> None:
        limit = self._limit(pool)
        if limit is None or pool.capacity_type is not CapacityType.SPOT:
            return
        instances = (self.ec2.instances[instance_id] for instance_id in self._living)
        # Who has a notice makes room by itself.
        staying = [i.instance_id for i in instances if i.pool == pool and i.notice is None]
        for _ in range(len(staying) - limit.most):
            self._take(staying.pop(int(self._random.random() * len(staying))))


def _open_market(scenario: SimScenario, agenda: Agenda) -> MemoryMarket:
    """Return a market that offers what is listed, and whose prices move on time."""
    market = MemoryMarket(agenda.clock)
    for listing in scenario.listings:
        name = listing.instance_type.name
        market.offer(
            listing.instance_type,
            region=listing.region,
            zones=listing.zones,
            on_demand=listing.on_demand,
        )
        for zone, sold in listing.zones.items():
            for begins, price in sold.spot:
                move = partial(market.move_spot_price, name, zone, price)
                if begins <= 0.0:
                    move()
                else:
                    agenda.plan_at(begins, Turn.MARKET, move)
    return market
