"""A fleet of any size at work, and the round trips that follow when EC2 takes all of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from spindown.contract.codec import encode
from spindown.contract.row import lease_sort_key, worker_partition, worker_sort_key
from spindown.domain.fleet import Lease, WorkerState
from spindown.memory import PortCall
from spindown.port import Key, Outgoing, Write
from tests.control import WORKLOAD, ControlWorld


@dataclass
class Storm(ControlWorld):
    """A world in which ``size`` workers hold a job each."""

    size: int = 1000
    #: Round trips to AWS since the storm.
    trips: int = 0

    def __post_init__(self) -> None:
        self.policy = replace(self.policy, max_workers=self.size, drain_within=_SOON)
        super().__post_init__()
        self.queue.send([Outgoing(body='{"items": [1]}')] * 2 * self.size)
        while len(self.view().workers) < self.size:
            self.tick(timedelta(minutes=1))
        self.clock.advance(timedelta(minutes=2))
        for number, worker in enumerate(self.view().workers.values()):
            self._work(worker.instance_id, number)
        self.trips = 0

    def _call(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        self.trips += trips_of(call)
        return super()._call(call, proceed)

    def _work(self, instance_id: str, number: int) -> None:
        """Let a worker come up and hold a job."""
        message = self.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
        assert message is not None
        lease = Lease(
            instance_id=instance_id,
            slot=0,
            job_id=f"job-{number}",
            epoch=1,
            receipt_handle=message.receipt_handle,
            deadline=self.now + timedelta(minutes=5),
            not_after=self.now + timedelta(hours=11),
            claimed_at=self.now,
            sent_at=message.sent_at,
        )
        busy = {
            "state": WorkerState.BUSY,
            "busy_slots": 1,
            "checked_in_at": self.now,
            "heartbeat_at": self.now,
            "claimed_at": self.now,
            "idle_since": None,
        }
        self._write(lease_sort_key(instance_id, 0), encode(lease))
        self._write(worker_sort_key(instance_id), encode(busy))

    def _write(self, sort: str, values: Any) -> None:
        key = Key(partition=worker_partition(WORKLOAD), sort=sort)
        self.table.write(Write(key=key, set=values))

    def take_all(self, notice: timedelta) -> None:
        """Let EC2 take every instance."""
        for worker in self.view().workers.values():
            self.compute.reclaim(worker.instance_id, notice=notice)


def trips_of(call: PortCall) -> int:
    """Return how many round trips a call of a port takes on AWS."""
    # SQS takes ten messages at once.
    return -(-len(call.args[0]) // 10) if call.method == "show" else 1


_SOON = timedelta(minutes=5)
