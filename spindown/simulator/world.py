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
from spindown.contract.name import SEPARATOR
from spindown.contract.queue import queue_of_shape
from spindown.contract.settings import (
    DeploymentSettings,
    RegionSettings,
    RunSettings,
    TemplateRef,
    WorkloadSettings,
)
from spindown.domain.fleet import Backlog, all_of
from spindown.domain.policy import JobNeeds, Policy
from spindown.ec2sim import Turn
from spindown.memory import (
    MemoryInputSource,
    MemoryJobQueue,
    MemoryObjectStore,
    MemorySettingsStore,
    MemoryTable,
)
from spindown.memory.interception import Interceptor, intercept
from spindown.port import ControlPorts, JobQueue, LaunchedInstance, WorkPorts
from spindown.simulator.compute import SimCompute
from spindown.simulator.poll_queue import PollQueue
from spindown.simulator.record import Silence, SimRecorder
from spindown.simulator.scenario import SimScenario
from spindown.simulator.worker import SimSite, SimWorker

P = TypeVar("P")
DEPLOYMENT = "simulated"
WORKLOAD = "work"
#: URL of the entry queue, and of that for dead letters.
_QUEUE, _DEAD = "queue", "dead"


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
        route: Callable[[], None],
        interceptor: Interceptor | None = None,
    ) -> None:
        """Begin with an empty queue and no instance.

        Args:
            scenario: what the world is like.
            policy: as deployed.
            seed: of all that is random; each kind of chance has a stream of its own.
            record: where everything is noted.
            tell: gives an event of EC2's to the functions.
            route: has the messages routed that people have sent.
            interceptor: stands before what functions ("control ...") and workers ("work ...") call.
        """
        self.agenda = agenda = record.agenda
        clock = agenda.clock
        self.record = record
        self._scenario = scenario
        self._seed = seed
        self.has_types = scenario.has_types
        self._tell = tell
        self._route = route
        self._interceptor = interceptor
        self._boots = Random(f"{seed}/boot")
        self.workers: dict[str, SimWorker] = {}
        self.dead_letters, self.queue = self._make_queues()
        self._opened: dict[str, JobQueue] = {}
        #: Shape -> its queue; "": that which people know.
        self.queues: dict[str, MemoryJobQueue] = {"": self.queue}
        self.objects = MemoryObjectStore(clock, noncurrent_versions=1)
        self.table = MemoryTable(clock, shares_rows=True)
        self._machines = {
            x.instance_type.name: (x.instance_type, x.speed) for x in scenario.listings
        }
        ours = {
            tag.DEPLOYMENT: DEPLOYMENT,
            tag.WORKLOAD: WORKLOAD,
            tag.REGION: scenario.listings[0].region,
        }
        self.compute = SimCompute(
            scenario,
            agenda=agenda,
            random=Random(f"{seed}/market"),
            record=record,
            watcher=self,
            template_tags={_template(region).id: ours for region in _regions(scenario)},
        )
        self.control = self._make_control(policy)
        #: Of workers and of the intake.
        self.work = self._make_work()
        self._poll_queues: dict[str, PollQueue] = {}
        self._sites: dict[str, SimSite] = {}

    @property
    def backlog(self) -> Backlog:
        """Return what waits in all queues, and is worked on."""
        return all_of([queue.backlog() for queue in self.queues.values() if queue.is_there])

    def serve(self) -> None:
        """Hand out what has become visible in any queue."""
        for poll_queue in self._poll_queues.values():
            poll_queue.serve()

    def _make_queues(self) -> tuple[MemoryJobQueue, MemoryJobQueue]:
        dead = MemoryJobQueue(self.agenda.clock, Random(f"{self._seed}/dead"), name=_DEAD)
        return dead, self._make_queue(_QUEUE, dead, exists=True)

    def _make_queue(self, url: str, dead: MemoryJobQueue, *, exists: bool) -> MemoryJobQueue:
        return MemoryJobQueue(
            self.agenda.clock,
            Random(f"{self._seed}/{url}"),
            name=url,
            dead_letter=dead,
            disorder=self._scenario.disorder,
            exists=exists,
        )

    def _queue_of(self, shape: str) -> MemoryJobQueue:
        """Return the queue of a shape, which somebody may have yet to make."""
        if shape not in self.queues:
            url = queue_of_shape(_QUEUE, shape)
            self.queues[shape] = self._make_queue(url, self.dead_letters, exists=False)
        return self.queues[shape]

    def _site(self, shape: str) -> SimSite:
        """Return what the workers of a shape share."""
        if shape not in self._sites:
            queue = self._queue_of(shape)
            name = f"{self._seed}/handout" + (f"/{shape}" if shape else "")
            polls = self._poll_queues[shape] = PollQueue(self.agenda, queue, Random(name))
            self._sites[shape] = SimSite(
                workload=WORKLOAD,
                deployment=DEPLOYMENT,
                shape=shape,
                agenda=self.agenda,
                ports=replace(self.work, queue=self._watched(queue, "work queue")),
                poll_queue=self._watched(polls, "work polls"),
                record=self.record,
                delays=self._scenario.delays,
                power_off=self.compute.power_off,
            )
        return self._sites[shape]

    def _make_control(self, policy: Policy) -> ControlPorts:
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
            queue_url=_QUEUE,
            dlq_url=_DEAD,
            log_group="log",
            regions={
                region: RegionSettings(
                    subnets={zone: f"subnet-{zone}" for zone in zones},
                    templates=dict.fromkeys(_architectures(scenario, region), _template(region)),
                )
                for region, zones in regions.items()
            },
            run=RunSettings(slots=scenario.slots, root_volume_gib=scenario.root_volume_gib),
            requirements=scenario.requirements,
            # Where no job states a type, nothing has to be routed.
            policy=policy
            if self.has_types
            else replace(policy, types=(), requirements_at_most=JobNeeds()),
        )
        return ControlPorts(
            name=deployment.name,
            clock=clock,
            random=Random(f"{self._seed}/control"),
            table=self._watched(self.table, "control table"),
            objects=self._watched(self.objects, "control objects"),
            settings=MemorySettingsStore(clock, deployment, {WORKLOAD: workload}),
            compute=self._watched(self.compute, "control compute"),
            market=self.compute.market,
            metrics=Silence(),
            queue=self._open,
            router=self,
        )

    def _open(self, url: str) -> JobQueue:
        if url == _DEAD:
            return self.dead_letters
        shape = url.removeprefix(_QUEUE).removeprefix(SEPARATOR)
        if shape not in self._opened:
            self._opened[shape] = self._watched(self._queue_of(shape), "control queue")
        return self._opened[shape]

    def wake(self, workload: str) -> None:  # noqa: ARG002 - there is one
        """Let the intake run."""
        self.agenda.plan_in(self._scenario.delays.event, Turn.EVENT, self._route)

    def _make_work(self) -> WorkPorts:
        return WorkPorts(
            clock=self.agenda.clock,
            random=Random(f"{self._seed}/work"),
            pause=lambda _: None,
            queue=self._watched(self.queue, "work queue"),
            dead_letters=self.dead_letters,
            objects=self._watched(self.objects, "work objects"),
            inputs=MemoryInputSource({}, ()),
            table=self._watched(self.table, "work table"),
            metrics=Silence(),
            queue_of=self._queue_of if self.has_types else None,
        )

    def _watched(self, port: P, name: str) -> P:
        return port if self._interceptor is None else intercept(port, name, self._interceptor)

    def launched(self, given: LaunchedInstance) -> None:
        """Let a worker come up on a new instance."""
        tags = self.compute.ec2.instances[given.instance_id].tags
        machine, speed = self._machines[given.instance_type]
        worker = SimWorker(
            self._site(tags.get(tag.SHAPE, "")),
            instance_id=given.instance_id,
            machine=machine,
            speed=speed,
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
