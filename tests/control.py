"""A deployment in memory: the control plane's ports, a market of a few types, time by hand."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from spindown.contract import tag
from spindown.contract.codec import encode
from spindown.contract.decision import Decision
from spindown.contract.queue import queue_of_shape
from spindown.contract.row import (
    CLAIMS,
    control_partition,
    done_sort_key,
    lease_sort_key,
    live_partition,
    machine_sort_key,
    worker_partition,
    worker_sort_key,
)
from spindown.contract.settings import (
    BakeSettings,
    DeploymentSettings,
    RegionSettings,
    RunSettings,
    TemplateRef,
    WorkloadSettings,
    on_spot,
)
from spindown.control.market import types_on_sale, types_within_reach
from spindown.control.tick import run_tick
from spindown.domain.batch import EndsTold
from spindown.domain.fleet import Lease, Worker, WorkerState
from spindown.domain.offer import CapacityType, InstanceRequirements, Pool
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.job.route import Routed, route
from spindown.ledger import Ledger, LedgerView
from spindown.memory import (
    MemoryClock,
    MemoryCompute,
    MemoryImageBuilder,
    MemoryInputSource,
    MemoryJobQueue,
    MemoryMarket,
    MemoryMetricSink,
    MemoryObjectStore,
    MemorySettingsStore,
    MemoryTable,
    MemoryTopic,
    PortCall,
    intercept,
)
from spindown.port import (
    SETTINGS_FOR,
    ControlPorts,
    Key,
    LaunchOverride,
    LaunchRequest,
    Outgoing,
    WorkPorts,
    Write,
)
from tests.builders import AT_ONCE, NOW, a_type
from tests.day import day_rows

DEPLOYMENT = "demo"
WORKLOAD = "classify"
REGION = "us-west-2"
ZONES = ("us-west-2a", "us-west-2b")
TEMPLATE = TemplateRef(id="lt-1", version="3")
SPOT_TEMPLATE = TemplateRef(id="lt-3", version="1")
#: What a launch is made of in the region: its template, its subnets, the code.
LAUNCH_VERSION = "lt-1@3 subnet-a subnet-b abc"
#: What bakes its images, if it has any baked.
PIPELINE = "arn:aws:imagebuilder:us-west-2:123456789012:image-pipeline/demo--classify--x86-64"
#: A second region, for the worlds that have one.
AWAY = "eu-west-1"
AWAY_ZONE = "eu-west-1a"
AWAY_TEMPLATE = TemplateRef(id="lt-2", version="1")

#: name -> on-demand price, spot price in both zones.
PRICES = {
    "g4dn.xlarge": (0.526, 0.20),
    "g6.xlarge": (0.805, 0.35),
    "g5.xlarge": (1.006, 0.45),
}

#: A policy under which offers are tried one by one, the lowest price first.
STRICT = {"band": 0.0, "rank_by": "price"}


def a_pool_of(name: str, zone: str = ZONES[0], kind: CapacityType = CapacityType.SPOT) -> Pool:
    return Pool(instance_type=name, zone=zone, capacity_type=kind)


def every_spot_pool() -> list[Pool]:
    """Return the pools of the first region."""
    return [a_pool_of(name, zone) for name in PRICES for zone in ZONES]


@dataclass
class ControlWorld:
    """One workload of one deployment; every port call is counted and can be interfered with."""

    policy: Policy = AT_ONCE
    budget: float | None = None
    requirements: InstanceRequirements = field(default_factory=InstanceRequirements)
    #: (type, spot price) that a second region sells, at the on-demand prices of the first.
    away: tuple[tuple[str, float], ...] = ()
    #: Tags of the account; with some, launches on spot have a template of their own.
    tags: Mapping[str, str] = field(default_factory=dict)
    #: Which failures people are told.
    batches_told: EndsTold = EndsTold.ALL
    #: What images are baked with; "": none is.
    stamp: str = ""
    #: Called with each port call and what carries it out.
    interfere: Callable[[PortCall, Callable[[], Any]], Any] | None = None
    calls: Counter[str] = field(default_factory=Counter)
    ticks: int = 0

    def __post_init__(self) -> None:
        self.clock = MemoryClock(NOW)
        self.table = self.make_table()
        self.objects = MemoryObjectStore(self.clock)
        self.market = MemoryMarket(self.clock)
        self.queue = MemoryJobQueue(self.clock, Random(1))
        self.dead_letters = MemoryJobQueue(self.clock, Random(2), name="dead")
        #: URL -> queue of a shape, made or not.
        self.shape_queues: dict[str, MemoryJobQueue] = {}
        #: Whether the tick has asked for messages to be routed.
        self.is_woken = False
        self.metrics = MemoryMetricSink()
        self.topic = MemoryTopic()
        self.builder = MemoryImageBuilder([PIPELINE])
        self.compute = MemoryCompute(
            self.clock,
            self.market,
            template_tags={
                template.id: {
                    tag.DEPLOYMENT: DEPLOYMENT,
                    tag.WORKLOAD: WORKLOAD,
                    tag.REGION: REGION,
                }
                for template in (TEMPLATE, SPOT_TEMPLATE, AWAY_TEMPLATE)
            },
        )
        for name, spot in self.away:
            self.market.offer(
                a_type(name), region=AWAY, zones=[AWAY_ZONE], on_demand=PRICES[name][0], spot=spot
            )
        for name, (on_demand, spot) in PRICES.items():
            self.market.offer(
                a_type(name), region=REGION, zones=ZONES, on_demand=on_demand, spot=spot
            )
        self.settings = MemorySettingsStore(
            self.clock,
            DeploymentSettings(
                name=DEPLOYMENT,
                region=REGION,
                table="demo--ledger",
                bucket="demo-bucket",
                workloads=(WORKLOAD,),
                scaler="demo--scaler",
                budget_per_month=self.budget,
                tags=self.tags,
                batches_told=self.batches_told,
            ),
            {WORKLOAD: self.workload_settings()},
        )
        self.ports = ControlPorts(
            name=DEPLOYMENT,
            clock=self.clock,
            random=Random(3),
            table=intercept(self.table, "table", self._call),
            objects=intercept(self.objects, "objects", self._call),
            settings=intercept(self.settings, "settings", self._call),
            compute=intercept(self.compute, "compute", self._call),
            market=intercept(self.market, "market", self._call),
            metrics=self.metrics,
            queue=lambda url: intercept(self.queue_at(url), "queue", self._call),
            router=intercept(self, "router", self._call),
            topic=intercept(self.topic, "topic", self._call),
            builder=intercept(self.builder, "builder", self._call),
        )

    def make_table(self) -> MemoryTable:
        return MemoryTable(self.clock)

    def workload_settings(self) -> WorkloadSettings:
        home = RegionSettings(
            subnets={zone: f"subnet-{zone[-1]}" for zone in ZONES},
            templates={
                "x86_64": TEMPLATE,
                **({on_spot("x86_64"): SPOT_TEMPLATE} if self.tags else {}),
            },
        )
        away = RegionSettings(subnets={AWAY_ZONE: "subnet-z"}, templates={"x86_64": AWAY_TEMPLATE})
        return WorkloadSettings(
            name=WORKLOAD,
            queue_url="https://sqs/demo--classify",
            dlq_url="https://sqs/demo--classify--dlq",
            log_group="/spindown/demo/classify",
            regions={REGION: home, **({AWAY: away} if self.away else {})},
            outposts=(AWAY,) if self.away else (),
            run=RunSettings(code_digest="abc"),
            requirements=self.requirements,
            policy=self.policy,
            bake=BakeSettings(pipelines={"x86_64": PIPELINE}, stamp=self.stamp)
            if self.stamp
            else None,
        )

    def _call(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        self.calls[f"{call.port}.{call.method}"] += 1
        return proceed() if self.interfere is None else self.interfere(call, proceed)

    def just_before(self, method: str, act: Callable[[], object]) -> None:
        """Let somebody else act before the next call of a method, and none after it."""

        def meanwhile(call: PortCall, proceed: Callable[[], Any]) -> Any:
            if call.method == method and self.interfere is meanwhile:
                self.interfere = None
                act()
            return proceed()

        self.interfere = meanwhile

    def queue_at(self, url: str) -> MemoryJobQueue:
        """Return the queue at a URL; that of a shape may not be made yet."""
        settings = self.workload_settings()
        if url in {settings.queue_url, settings.dlq_url}:
            return self.queue if url == settings.queue_url else self.dead_letters
        if url not in self.shape_queues:
            made = MemoryJobQueue(
                self.clock,
                Random(3),
                name=url.rpartition("--")[2],
                dead_letter=self.dead_letters,
                exists=False,
            )
            self.shape_queues[url] = made
        return self.shape_queues[url]

    def queue_of(self, shape: str) -> MemoryJobQueue:
        """Return the queue of a shape; "": the entry queue."""
        return self.queue_at(queue_of_shape(self.workload_settings().queue_url, shape))

    def wake(self, workload: str) -> None:
        """Remember that the tick wants messages to be routed, as the router's port."""
        assert workload == WORKLOAD
        self.is_woken = True

    def route(self) -> Routed:
        """Route what waits, as the function does that a tick wakes."""
        self.is_woken = False
        settings = self.workload_settings()
        sold = types_on_sale(settings, self.ports, self.clock.now())
        reach = types_within_reach(sold, settings, self.policy, self.ports, self.clock.now())
        work = self.work_ports()
        return route(settings, self.policy, work, self.ports, sold=sold, within_reach=reach)

    def work_ports(self) -> WorkPorts:
        """Return the ports of what is done with messages."""
        settings = self.workload_settings()
        return WorkPorts(
            clock=self.clock,
            random=Random(4),
            pause=self._pause,
            queue=self.ports.queue(settings.queue_url),
            dead_letters=self.ports.queue(settings.dlq_url),
            objects=intercept(self.work_objects, "objects", self._call),
            inputs=MemoryInputSource({}, []),
            table=self.ports.table,
            metrics=self.metrics,
        )

    def _pause(self, length: timedelta) -> None:
        self.clock.advance(length)

    def change_policy(self, **changes: Any) -> None:
        """Change the policy as deployed, once nobody remembers the old one."""
        self.policy = replace(self.policy, **changes)
        self.settings.deploy(self.workload_settings())
        self.clock.advance(SETTINGS_FOR)

    @property
    def work_objects(self) -> MemoryObjectStore:
        """Return the workload's part of the bucket, which here is all of it."""
        return self.objects

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def send(self, jobs: int = 1) -> None:
        self.queue.send([Outgoing(body=f'{{"items": [{n}]}}') for n in range(jobs)])

    def ask(self, job_id: str, **asked: Any) -> None:
        """Send a job with what it asks for."""
        body = {"items": ["a"], "job_id": job_id, **asked}
        self.queue.send([Outgoing(body=json.dumps(body))])

    def tick(self, after: timedelta = timedelta(0), *, source: str = "spindown.tick") -> Decision:
        """Move on, then tick once."""
        self.clock.advance(after)
        self.ticks += 1
        decision = run_tick(WORKLOAD, self.ports, holder=f"tick-{self.ticks}", source=source)
        if self.is_woken:
            self.route()
        return decision

    def run(self, minutes: int, *, beats: bool = False) -> list[Decision]:
        """Tick every minute; with ``beats`` workers show that they live meanwhile."""
        decisions = []
        for _ in range(minutes):
            decisions.append(self.tick(timedelta(minutes=1)))
            if beats:
                self.beat()
        return decisions

    def view(self) -> LedgerView:
        return Ledger(self.table, WORKLOAD).read()

    def workers(self, *states: WorkerState) -> list[Worker]:
        found = self.view().workers.values()
        return [w for w in found if not states or w.state in states]

    def row(self, sort: str) -> dict[str, Any] | None:
        return self.table.get(live_key(sort))

    def partition(self) -> dict[str, dict[str, Any]]:
        """Return all live rows."""
        parts = map(self.table.query, (control_partition(WORKLOAD), worker_partition(WORKLOAD)))
        return {sort: row for part in parts for sort, row in part.items()}

    def put(self, sort: str, **values: Any) -> None:
        """Change a row as another process would."""
        self.table.write(Write(key=live_key(sort), set=encode(values)))

    def put_day(self, at: datetime, day: Any = None, **values: Any) -> None:
        """Change what a day has come to."""
        for sort, row in day_rows(at, day or values).items():
            self.put(sort, **row)

    def remove(self, sort: str) -> None:
        """Lose a row."""
        self.table.write(Write(key=live_key(sort), delete=True))

    def check_in(self, instance_id: str) -> None:
        self.change(
            instance_id,
            state=WorkerState.IDLE,
            checked_in_at=self.now,
            first_item_at=self.now,
            heartbeat_at=self.now,
            idle_since=self.now,
        )

    def beat(self) -> None:
        """Let every worker that has checked in show that it lives, and keep its jobs."""
        for lease in self.view().leases:
            self.queue.extend(lease.receipt_handle, timedelta(minutes=5))
            deadline = self.now + timedelta(minutes=5)
            self.put(lease_sort_key(lease.instance_id, lease.slot), deadline=deadline)
        for worker in self.workers(WorkerState.IDLE, WorkerState.BUSY):
            self.put(worker_sort_key(worker.instance_id), heartbeat_at=self.now)

    def finish(self, lease: Lease) -> None:
        """Let a worker complete its job."""
        self.queue.delete(lease.receipt_handle)
        self.remove(lease_sort_key(lease.instance_id, lease.slot))
        self.change(lease.instance_id, state=WorkerState.IDLE, busy_slots=0, idle_since=self.now)

    def claim(self, instance_id: str, job_id: str = "job-1") -> Lease:
        """Let a worker take a job off the queue of its shape, as far as the ledger sees it."""
        shape = self.view().workers[instance_id].shape
        queue = self.queue_of(shape)
        message = queue.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
        assert message is not None
        lease = Lease(
            instance_id=instance_id,
            slot=0,
            job_id=job_id,
            epoch=1,
            receipt_handle=message.receipt_handle,
            deadline=self.now + timedelta(minutes=5),
            not_after=self.now + timedelta(hours=11),
            claimed_at=self.now,
            sent_at=message.sent_at,
            shape=shape,
        )
        self.put(lease_sort_key(instance_id, 0), **encode(lease))
        self.change(
            instance_id, state=WorkerState.BUSY, busy_slots=1, idle_since=None, claimed_at=self.now
        )
        self.table.write(Write(key=live_key(CLAIMS), add={"claims": 1}))
        return lease

    def do_items(self, items: int) -> None:
        """Let a worker have done items today."""
        self.table.write(Write(key=live_key(done_sort_key(self.now)), add={"items": items}))

    def empty_the_queue(self) -> None:
        """Let others take and complete all that waits."""
        while message := self.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=1)):
            self.queue.delete(message.receipt_handle)

    def change(self, instance_id: str, **values: Any) -> None:
        """Change a worker's state as the worker itself would."""
        version = self.view().workers[instance_id].version
        self.put(worker_sort_key(instance_id), **values, version=version + 1)

    def end(self, instance_id: str) -> None:
        """End a worker's rows as a tick would."""
        self.put(worker_sort_key(instance_id), state=WorkerState.ENDED, ended_at=self.now)
        self.put(machine_sort_key(instance_id), ended_at=self.now)

    def launched(self, jobs: int = 1, **policy: Any) -> Worker:
        """Let a job arrive and one worker come up for it, then the other jobs; return it."""
        self.send(1)
        decision = self.tick()
        (instance_id,) = [i for a in decision.requests for i in a.instances]
        self.clock.advance(timedelta(minutes=2))
        self.check_in(instance_id)
        self.send(jobs - 1)
        return self.view().workers[instance_id]

    def launch_astray(self, zone: str = ZONES[0], **tags: str) -> str:
        """Let an instance with these tags run that no row knows; return its id."""
        subnet = f"subnet-{zone[-1]}"
        answer = self.compute.launch(
            LaunchRequest(
                client_token=f"astray-{zone}-{tags}",
                region=REGION,
                template=TEMPLATE,
                capacity_type=CapacityType.SPOT,
                overrides=(LaunchOverride(instance_type="g6.xlarge", zone=zone, subnet_id=subnet),),
                count=1,
                tags=tags,
            )
        )
        (instance,) = answer.instances
        return instance.instance_id

    def dry(self, *pools: Pool) -> None:
        for pool in pools:
            self.compute.set_capacity(pool, 0)

    def metric(self, name: str) -> float:
        """Return the last value of a metric."""
        return self.metrics.values(name)[-1]


def live_key(sort: str) -> Key:
    """Return where a live row of the workload lies."""
    return Key(partition=live_partition(WORKLOAD, sort), sort=sort)


def pools(decision: Decision) -> list[str]:
    """Return the pools that a decision's instances came from."""
    return [pool for request in decision.requests for pool in request.instances.values()]


def codes(decision: Decision) -> list[ReasonCode]:
    """Return the codes of what a decision notes."""
    return [note.code for note in decision.notes]


def with_policy(**changes: Any) -> ControlWorld:
    return ControlWorld(policy=replace(AT_ONCE, **changes))
