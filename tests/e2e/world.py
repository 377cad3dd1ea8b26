"""A small deployment that runs for real on this machine, and what its tests ask of it."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import boto3
import psutil
import pytest
from botocore.config import Config

from spindown.cli.main import main
from spindown.cli.session import Session, connect
from spindown.contract.name import resource_name
from spindown.contract.settings import live_parameter
from spindown.contract.tag import WORKLOAD
from spindown.ec2sim import Ec2Instance
from spindown.error import NotFound
from spindown.job.result import JobProgress, read_progress, read_records
from spindown.local import daemon
from spindown.local.environment import aws_environment, environment_of_process
from spindown.local.market import Scenario
from spindown.local.status import SystemStatus
from spindown.local.system import LocalSystem
from spindown.port import ObjectStore
from tests.local.waiting import until
from tests.local.world import at_once, at_once_text

ROOT = Path(__file__).parents[2]
SPINDOWN = Path(sys.executable).parent / "spindown"
TICK = timedelta(seconds=1)
#: Longer than any of these steps takes on a busy machine with two cores.
PATIENCE = 180.0
#: A command or a job that takes longer hangs: both compute, beside all else on the two cores.
HANGING = 180.0

#: Workload -> what its code is: the last item of a job of `count` may raise, or wait for a file.
CODE = {
    "count": """
import time
from pathlib import Path

from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        if item.value == "raise":
            raise ValueError("nothing to count")
        if item.value.startswith("/"):
            print("waits\x1b[2J for", item.value)
            ctx.progress(item.index + 1, len(batch), "\x1b[2Jwaiting")
            while not Path(item.value).exists():
                time.sleep(0.1)
        yield Result(item, {"length": len(item.value)})
""",
    "absent": "import a_module_that_nobody_installed\n",
}
CODE["mixed"] = CODE["count"]

#: A policy under which a job is over within seconds.
SWIFT = """\
tick = "1s"
start_within = "1s"
drain_within = "30s"
max_workers = 1
idle_timeout = "3s"
scale_down_delay = "1s"
heartbeat_interval = "2s"
lease_duration = "10s"
heartbeat_stale_after = "30s"
boot_estimate = "1s"
"""

#: Workload -> its policy.
_POLICY = {
    "count": f"{SWIFT}\nmax_items_per_job = 4",
    "thumbnail": SWIFT,
    "lab": SWIFT,
    "mixed": SWIFT.replace("max_workers = 1", "max_workers = 6\nshared_slots = 4"),
    "absent": f"{SWIFT}\nmax_failures = 1\nmax_failures_on_two = 1",
    "verify": SWIFT.replace("max_workers = 1", "max_workers = 2"),
}

_WORKLOAD = """
[workload.{name}.run]
entrypoint = "{name}:run"
code = "{name}"

[workload.{name}.policy]
{policy}
"""

#: A workload that takes folders.
_LAB = """
[workload.{name}.run]
folders = true

[workload.{name}.policy]
{policy}
"""

#: A workload by which a deployment proves itself.
_VERIFY = """
[workload.{name}.run]
verify = true

