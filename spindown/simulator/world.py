"""The simulated world: every port in memory, a market that moves, instances that live.

Only what is outside of Spindown is modelled here; what Spindown does is the shipped code's.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random

from spindown.app.control import ControlPorts
from spindown.app.port import LaunchedInstance
from spindown.app.work.held import WorkPorts
from spindown.contract import tag
from spindown.contract.event import InstanceEvent
from spindown.contract.settings import (
    DeploymentSettings,
    Outpost,
    RunSettings,
    TemplateRef,
    WorkloadSettings,
)
from spindown.domain.offer import CapacityType, Pool, extra_price_per_hour
from spindown.domain.policy import Policy
from spindown.memory import (
    MemoryCompute,
    MemoryInputSource,
    MemoryJobQueue,
    MemoryMarket,
    MemoryObjectStore,
    MemorySettingsStore,
    MemoryTable,
)
from spindown.simulator.agenda import Agenda, Turn
from spindown.simulator.compute import Fate, SimCompute
from spindown.simulator.handout import Handout
from spindown.simulator.result import Recorder, Silence
from spindown.simulator.scenario import Listing, SimScenario, Zone
from spindown.simulator.site import Site
from spindown.simulator.worker import SimWorker

DEPLOYMENT = "simulated"
WORKLOAD = "work"


class World:
    """What surrounds the control plane and the workers of one run."""

    def __init__(
        self,
        scenario: SimScenario,
        policy: Policy,
        *,
        seed: int,
        record: Recorder,
        tell: Callable[[InstanceEvent], None],
    ) -> None:
        """Begin with an empty queue and no instance.

        Args:
            scenario: what the world is like.
            policy: as deployed.
            seed: of all that is random; each kind of chance draws from a stream of its own.
            record: where everything is noted.
            tell: gives an event of EC2's to the functions.
        """
        self.agenda = agenda = record.agenda
        clock = agenda.clock
        self.record = record
        self._scenario = scenario
        self._boots = Random(f"{seed}/boot")
        self.workers: dict[str, SimWorker] = {}
        self.dead_letters = MemoryJobQueue(clock, Random(f"{seed}/dead"), name="dead")
        self.queue = MemoryJobQueue(
            clock,
            Random(f"{seed}/queue"),
            name="queue",
            dead_letter=self.dead_letters,
            disorder=scenario.disorder,
        )
        self.objects = MemoryObjectStore(clock, noncurrent_versions=1)
        self.table = MemoryTable(clock)
        self.market = MemoryMarket(clock)
        self._speeds = {each.instance_type.name: each.speed for each in scenario.listings}
        for listing in scenario.listings:
            _list(listing, self.market, agenda)
        self.inner = self._make_inner()
        self.compute = self._make_compute(seed, tell)
        self.control = self._make_control(policy, seed)
        self.handout = Handout(agenda, self.queue, Random(f"{seed}/handout"))
        self._site = Site(
            workload=WORKLOAD,
            deployment=DEPLOYMENT,
            agenda=agenda,
            ports=self._make_work(seed),
            handout=self.handout,
            record=record,
            delays=scenario.delays,
            power_off=self.compute.power_off,
        )

    def _make_inner(self) -> MemoryCompute:
        delays = self._scenario.delays
        ours = {tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: WORKLOAD}
        return MemoryCompute(
            self.agenda.clock,
            self.market,
            ending=timedelta(seconds=delays.ending),
            lag=timedelta(seconds=delays.described),
            extra_price_per_hour=extra_price_per_hour(self._scenario.root_volume_gib),
            template_tags={_template(region).id: ours for region in _regions(self._scenario)},
        )

    def _make_compute(self, seed: int, tell: Callable[[InstanceEvent], None]) -> SimCompute:
        return SimCompute(
            self.inner,
            agenda=self.agenda,
            random=Random(f"{seed}/market"),
            record=self.record,
            fates=_fates(self._scenario),
            delays=self._scenario.delays,
            notice_missing=self._scenario.notice_missing,
            launched=self._launched,
            gone=self._gone,
            warned=self._warned,
            tell=tell,
        )

    def _make_control(self, policy: Policy, seed: int) -> ControlPorts:
        scenario, clock = self._scenario, self.agenda.clock
        regions = _regions(scenario)
        deployment = DeploymentSettings(
            name=DEPLOYMENT,
            region=scenario.listings[0].region,
            table="ledger",
            bucket="bucket",
            workloads=(WORKLOAD,),
            scaler="scaler",
            budget_per_month=scenario.budget_per_month,
        )
        workload = WorkloadSettings(
            name=WORKLOAD,
            queue_url="queue",
            dlq_url="dead",
            log_group="log",
            outposts={
                region: Outpost(
                    subnets={zone: f"subnet-{zone}" for zone in zones},
                    templates=dict.fromkeys(_architectures(scenario, region), _template(region)),
                )
                for region, zones in regions.items()
            },
            run=RunSettings(slots=scenario.slots, root_volume_gib=scenario.root_volume_gib),
            requirements=scenario.requirements,
            policy=policy,
        )
        return ControlPorts(
            clock=clock,
            random=Random(f"{seed}/control"),
            table=self.table,
            objects=self.objects,
            settings=MemorySettingsStore(clock, deployment, {WORKLOAD: workload}),
            compute=self.compute,
            market=self.market,
            metrics=Silence(),
            queue=lambda _: self.queue,
        )

    def _make_work(self, seed: int) -> WorkPorts:
        return WorkPorts(
            clock=self.agenda.clock,
            random=Random(f"{seed}/work"),
            pause=lambda _: None,
            queue=self.queue,
            dead_letters=self.dead_letters,
            objects=self.objects,
            inputs=MemoryInputSource({}, ()),
            table=self.table,
            metrics=Silence(),
        )

    def _launched(self, given: LaunchedInstance) -> None:
        worker = SimWorker(
            self._site,
            instance_id=given.instance_id,
            speed=self._speeds[given.instance_type],
            launched_at=self.agenda.now,
        )
        self.workers[given.instance_id] = worker
        boots_in = self._scenario.boot.draw(self._boots)
        self.agenda.plan_in(boots_in, Turn.WORKER, worker.check_in)

    def _gone(self, instance_id: str) -> None:
        self.workers[instance_id].kill()

    def _warned(self, instance_id: str) -> None:
        worker = self.workers[instance_id]
        deadline = self.inner.metadata(instance_id).interruption()
        if deadline is not None:
            worker.notice(deadline)


def _list(listing: Listing, market: MemoryMarket, agenda: Agenda) -> None:
    """Offer a type, and let its prices move."""
    name = listing.instance_type.name
    market.offer(
        listing.instance_type,
        region=listing.region,
        zones=listing.zones,
        on_demand=listing.on_demand,
    )
    for zone, sold in listing.zones.items():
        for begins, price in sold.spot:
            agenda.plan_at(
                begins,
                Turn.MARKET,
                lambda zone=zone, price=price: market.move_spot_price(name, zone, price),  # type: ignore[misc]
            )
        if sold.spot and sold.spot[0][0] <= 0.0:
            market.move_spot_price(name, zone, sold.spot[0][1])


def _fates(scenario: SimScenario) -> Mapping[Pool, Fate]:
    found: dict[Pool, Fate] = {}
    for listing in scenario.listings:
        for name, zone in listing.zones.items():
            for capacity_type in CapacityType:
                pool = Pool(
                    instance_type=listing.instance_type.name,
                    zone=name,
                    capacity_type=capacity_type,
                )
                found[pool] = _fate(zone, capacity_type)
    return found


def _fate(zone: Zone, capacity_type: CapacityType) -> Fate:
    if capacity_type is CapacityType.ON_DEMAND:
        return Fate(reclaims_per_hour=0.0, capacity=zone.on_demand_capacity)
    return Fate(reclaims_per_hour=zone.reclaims_per_hour, capacity=zone.capacity)


def _regions(scenario: SimScenario) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for listing in scenario.listings:
        found.setdefault(listing.region, {}).update(dict.fromkeys(listing.zones))
    return {region: tuple(zones) for region, zones in found.items()}


def _architectures(scenario: SimScenario, region: str) -> list[str]:
    found = {x.instance_type.architecture for x in scenario.listings if x.region == region}
    return sorted(found)


def _template(region: str) -> TemplateRef:
    return TemplateRef(id=f"lt-{region}", version="1")
