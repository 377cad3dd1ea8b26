"""A world in memory in which workers claim, commit and release jobs."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from spindown.contract.codec import decode, encode
from spindown.contract.job.manifest import (
    JobState,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_key,
)
from spindown.contract.job.result import ItemStatus, Record
from spindown.contract.row import POLICY, control_partition, worker_partition, worker_sort_key
from spindown.domain.fleet import Lease, Worker, WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.ec2sim import MemoryClock
from spindown.job.claim import Declined, claim
from spindown.job.claimed_job import ClaimedJob, Finished, SlotId
from spindown.job.commit import Portion
from spindown.job.item import settle_items
from spindown.job.lease_row import lease_key
from spindown.job.worker_row import WorkerRow
from spindown.memory.interception import PortCall, intercept
from spindown.memory.metric import MemoryMetricSink
from spindown.memory.queue import MemoryJobQueue
from spindown.memory.store import MemoryInputSource, MemoryObjectStore
from spindown.memory.table import MemoryTable
from spindown.port import Clock, Identity, Key, Message, Outgoing, WorkPorts, Write
from tests.part import decode_part

WORKLOAD = "classify"
BUCKET = "s3://inputs/"
PRICE = 0.36


#: A manifest as a later version may write it: it has the check that all versions keep.
NEWER_MANIFEST = encode_manifest(
    Manifest(
        job_id="j",
        epoch=9,
        owner="i-9/0",
        state=JobState.RUNNING,
        schema=2,
        extra={"fence": "elsewhere"},
    )
)


@dataclass
class WorkWorld:
    """The ports of a workload in memory, its clock moved by hand, every call counted."""

    clock: Any = field(default_factory=MemoryClock)
    policy: Policy = field(default_factory=Policy)
    calls: Counter[str] = field(default_factory=Counter)
    sources: dict[str, bytes] = field(default_factory=dict)
    #: Called before each port call; may raise.
    before: Callable[[PortCall], None] | None = None
    #: Called after each port call has had its effect; may raise.
    after: Callable[[PortCall], None] | None = None

    def __post_init__(self) -> None:
        clock: Clock = self.clock
        self.dead_letters = MemoryJobQueue(clock, Random(2), name="dead")
        self.queue = MemoryJobQueue(clock, Random(1), name="queue", dead_letter=self.dead_letters)
        self.objects = MemoryObjectStore(clock)
        self.table = MemoryTable(clock)
        self.metrics = MemoryMetricSink()
        self.ports = WorkPorts(
            clock=clock,
            random=Random(7),
            pause=self._pause,
            queue=intercept(self.queue, "queue", self._count),
            dead_letters=intercept(self.dead_letters, "dead_letters", self._count),
            objects=intercept(self.objects, "objects", self._count),
            inputs=MemoryInputSource(self.sources, [BUCKET]),
            table=intercept(self.table, "table", self._count),
            metrics=self.metrics,
        )
        self.presences: dict[str, WorkerRow] = {}
        self._counting = threading.Lock()

    def _pause(self, length: timedelta) -> None:
        if isinstance(self.clock, MemoryClock):
            self.clock.advance(length)
        else:
            threading.Event().wait(length.total_seconds())

    def _count(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        # What is read ahead is read in threads.
        with self._counting:
            self.calls[f"{call.port}.{call.method}"] += 1
        if self.before is not None:
            self.before(call)
        answer = proceed()
        if self.after is not None:
            self.after(call)
        return answer

    def just_before(self, method: str, act: Callable[[PortCall], object]) -> None:
        """Let somebody else act before the next call of a method, and none after it."""

        def be_quicker(call: PortCall) -> None:
            if call.method == method:
                self.before = None
                act(call)

        self.before = be_quicker

    def launch(self, instance_id: str = "i-1", **changes: Any) -> Worker:
        """Write the row of an instance that EC2 has just given."""
        worker = a_worker(instance_id, launched_at=self.clock.now())
        worker = replace(worker, **changes)
        self.table.write(Write(key=self.worker_key(instance_id), set=encode(worker)))
        return worker

    def worker_row(self, instance_id: str = "i-1") -> WorkerRow:
        """Return the worker_row of a worker that has checked in."""
        if instance_id not in self.presences:
            self.launch(instance_id)
            worker_row = WorkerRow(workload=WORKLOAD, instance_id=instance_id, ports=self.ports)
            worker_row.check_in(patience=timedelta(0))
            self.presences[instance_id] = worker_row
        return self.presences[instance_id]

    def worker_key(self, instance_id: str) -> Key:
        return Key(partition=worker_partition(WORKLOAD), sort=worker_sort_key(instance_id))

    def worker(self, instance_id: str = "i-1") -> Worker:
        return decode(Worker, self.table.get(self.worker_key(instance_id)) or {})

    def change_worker(self, instance_id: str, **changes: Any) -> None:
        self.table.write(Write(key=self.worker_key(instance_id), set=encode(changes)))

    def set_policy(
        self, policy: Policy | str, *, code_digest: str = "", code_version: str = ""
    ) -> None:
        """Write the policy in force, and the code that is deployed, as the scaler does."""
        text = policy if isinstance(policy, str) else json.dumps(encode(policy))
        key = Key(partition=control_partition(WORKLOAD), sort=POLICY)
        self.table.write(
            Write(
                key=key,
                set={"effective": text, "code_digest": code_digest, "code_version": code_version},
            )
        )

    def send(self, body: Mapping[str, Any] | str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.queue.send([Outgoing(body=text)])

    def receive(self) -> Message | None:
        return self.ports.queue.receive(
            wait=timedelta(seconds=20), visibility=self.policy.lease_duration
        )

    def claim(self, slot_id: SlotId | None = None) -> ClaimedJob | Declined:
        """Receive a message, which must be there, and claim its job."""
        message = self.receive()
        assert message is not None
        return self.claim_message(message, slot_id)

    def claim_message(
        self, message: Message, slot_id: SlotId | None = None
    ) -> ClaimedJob | Declined:
        slot_id = slot_id or a_slot_id()
        return claim(
            message,
            slot_id=slot_id,
            worker_row=self.worker_row(slot_id.instance_id),
            ports=self.ports,
            policy=self.policy,
        )

    def hold(
        self, body: Mapping[str, Any] | None = None, slot_id: SlotId | None = None
    ) -> ClaimedJob:
        """Send a job if one is given, claim it, and settle its items."""
        if body is not None:
            self.send(body)
        held = self.claim(slot_id)
        assert isinstance(held, ClaimedJob), held
        return held.with_items(len(settle_items(held.job, self.ports)))

    def manifest(self, job_id: str) -> Manifest:
        return decode_manifest(self.objects.get(manifest_key(job_id)).data)

    def put_manifest(self, **changes: object) -> Manifest:
        """Leave a running job of another instance, at its first epoch, as a claim would find it."""
        values = {"job_id": "j", "epoch": 1, "owner": "i-9/0", "state": JobState.RUNNING, **changes}
        manifest = Manifest(**values)  # type: ignore[arg-type]
        self.objects.put(manifest_key("j"), encode_manifest(manifest))
        return self.manifest("j")

    def records(self, job_id: str) -> list[Record]:
        """Return what the manifest has committed, in item order."""
        parts = self.manifest(job_id).parts
        return [r for part in parts for r in decode_part(self.objects.get(part.key).data)]

    def lease(self, slot_id: SlotId | None = None) -> Lease | None:
        row = self.table.get((slot_id or a_slot_id()).lease_key)
        return None if row is None else decode(Lease, row)

    def lease_row(self, owner: str) -> Lease | None:
        row = self.table.get(lease_key(WORKLOAD, owner))
        return None if row is None else decode(Lease, row)


def a_worker(instance_id: str = "i-1", **changes: Any) -> Worker:
    values: dict[str, Any] = {
        "instance_id": instance_id,
        "launch_id": "launch-1",
        "instance_type": "g4dn.xlarge",
        "region": "us-east-1",
        "zone": "us-east-1a",
        "capacity_type": CapacityType.SPOT,
        "gpu_name": "T4",
        "gpu_count": 1.0,
        "slots": 1,
        "price_per_hour": PRICE,
        "state": WorkerState.BOOTING,
        "launched_at": MemoryClock().now(),
    }
    return Worker(**{**values, **changes})


def identity_of(worker: Worker) -> Identity:
    """Return what the metadata of a worker's instance say."""
    return Identity(
        instance_id=worker.instance_id,
        instance_type=worker.instance_type,
        region=worker.region,
        zone=worker.zone,
        capacity_type=worker.capacity_type,
        tags={},
    )


def a_slot_id(instance_id: str = "i-1", slot: int = 0, **changes: Any) -> SlotId:
    return SlotId(
        workload=WORKLOAD,
        instance_id=instance_id,
        slot=slot,
        price_per_hour=PRICE,
        gpu="T4#1",
        log_pointer=f"log/{instance_id}",
        **changes,
    )


def a_portion(held: ClaimedJob, count: int | None = None, *, seconds: float = 10.0) -> Portion:
    """Return the next ``count`` items of a job as finished (None: all that are left)."""
    first = held.manifest.next_item
    last = held.manifest.items or 0
    if count is not None:
        last = min(last, first + count)
    finished = tuple(Finished(record=a_record(held.job_id, index)) for index in range(first, last))
    spent = timedelta(seconds=seconds)
    return Portion(finished=finished, busy=spent, worked=spent)


def a_record(job_id: str, index: int, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "item": f"item-{index}",
        "status": ItemStatus.OK,
        "result": index * index,
        "seconds": 0.5,
    }
    return Record(job_id=job_id, index=index, **{**values, **changes})


def items(count: int) -> Sequence[str]:
    return [f"item-{index}" for index in range(count)]
