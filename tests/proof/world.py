"""One world for both sides: ticks, events and workers over the same ports, time by hand."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from spindown.contract import tag
from spindown.contract.codec import decode
from spindown.contract.event import (
    InstanceEvent,
    InterruptionWarning,
    RebalanceRecommendation,
    StateChange,
)
from spindown.contract.job.manifest import decode_manifest
from spindown.contract.job.message import parse_job
from spindown.contract.settings import RunSettings, WorkloadSettings
from spindown.control.instance_event import react
from spindown.domain.fleet import Lease, Worker
from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import Policy
from spindown.ec2sim import Ec2Instance
from spindown.error import NotFound, SpindownError, StaleHandle
from spindown.job.cancel import cancel
from spindown.job.lease_row import lease_key
from spindown.job.worker_row import Condemned
from spindown.ledger import Ledger
from spindown.memory import MemoryInputSource, MemoryJobQueue, MemoryTable, PortCall, intercept
from spindown.port import Outgoing, WorkPorts
from tests.control import DEPLOYMENT, PRICES, REGION, WORKLOAD, ZONES, ControlWorld, a_pool_of
from tests.proof.fault import Crashed, Faults
from tests.proof.process import Process
from tests.slot import Script, square
from tests.unit.contract.test_s3_event import of_eventbridge

BUCKET = "s3://inputs/"
#: Where new objects are jobs.
SOURCE = "s3://scans/in/"
MINUTE = timedelta(minutes=1)
#: Small enough that jobs split, workers meet and lives end within one short story.
POLICY = replace(
    Policy(),
    max_items_per_job=4,
    max_workers=3,
    checkpoint_items=2,
    idle_timeout=3 * MINUTE,
    max_lifetime=4 * timedelta(hours=1),
)


class ProofWorld(ControlWorld):
    """A deployment with everything that runs in it; each fault is prepared in ``faults``."""

    workload = WORKLOAD
    deployment = DEPLOYMENT
    code_digest = "abc"

    def __post_init__(self) -> None:
        super().__post_init__()
        #: Instances that have asked for a message.
        self.asked: set[str] = set()
        self.random = Random(7)
        self.faults = Faults()
        self.interfere = self.faults
        self.dead_letters = MemoryJobQueue(self.clock, Random(2), name="dead")
        self.queue = MemoryJobQueue(self.clock, Random(1), dead_letter=self.dead_letters)
        self.sources: dict[str, bytes] = {}
        self.inputs = MemoryInputSource(self.sources, [BUCKET, SOURCE])
        #: Job id -> its items, as submitted.
        self.jobs: dict[str, list[str]] = {}
        #: Job id -> its message.
        self.sent: dict[str, str] = {}
        #: Messages that are no jobs.
        self.texts: list[str] = []
        self.cancelled: set[str] = set()
        #: Instance id -> its processes, the present one last.
        self.processes: dict[str, list[Process]] = {}
        #: The longest that a function of the control plane was held up.
        self.stalled = timedelta(0)
        #: When the catalogue was last refreshed.
        self.refreshed_at = self.now
        #: Instances whose image never gets as far as a worker.
        self.broken: set[str] = set()
        #: Pools of which none ever does.
        self.is_broken: Callable[[Pool], bool] = lambda _: False
        #: How long a launch takes until it could start one.
        self.boot_time = timedelta(0)
        #: What the code of the workload does.
        self.script: Script = square

    def make_table(self) -> MemoryTable:
        # Decodes each row once, however often the story and its invariants look at it.
        return MemoryTable(self.clock, shares_rows=True)

    def workload_settings(self) -> WorkloadSettings:
        run = RunSettings(code_digest=self.code_digest, slots="2")
        return replace(super().workload_settings(), run=run)

    def work_call(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        """Carry out a port call of a worker, or let it fail."""
        if call.port == "objects" and call.method == "put" and not self.faults.is_stalled:
            self._check_claim(*call.args)
        return self.faults(call, proceed)

    def _check_claim(self, key: str, data: bytes) -> None:
        """Nobody may claim a job under a lease, unless it lapsed while the claimer looked."""
        if not key.endswith("/manifest.json"):
            return
        with suppress(NotFound):
            standing = decode_manifest(self.objects.get(key).data)
            row = self.table.get(lease_key(WORKLOAD, standing.owner)) or {}
            is_of_it = row.get("job_id") == standing.job_id and row.get("epoch") == standing.epoch
            if decode_manifest(data).epoch > standing.epoch and is_of_it:
                assert decode(Lease, row).deadline <= self.now, f"{key} is claimed under a lease"

    # Users.

    def submit(self, count: int, *, stored: bool = False, **asked: Any) -> str:
        """Put a job on the queue, its items in the message or in an object.

        ``asked``: what else its message says.
        """
        job_id = f"job{len(self.jobs)}"
        items = [f"{job_id}-{number}" for number in range(count)]
        body: dict[str, Any] = {"job_id": job_id, "items": items}
        if stored:
            uri = f"{BUCKET}{job_id}.jsonl"
            self.sources[uri] = "".join(f'"{item}"\n' for item in items).encode()
            body = {"job_id": job_id, "items_uri": uri}
        self.jobs[job_id] = items
        self.sent[job_id] = json.dumps({**body, **asked})
        self.send_again(job_id)
        return job_id

    def drop(self, key: str, **about: Any) -> str:
        """Put an object where a source is, of which S3 sends an event.

        ``about``: what else the event says of it.
        """
        event = of_eventbridge(key, **about)
        job_id = parse_job(json.dumps(event)).job_id or ""
        uri = f"s3://scans/{key}"
        self.sources[uri] = b"scan"
        self.jobs[job_id] = [uri]
        self.sent[job_id] = json.dumps(event)
        self.send_again(job_id)
        return job_id

    def send_text(self, text: str) -> None:
        """Put a message on the queue that is no job."""
        self.texts.append(text)
        self.queue.send([Outgoing(body=text)])

    def send_again(self, job_id: str) -> None:
        """Send the message of a job, perhaps not for the first time."""
        self.queue.send([Outgoing(body=self.sent[job_id])])

    def cancel(self, job_id: str) -> None:
        """Cancel a job as `spindown cancel` does; the command may die of it."""
        self.cancelled.add(job_id)
        self.control(lambda: list(cancel(WORKLOAD, [job_id], self.user_ports())))

    def user_ports(self) -> WorkPorts:
        """Return the ports of a command that a user runs."""
        return WorkPorts(
            clock=self.clock,
            random=self.random,
            pause=self._pause,
            queue=intercept(self.queue, "queue", self.work_call),
            shapes={
                name: intercept(self.queue_of(name), "queue", self.work_call)
                for name in self.view().shapes
            },
            dead_letters=intercept(self.dead_letters, "dead_letters", self.work_call),
            objects=intercept(self.objects, "objects", self.work_call),
            inputs=self.inputs,
            table=intercept(self.table, "table", self.work_call),
            metrics=self.metrics,
        )

    def _pause(self, length: timedelta) -> None:
        self.clock.advance(length)

    def deliver_twice(self, number: int) -> None:
        """Show a message that is in flight to others too, as SQS may."""
        lease = pick(self.view().leases, number)
        if lease is not None:
            with suppress(StaleHandle):
                self.queue_of(lease.shape).extend(lease.receipt_handle, timedelta(0))

    # The control plane, each call a process of its own that may die.

    def control(self, act: Callable[[], object]) -> None:
        """Let a function of the control plane run, as far as the faults let it."""
        self.faults.hit, began_at = None, self.now
        try:
            act()
        except Crashed:
            return
        except SpindownError:
            if self.faults.hit is None:
                raise
        finally:
            self.stalled = max(self.stalled, self.now - began_at)

    def tick_once(self) -> None:
        self.control(self.tick)

    def hear(self, event: InstanceEvent) -> None:
        self.ticks += 1
        holder = f"event-{self.ticks}"
        self.control(lambda: react(event, self.ports, holder=holder))

    def event_of(self, instance: Ec2Instance, number: int) -> InstanceEvent | None:
        """Return a true event about an instance, if there is something to say."""
        about: dict[str, Any] = {"instance_id": instance.instance_id, "region": REGION}
        events: list[InstanceEvent] = [RebalanceRecommendation(**about, at=self.now)]
        if instance.notice is not None:
            events = [InterruptionWarning(**about, at=instance.notice.given_at)]
        at = instance.ended_at
        if at is not None:
            events += [
                StateChange(**about, at=at, state=s) for s in ("shutting-down", "terminated")
            ]
        event = events[number % len(events)]
        # EventBridge retries for a while, not for ever.
        return event if self.now - event.at < MINUTE * 30 else None

    # EC2 and what runs on it.

    @property
    def instances(self) -> list[Ec2Instance]:
        return list(self.compute.ec2.instances.values())

    @property
    def running(self) -> list[Ec2Instance]:
        return [i for i in self.instances if i.ended_at is None]

    @property
    def live(self) -> list[Process]:
        """Return the processes that are not dead, also those that only do not know it yet."""
        last = [found[-1] for found in self.processes.values() if found]
        return [process for process in last if not process.is_dead]

    @property
    def bootable(self) -> list[str]:
        """Return instances that run without a process and could start one."""
        names = [
            i.instance_id
            for i in self.running
            if i.instance_id not in self.broken
            and not self.is_broken(i.pool)
            and self.now - self.compute.ec2.instances[i.instance_id].launched_at >= self.boot_time
        ]
        return [n for n in names if all(p.is_dead for p in self.processes.get(n, ()))]

    def boot(self, instance_id: str) -> None:
        """Start a worker's process on an instance; its check-in may come to nothing."""
        for before in self.processes.get(instance_id, ()):
            before.die()
        try:
            process = Process(self, instance_id)
        except (Crashed, Condemned, NotFound):
            return
        except SpindownError:
            if self.faults.hit is None:
                raise
            return
        self.processes.setdefault(instance_id, []).append(process)

    def grow(self, workers: int) -> None:
        """Send jobs and let time pass until so many workers are up and at work."""
        for _ in range(20):
            if len(self.live) >= workers:
                break
            self.submit(4)
            self.submit(4)
            self.tick(MINUTE)
            for instance_id in self.bootable:
                self.boot(instance_id)
            for process in self.live:
                if process.is_free:
                    process.step(0)
                    process.step(0)
                process.beat()
        assert len(self.live) == workers

    def run_on(self, process: Process, act: Callable[[], object]) -> None:
        """Let a process do something; it may die of it."""
        if process.is_working:
            return
        process.is_working, self.faults.is_stalled = True, False
        try:
            act()
        except Crashed:
            return
        finally:
            process.is_working = False

    def reclaim(self, instance: Ec2Instance, *, notice: bool) -> None:
        """Take a spot instance away, with two minutes' notice or none."""
        if instance.pool.capacity_type is CapacityType.SPOT:
            self.compute.reclaim(instance.instance_id, notice=NOTICE if notice else timedelta(0))

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within, unless it is gone already."""
        if any(instance.instance_id == instance_id for instance in self.running):
            self.compute.power_off(instance_id)

    def dry_up(self, number: int, capacity: int | None) -> None:
        """Let a pool give so many more instances (None: without end)."""
        pools = [a_pool_of(n, z, k) for n in PRICES for z in ZONES for k in CapacityType]
        self.compute.set_capacity(pools[number % len(pools)], capacity)

    def dry_up_all(self, capacity: int | None) -> None:
        for number in range(len(PRICES) * len(ZONES) * len(CapacityType)):
            self.dry_up(number, capacity)

    def shape_of(self, instance_id: str) -> str:
        """Return the shape that an instance was launched for; "": none."""
        return self.compute.ec2.instances[instance_id].tags.get(tag.SHAPE, "")

    # What there is to see.

    def bodies(self) -> list[str]:
        """Return the body of every message in any queue of jobs."""
        others = [queue for queue in self.shape_queues.values() if queue.is_there]
        return [body for queue in (self.queue, *others) for body in queue.bodies()]

    def rows(self) -> dict[str, Worker]:
        """Return every worker that the ledger has ever known."""
        ended = Ledger(self.table, WORKLOAD).read_ended()
        return {**{w.instance_id: w for w in ended.values()}, **self.view().workers}


def a_world(**policy: Any) -> ProofWorld:
    """Return a deployment in which nothing has happened yet."""
    return ProofWorld(policy=replace(POLICY, **policy), budget=1000.0)


def pick(choices: Sequence[Any], number: int) -> Any:
    """Return one of several things by number; None if there is none."""
    return choices[number % len(choices)] if choices else None