[workload.{name}.policy]
{policy}
"""
_HOW = {"lab": _LAB, "verify": _VERIFY}

Found = TypeVar("Found")


def write_deployment(directory: Path, *names: str) -> Path:
    """Write a spindown.toml of some of the workloads with their code; return its path."""
    for name in names:
        if name in CODE:
            (directory / name).mkdir()
            (directory / name / f"{name}.py").write_text(CODE[name], encoding="utf-8")
        elif name not in _HOW:
            shutil.copytree(ROOT / "examples" / name, directory / name)
    head = (
        '[deployment]\nname = "e2e"\nregion = "us-east-1"\nzones = ["us-east-1a", "us-east-1b"]\n'
        # What people are told of batches is test_after's.
        'alarm_batches = "none"\n'
    )
    tables = [_HOW.get(name, _WORKLOAD).format(name=name, policy=_POLICY[name]) for name in names]
    path = directory / "spindown.toml"
    path.write_text(head + "".join(tables), encoding="utf-8")
    return path


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A deployed system, seen as a user sees it: SDK, command line, results."""

    session: Session
    directory: Path

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service, by the environment that points at the system."""
        # boto3's stubs have an overload for each service; here the name is the caller's.
        create: Any = boto3.client
        # A function that is called a second time has done what it does twice.
        once = Config(read_timeout=HANGING, retries={"total_max_attempts": 1})
        return create(service, config=once)

    def send(self, workload: str, body: object) -> str:
        """Drop a message on a queue as any SDK does; a text goes as it is. Return its id."""
        text = body if isinstance(body, str) else json.dumps(body)
        sqs = self.client("sqs")
        url = self.session.workload(workload).queue_url
        return str(sqs.send_message(QueueUrl=url, MessageBody=text)["MessageId"])

    def spindown(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that reads the deployment's file, in this process."""
        return self.run(*arguments, "--config", str(self.directory / "spindown.toml"))

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in this process, which is pointed at the local system.

        A process of its own would take a second of a core to import what is imported here.
        """
        out, err = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main([*arguments])
        return subprocess.CompletedProcess(
            arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue()
        )

    def shell(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the installed command in the deployment's directory, as a shell without AWS."""
        known = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        return subprocess.run(
            [SPINDOWN, *arguments, "--local"],
            check=False,
            cwd=self.directory,
            env=known,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANGING,
        )

    @contextmanager
    def followed(
        self, *arguments: str, stdin: int = subprocess.DEVNULL
    ) -> "Iterator[subprocess.Popen[str]]":
        """Run the installed command beside the test, which reads what it prints meanwhile."""
        known = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        with subprocess.Popen(
            [SPINDOWN, arguments[0], "--local", *arguments[1:]],
            cwd=self.directory,
            env=known,
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def spindown_json(self, *arguments: str) -> Any:
        """Run the command with --json; return what it printed."""
        return parsed(self.spindown(*arguments, "--json"))

    def finished(self, job_id: str) -> JobProgress:
        """Wait until a job is over; return how it ended."""

        def look() -> JobProgress | None:
            told = (read_progress(job_id, store) for store in self._stores())
            return next((progress for progress in told if progress.is_over), None)

        return found(look, HANGING)

    def records(self, job_id: str) -> Sequence[Mapping[str, Any]]:
        """Return what a job has committed."""
        for store in self._stores():
            with suppress(NotFound):
                return list(read_records(job_id, store))
        raise AssertionError(job_id)

    def _stores(self) -> Iterator[ObjectStore]:
        """Yield each workload's part of the bucket: a job lies in one of them."""
        return map(self.session.work_store, self.session.deployment.workloads)

    def invoke(self, function: str) -> Any:
        """Run a function of the deployment now; return what it answers."""
        name = resource_name(self.session.deployment.name, function)
        answer = self.client("lambda").invoke(FunctionName=name, Payload=b"{}")
        said = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, said
        return said

    def subscribe(self) -> str:
        """Let a queue hear what people are told; return its URL."""
        sqs, sns = self.client("sqs"), self.client("sns")
        url = sqs.create_queue(QueueName="inbox")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        sns.subscribe(
            TopicArn=self.session.deployment.topic,
            Protocol="sqs",
            Endpoint=arn["Attributes"]["QueueArn"],
        )
        return str(url)

    def heard(self, inbox: str, workload: str) -> tuple[str, str]:
        """Wait for the next text to people about a workload; return its subject and words."""
        subject, text, *_ = found(lambda: self._hear(inbox, workload))
        return subject, text

    def is_silent(self, inbox: str, workload: str) -> bool:
        """Tell whether nothing more was said about a workload."""
        return not self._hear(inbox, workload)

    def _hear(self, inbox: str, workload: str) -> Sequence[str]:
        """Take what lies in an inbox; return subject and words of each text about a workload."""
        sqs = self.client("sqs")
        about: list[str] = []
        while messages := sqs.receive_message(QueueUrl=inbox).get("Messages"):
            for message in messages:
                sqs.delete_message(QueueUrl=inbox, ReceiptHandle=message["ReceiptHandle"])
                envelope = json.loads(message["Body"])
                if envelope["Subject"].startswith(resource_name("e2e", workload)):
                    about += (envelope["Subject"], envelope["Message"])
        return about

    def dead_letter(self, workload: str, message_id: str) -> Mapping[str, str]:
        """Wait for what became of a message in the dead-letter queue: its attributes and body."""
        sqs = self.client("sqs")
        url = self.session.workload(workload).dlq_url

        def look() -> Mapping[str, str] | None:
            answer = sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                VisibilityTimeout=0,
            )
            for message in answer.get("Messages", []):
                attributes = message.get("MessageAttributes", {})
                told = {name: value["StringValue"] for name, value in attributes.items()}
                if told.get("original_message_id") == message_id:
                    return {**told, "body": message["Body"]}
            return None

        return found(look)

    def put_live_policy(self, workload: str, text: str) -> None:
        """Write a live policy past `spindown policy set`, as a person in the console does."""
        self.client("ssm").put_parameter(
            Name=live_parameter("e2e", workload), Value=text, Type="String", Overwrite=True
        )


