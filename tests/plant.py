"""The whole worker with its threads and real children, over ports in memory and a real clock."""

import io
import json
import os
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.aws.clock import SystemClock
from spindown.contract.run_spec import RunMode, RunSpec
from spindown.domain.fleet import Worker
from spindown.domain.policy import Policy
from spindown.error import NotFound
from spindown.memory.metadata import MemoryMetadata
from spindown.port import Message
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Machine
from spindown.worker.child.runner import ChildRunner, Runner
from spindown.worker.daemon import Daemon, Parts
from spindown.worker.log import open_log
from spindown.worker.settings import Home, WorkerSettings
from spindown.worker.usage.gpu import Gpus
from tests.work import WORKLOAD, WorkWorld, a_worker, identity_of

QUICK = Policy(
    heartbeat_interval=timedelta(seconds=0.05),
    lease_duration=timedelta(seconds=30),
    commit_margin=timedelta(seconds=1),
    idle_timeout=timedelta(seconds=0.3),
)
#: Seconds; nothing waits for so long unless it fails, on however busy a machine.
PATIENCE = 120.0

ECHO = """
    from spindown.user import Result
    def run(batch, ctx):
        return [Result(item, item.value) for item in batch]
"""


class Plant:
    """A daemon, its thread, and the world around it."""

    def __init__(
        self,
        scratch: Path,
        source: str = ECHO,
        *,
        policy: Policy = QUICK,
        world: WorkWorld | None = None,
        instance_id: str = "i-1",
        spec: RunSpec | None = None,
        find_gpus: Callable[[], Gpus | None] = lambda: None,
        check_in_patience: timedelta = timedelta(seconds=0.2),
        find_fault: Callable[[Worker], str | None] = lambda _: None,
    ) -> None:
        self.world = world or WorkWorld(clock=SystemClock(), policy=policy)
        self.world.set_policy(policy)
        queue = self.world.ports.queue
        patient = replace(self.world.ports, queue=PatientQueue(queue))
        self.instance_id = instance_id
        self.output = io.StringIO()
        self.scratch = scratch
        self.ended = scratch / "ended"
        code = scratch / "code"
        code.mkdir()
        (code / "job.py").write_text(textwrap.dedent(source))
        self.log = open_log(self.output)
        spec = spec or RunSpec(
            entrypoint="job:run", batch_size=1, item_timeout=timedelta(seconds=60)
        )
        self.code = Code(root=code, spec=spec, digest="d")
        identity = identity_of(a_worker(instance_id))
        self.metadata = MemoryMetadata(identity)
        self.daemon = Daemon(
            Parts(
                home=Home(
                    region="us-east-1",
                    deployment="test",
                    workload=WORKLOAD,
                    queue_url="q",
                    dead_letter_url="d",
                    table="t",
                    bucket="b",
                    code="s3://c/d.zip",
                    log_group="g",
                ),
                identity=identity,
                settings=WorkerSettings(
                    scratch=scratch,
                    python=sys.executable,
                    poweroff=("touch", str(self.ended)),
                    metadata_interval=timedelta(seconds=0.05),
                    usage_interval=timedelta(seconds=0.2),
                    poll_at_most=timedelta(seconds=0.2),
                    check_in_patience=check_in_patience,
                    stop_grace=timedelta(seconds=0.3),
                ),
                ports=patient,
                usage=patient.objects,
                metadata=self.metadata,
                code=self.code,
                log=self.log,
                make_runner=self._make_runner,
                find_fault=find_fault,
                find_gpus=find_gpus,
            )
        )
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _make_runner(self, worker: Worker, slot: int) -> Runner:
        if self.code.spec.mode is RunMode.COMMAND:
            place = Machine(argv=self.code.spec.command, env=os.environ)
            return CommandRunner(self.code, place, slot=slot, log=self.log)
        return ChildRunner(
            self.code, slot=slot, scratch=self.scratch, python=sys.executable, env={}, log=self.log
        )

    def _run(self) -> None:
        self.daemon.run()

    def start(self, **worker: Any) -> None:
        self.world.launch(self.instance_id, **worker)
        self.thread.start()

    def join(self) -> None:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), self.output.getvalue()

    def stop(self) -> None:
        self.daemon.stop()
        self.thread.join(PATIENCE)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE / 0.02)):
            if holds():
                return
            threading.Event().wait(0.02)
        raise AssertionError(self.output.getvalue())

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.output.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]

    def items_done(self, slot: int) -> int:
        """Return what the lease row of a slot says: the heartbeat writes it."""
        lease = self.world.lease_row(f"{self.instance_id}/{slot}")
        return 0 if lease is None else lease.items_done

    def next_item(self, job_id: str) -> int:
        try:
            return self.world.manifest(job_id).next_item
        except NotFound:
            return -1

    @property
    def has_powered_off(self) -> bool:
        return self.ended.exists()


class PatientQueue:
    """Waits for a message as SQS does; everything else is the queue's own."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def receive(self, *, wait: timedelta, visibility: timedelta) -> Message | None:
        for _ in range(max(int(wait.total_seconds() / 0.02), 1)):
            message: Message | None = self._queue.receive(wait=timedelta(0), visibility=visibility)
            if message is not None:
                return message
            threading.Event().wait(0.02)
        return None
