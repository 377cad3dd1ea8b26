"""The deployment under attack, and everything that can be done to it."""

import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil

from spindown.contract.name import queue_name
from spindown.ec2sim import Ec2Instance, InstanceState
from spindown.local.market import Scenario, load_scenario
from spindown.local.market.scenario import DryPool, ReclaimRule
from spindown.local.system import LocalSystem

NAME = "chaos"
WORKLOAD = "count"
_REGION = "us-east-1"

#: Long enough for a commit to be under way when something happens to it.
CODE = """
import time
from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        time.sleep(0.2)
        yield Result(item, {"was": item.value})
"""

#: Everything short, so that minutes here hold what days hold there. Whatever is done to a job
#: here is not its own fault: nothing may end in the dead-letter queue.
CONFIG = f"""
[deployment]
name = "{NAME}"
region = "{_REGION}"
zones = ["us-east-1a", "us-east-1b", "us-east-1c"]

[workload.{WORKLOAD}.run]
entrypoint = "count:run"
code = "code"
batch_size = 2
slots = 2

[workload.{WORKLOAD}.policy]
tick = "1s"
start_within = "1s"
drain_within = "30s"
max_workers = 3
idle_timeout = "4s"
scale_down_delay = "2s"
heartbeat_interval = "2s"
lease_duration = "8s"
heartbeat_stale_after = "20s"
scale_up_timeout = "30s"
pool_cooldown = "5s"
pool_cooldown_at_most = "10s"
boot_estimate = "2s"
checkpoint_items = 4
commit_margin = "2s"
max_items_per_job = 24
max_losses = 1000
max_failures = 1000
max_failures_on_two = 1000
failures_to_quarantine = 1000
"""


def chaos_scenario(seed: int) -> Scenario:
    """Return the shipped storm, with reclaims of its own only once in a while."""
    storm = load_scenario("storm")
    rules = (
        ReclaimRule(rate_per_hour=40.0, notice=timedelta(seconds=6), dry_for=timedelta(seconds=10)),
        ReclaimRule(rate_per_hour=20.0, notice=timedelta(0)),
    )
    dry = tuple(
        DryPool.model_validate(
            {"type": kind, "capacity_type": "spot", "from": f"{at}s", "until": f"{at + 15}s"}
        )
        for at, kind in ((0, "g6.*"), (20, "g5.*"), (40, "*"), (80, "g4dn.*"), (100, "*"))
    )
    return storm.model_copy(update={"seed": seed, "interruption": rules, "dry": dry})


def write_project(directory: Path) -> Path:
    """Write the deployment's file and code; return the file's path."""
    (directory / "code").mkdir(parents=True, exist_ok=True)
    (directory / "code" / "count.py").write_text(CODE, encoding="utf-8")
    path = directory / "spindown.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def local_system(directory: Path, seed: int) -> LocalSystem:
    """Return the system, not yet up, with nothing left of an earlier run."""
    shutil.rmtree(directory / ".spindown", ignore_errors=True)
    return LocalSystem(
        write_project(directory),
        state=directory / ".spindown",
        port=0,
        tick=timedelta(seconds=1),
        scenario=chaos_scenario(seed),
    )


class Plant:
    """A system that is up, and the hands to break it with."""

    def __init__(self, system: LocalSystem) -> None:
        self.system = system

    @property
    def running(self) -> Sequence[Ec2Instance]:
        """Return the instances whose guests run."""
        found = self.system.market.instances()
        return [one for one in found if one.state is InstanceState.RUNNING]

    @property
    def left(self) -> Sequence[Ec2Instance]:
        """Return the instances that have not ended."""
        return [one for one in self.system.market.instances() if one.state.is_alive]

    def processes(self, instance_id: str) -> list[psutil.Process]:
        """Return a guest's processes, the worker first; none if it has gone."""
        life = self.system.hypervisor._lives.get(instance_id)
        if life is None:
            return []
        with suppress(psutil.Error):
            worker = psutil.Process(life.guest._process.pid)
            return [worker, *worker.children(recursive=True)]
        return []

    def functions(self) -> Iterator[psutil.Process]:
        """Yield the processes of the Lambda functions."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if process.environ().get("AWS_LAMBDA_FUNCTION_NAME"):
                    yield process

    # Attacks; each returns whether there was somebody to attack.

    def kill_worker(self, instance: Ec2Instance) -> bool:
        """Kill a worker's process: only the instance's own timer ends the instance then."""
        return _signal(self.processes(instance.instance_id)[:1], signal.SIGKILL)

    def kill_child(self, instance: Ec2Instance) -> bool:
        """Kill a process that runs the user's code."""
        # The worker, the subreaper of what it has started, and that.
        return _signal(self.processes(instance.instance_id)[2:3], signal.SIGKILL)

    def stop_for(self, instance: Ec2Instance, seconds: float) -> bool:
        """Stop a worker with all it has started, and let it go on when others have its jobs."""
        until = time.monotonic() + seconds
        processes, stopped = self.processes(instance.instance_id), False
        while time.monotonic() < until:
            # The hypervisor's own throttle may let it go on.
            stopped |= _signal(processes, signal.SIGSTOP)
            pause(0.02)
        _signal(processes, signal.SIGCONT)
        return stopped

    def reclaim(self, instance: Ec2Instance, *, notice: float) -> bool:
        """Take an instance away as EC2 does."""
        if instance.spot_request_id is None:
            return False
        self.system.market.interrupt(instance.instance_id, notice=timedelta(seconds=notice))
        return True

    def kill_scaler_for(self, seconds: float) -> bool:
        """Kill every function as often as it starts."""
        until, killed = time.monotonic() + seconds, False
        while time.monotonic() < until:
            killed |= _signal(list(self.functions()), signal.SIGKILL)
            pause(0.2)
        return killed

    def stall_emulator_for(self, seconds: float) -> bool:
        """Let no call of any service be answered for a while."""
        self.system.gateway.post(lambda: pause(seconds))
        return True

    def send_again(self, body: str) -> bool:
        """Deliver a job's message once more."""
        sqs = self.system.client("sqs")
        url = sqs.get_queue_url(QueueName=queue_name(NAME, WORKLOAD))["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=body)
        return True


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> bool:
    sent = False
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
            sent = True
    return sent


def pause(seconds: float) -> None:
    """Let time pass, in which others do what they do."""
    threading.Event().wait(seconds)