@dataclass(frozen=True, kw_only=True)
class World(Deployed):
    """A deployed system in this process, whose instances a test can also see and move."""

    system: LocalSystem

    def instances(self, workload: str) -> Sequence[Ec2Instance]:
        """Return the instances that were launched for a workload, ended ones included."""
        return [
            instance
            for instance in self.system.market.instances()
            if instance.tags.get(WORKLOAD) == workload
        ]

    def worker_at_work(
        self, workload: str, *besides: str, job_id: str | None = None
    ) -> Ec2Instance:
        """Wait until an instance that is not one of these holds a job: the one named, or any."""

        def look() -> Ec2Instance | None:
            leases = self.session.ledger(workload).read().leases
            busy = {one.instance_id for one in leases if job_id in {None, one.job_id}}
            live = (one for one in self.instances(workload) if one.instance_id in busy)
            return next((one for one in live if one.instance_id not in besides), None)

        return found(look)


@contextmanager
def deployed(config: Path, scenario: Scenario | None = None, **more: Any) -> Iterator[World]:
    """Deploy a spindown.toml where `spindown --local` finds it from the file's directory."""
    directory = config.parent
    with LocalSystem(
        config,
        state=directory / ".spindown",
        port=0,
        tick=TICK,
        scenario=scenario or at_once(),
        **more,
    ) as system:
        system.deploy()
        session = connect(system.deployment, system.region)
        yield World(system=system, session=session, directory=directory)


@contextmanager
def in_background(config: Path) -> Iterator[tuple[Deployed, SystemStatus]]:
    """Deploy a spindown.toml as `spindown local up` does, in a process of its own.

    Returns what was deployed and what `up` answered. To leave it is `spindown local down`, after
    which nothing may be left.
    """
    directory = config.parent
    state, scenario = directory / ".spindown", directory / "at_once.toml"
    scenario.write_text(at_once_text(), encoding="utf-8")
    up = daemon.start(config, scenario=str(scenario), state=state, port=0, tick=TICK)
    try:
        with environment_of_process(aws_environment(up.endpoint, up.region)):
            session = connect(up.deployment, up.region)
            yield Deployed(session=session, directory=directory), up
        below = psutil.Process(up.pid).children(recursive=True)
        assert below
        assert daemon.stop(state)
        assert daemon.status(state) is None
        until(lambda: not any(process.is_running() for process in below))
    finally:
        daemon.stop(state)
    assert not daemon.stop(state)


def parsed(done: "subprocess.CompletedProcess[str]") -> Any:
    """Return the JSON that a command printed, which must have succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def found(look: Callable[[], Found | None], seconds: float = PATIENCE) -> Found:
    """Wait until something is found, so many seconds at most; return it."""
    # Each look asks the emulator several times, which has the same two cores as what it waits for.
    answer = until(look, seconds=seconds, every=0.25)
    assert answer is not None
    return answer
