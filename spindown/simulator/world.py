"""The simulated world: every port in memory, a market that moves, instances that live.

Only what is outside of Spindown is modelled here; what Spindown does is the shipped code's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import TypeVar

from spindown.contract import tag
from spindown.contract.event import InstanceEvent
from spindown.contract.settings import (
    DeploymentSettings,
    Outpost,
    RunSettings,
    TemplateRef,
    WorkloadSettings,
)
from spindown.domain.policy import Needs, Policy
from spindown.ec2sim import Turn
from spindown.job.held import WorkPorts
from spindown.memory import (
    MemoryInputSource,
    MemoryJobQueue,
    MemoryObjectStore,
    MemorySettingsStore,
    MemoryTable,
)
from spindown.memory.interception import Interceptor, intercept
from spindown.port import ControlPorts, LaunchedInstance
from spindown.simulator.compute import SimCompute
from spindown.simulator.poll_queue import PollQueue
from spindown.simulator.record import Silence, SimRecorder
from spindown.simulator.scenario import SimScenario
from spindown.simulator.worker import SimSite, SimWorker

P = TypeVar("P")
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
        record: SimRecorder,
        tell: Callable[[InstanceEvent], None],
        interceptor: Interceptor | None = None,
    ) -> None:
        """Begin with an empty queue and no instance.

        Args:
            scenario: what the world is like.
            policy: as deployed.
            seed: of all that is random; each kind of chance has a stream of its own.
            record: where everything is noted.
            tell: gives an event of EC2's to the functions.
            interceptor: stands before what functions ("control ...") and workers ("work ...") call.
        """
        self.agenda = agenda = record.agenda
        clock = agenda.clock
        self.record = record
        self._scenario = scenario
        self._tell = tell
        self._interceptor = interceptor
        self._boots = Random(f"{seed}/boot")
        self.workers: dict[str, SimWorker] = {}
        self.dead_letters, self.queue = self._make_queues(seed)
        self.objects = MemoryObjectStore(clock, noncurrent_versions=1)
        self.table = MemoryTable(clock, shares_rows=True)
        self._speeds = {each.instance_type.name: each.speed for each in scenario.listings}
        ours = {tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: WORKLOAD}
        self.compute = SimCompute(
            scenario,
            agenda=agenda,
            random=Random(f"{seed}/market"),
            record=record,
            watcher=self,
            template_tags={_template(region).id: ours for region in _regions(scenario)},
        )
        self.control = self._make_control(policy, seed)
        self.poll_queue = PollQueue(agenda, self.queue, Random(f"{seed}/handout"))
        self._site = SimSite(
            workload=WORKLOAD,
            deployment=DEPLOYMENT,
            agenda=agenda,
            ports=self._make_work(seed),
            poll_queue=self._watched(self.poll_queue, "work polls"),
            record=record,
            delays=scenario.delays,
            power_off=self.compute.power_off,
        )

    def _make_queues(self, seed: int) -> tuple[MemoryJobQueue, MemoryJobQueue]:
        clock = self.agenda.clock
        dead = MemoryJobQueue(clock, Random(f"{seed}/dead"), name="dead")
        queue = MemoryJobQueue(
            clock,
            Random(f"{seed}/queue"),
            name="queue",
            dead_letter=dead,
            disorder=self._scenario.disorder,
        )
        return dead, queue

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
            # Jobs of types are not played: nobody would route them.
            policy=replace(policy, types=(), requirements_at_most=Needs()),
        )
        queue = self._watched(self.queue, "control queue")
        return ControlPorts(
            name=deployment.name,
            clock=clock,
            random=Random(f"{seed}/control"),
            table=self._watched(self.table, "control table"),
            objects=self._watched(self.objects, "control objects"),
            settings=MemorySettingsStore(clock, deployment, {WORKLOAD: workload}),
            compute=self._watched(self.compute, "control compute"),
            market=self.compute.market,
            metrics=Silence(),
            queue=lambda _: queue,
        )

    def _make_work(self, seed: int) -> WorkPorts:
        return WorkPorts(
            clock=self.agenda.clock,
            random=Random(f"{seed}/work"),
            pause=lambda _: None,
            queue=self._watched(self.queue, "work queue"),
            dead_letters=self.dead_letters,
            objects=self._watched(self.objects, "work objects"),
            inputs=MemoryInputSource({}, ()),
            table=self._watched(self.table, "work table"),
            metrics=Silence(),
        )

    def _watched(self, port: P, name: str) -> P:
        return port if self._interceptor is None else intercept(port, name, self._interceptor)

    def launched(self, given: LaunchedInstance) -> None:
        """Let a worker come up on a new instance."""
        worker = SimWorker(
            self._site,
            instance_id=given.instance_id,
            speed=self._speeds[given.instance_type],
            launched_at=self.agenda.now,
        )
        self.workers[given.instance_id] = worker
        boots_in = self._scenario.boot.draw(self._boots)
        self.agenda.plan_in(boots_in, Turn.WORKER, worker.check_in)

    def warned(self, instance_id: str, deadline: datetime) -> None:
        """Let a worker see what its metadata announces."""
        self.workers[instance_id].notice(deadline)

    def gone(self, instance_id: str) -> None:
        """Let a worker stop where it stands."""
        self.workers[instance_id].kill()

    def tell(self, event: InstanceEvent) -> None:
        """Give an event to the functions."""
        self._tell(event)


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
