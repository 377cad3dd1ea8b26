"""The threads that look after the slots of one worker: none holds another up."""

import io
import threading
from datetime import timedelta
from pathlib import Path

from spindown.cli.logs import LOOK_SECONDS
from spindown.domain.policy import Policy
from spindown.job.claimed_job import ClaimedJob
from spindown.job.work_done import Reporter
from spindown.memory.interception import PortCall
from spindown.memory.metadata import MemoryMetadata
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.log import open_log
from spindown.worker.settings import WorkerSettings
from spindown.worker.watch import OUTPUT_INTERVAL, Watch
from tests.local.waiting import until
from tests.slot import a_lifecycle
from tests.work import WORKLOAD, WorkWorld, a_slot_id, identity_of, items


def test_half_a_second_of_two_is_left_for_calls_of_the_log() -> None:
    # What comes of it is measured by tests/bench/test_log.py.
    assert OUTPUT_INTERVAL.total_seconds() + LOOK_SECONDS <= 1.5


def test_a_silent_queue_delays_no_other_lease_and_no_heartbeat(
    tmp_path: Path,
) -> None:
    world = WorkWorld(policy=Policy(heartbeat_interval=timedelta(milliseconds=20)))
    worker_row = world.worker_row()
    slot_ids = [a_slot_id(slot=number) for number in range(2)]
    renewers = [LeaseRenewer(slot_id, worker_row, world.ports) for slot_id in slot_ids]
    log = open_log(io.StringIO())
    watch = Watch(
        life=a_lifecycle(world, log),
        worker_row=worker_row,
        renewers=renewers,
        metadata=MemoryMetadata(identity_of(world.worker())),
        ports=world.ports,
        reporter=Reporter(
            deployment="test", workload=WORKLOAD, worker=world.worker(), ports=world.ports
        ),
        settings=WorkerSettings(scratch=tmp_path, python="python"),
        log=log,
    )
    world.set_policy(world.policy)
    is_reached, is_open = threading.Event(), threading.Event()
    watch.start()
    for number, (slot_id, renewer) in enumerate(zip(slot_ids, renewers, strict=True)):
        world.send({"job_id": f"j{number}", "items": items(3)})
        held = world.claim(slot_id)
        assert isinstance(held, ClaimedJob)
        renewer.take(held, None)
    stuck = renewers[0]

    def hang(call: PortCall) -> None:
        if call.method == "extend" and threading.current_thread().name == "lease-0":
            is_reached.set()
            assert is_open.wait(20)

    world.before = hang
    assert is_reached.wait(20)
    world.clock.advance(timedelta(minutes=4))
    now = world.clock.now()
    extended = now + world.policy.lease_duration
    until(lambda: (lease := world.lease(slot_ids[1])) and lease.deadline == extended)
    until(lambda: world.worker().heartbeat_at == now)
    is_open.set()
    watch.stop()
    assert stuck.is_keeping
