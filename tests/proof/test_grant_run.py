"""Every role under IAM: a real run is denied nothing, and without any one statement it would be.

The run is that of the deployed functions and of a real worker. What MiniStack does not check is
evaluated over the template instead (``tests/infra/test_grant_use.py``): EC2, which is our own
market here; PassRole; ``ssm:GetParameters`` and ``events:PutEvents`` (``enforcement.py`` says why);
the partitions of the ledger, whose condition key MiniStack leaves out; what Lambda and the
schedules do by themselves.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from spindown.app.batch.result import read_progress
from spindown.cli.session import Session, connect
from spindown.local.system import LocalSystem
from tests.e2e.world import PATIENCE, TICK
from tests.local.waiting import until
from tests.local.world import at_once
from tests.proof.enforcement import Enforcement, Question

pytestmark = pytest.mark.proof

CONFIG = """
[deployment]
name = "iam"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b"]

[workload.other.run]
entrypoint = "count:run"
code = "code"

[workload.count]
inputs = ["s3://papers/2026/"]

[workload.count.run]
entrypoint = "count:run"
code = "code"
secrets = { TOKEN = "hub/token", PASSWORD = "/count/password" }

[workload.count.policy]
idle_timeout = "2s"
max_workers = 1
boot_estimate = "1s"
"""

CODE = """
import os

from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        yield Result(item, {"token": os.environ["TOKEN"], "password": os.environ["PASSWORD"]})
"""


@dataclass(frozen=True)
class World:
    """A deployment under IAM, after one whole run."""

    system: LocalSystem
    session: Session
    iam: Enforcement
    #: The beginning of a role's name -> its name.
    roles: dict[str, str]
    run: tuple[Question, ...]

    def of(self, role: str) -> list[Question]:
        """Return what was asked of a role in the run."""
        return [one for one in self.run if one.role == self.roles[role]]


WORKER = "WorkloadcountFleetRole"
SCALER = "ControlScalerRole"
INTERRUPTION = "ControlInterruptionRole"
OFFERS = "ControlOffersRole"
TEARDOWN = "ControlTeardownFunctionRole"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("iam")
    (directory / "code").mkdir()
    (directory / "code" / "count.py").write_text(CODE, encoding="utf-8")
    (directory / "spindown.toml").write_text(CONFIG, encoding="utf-8")
    iam = Enforcement()
    system = LocalSystem(
        directory / "spindown.toml",
        state=directory / "state",
        port=0,
        tick=TICK,
        scenario=at_once(),
        credentials=iam.credentials,
    )
    with system, iam.on(system):
        prepare(system)
        system.deploy()
        iam.learn_profiles()
        session = connect("iam", system.region)
        roles = find_roles(system)
        do_everything(system, session)
        yield World(system, session, iam, roles, tuple(iam.asked))


def prepare(system: LocalSystem) -> None:
    s3 = system.client("s3")
    s3.create_bucket(Bucket="papers")
    s3.put_object(Bucket="papers", Key="2026/a.txt", Body=b"a")
    system.client("secretsmanager").create_secret(Name="hub/token", SecretString="t")
    system.client("ssm").put_parameter(Name="/count/password", Value="p", Type="SecureString")


def find_roles(system: LocalSystem) -> dict[str, str]:
    found = system.client("cloudformation").describe_stack_resources(StackName="iam-core")
    return {
        one["LogicalResourceId"][:-8]: one["PhysicalResourceId"]
        for one in found["StackResources"]
        if one["ResourceType"] == "AWS::IAM::Role"
    }


def do_everything(system: LocalSystem, session: Session) -> None:
    """Run jobs of every kind, and each function with what it is there for."""
    store, uploads = session.work_store("count"), f"{session.work_uri('count')}inputs/"
    store.put("inputs/up.txt", b"u")
    store.put("jobs/torn/manifest.json", b"{")
    sources: dict[str, Any] = {
        "listed": {"prefix_uri": "s3://papers/2026/"},
        "uploaded": {"items": [f"{uploads}up.txt"]},
        "torn": {"items": ["a"]},
    }
    send(system, session, "no job at all")
    for job_id, source in sources.items():
        send(system, session, json.dumps({**source, "job_id": job_id}))
    for job_id in sources:
        until(lambda: read_progress(job_id, store).is_over, seconds=PATIENCE)  # noqa: B023
    dead = session.aws.queue(session.workload("count").dlq_url)
    until(lambda: dead.backlog().visible == 1, seconds=PATIENCE)
    until(lambda: not running(system), seconds=PATIENCE)
    until(lambda: session.status("count").is_quiet, seconds=PATIENCE)
    invoke(system, "offers", {"source": "spindown.tick"})
    invoke(system, "interruption", state_change(system))
    invoke(system, "teardown", leave_out("gone", system))


def send(system: LocalSystem, session: Session, body: str) -> None:
    url = session.workload("count").queue_url
    system.client("sqs").send_message(QueueUrl=url, MessageBody=body)


def running(system: LocalSystem) -> bool:
    return any(one.state != "terminated" for one in system.market.instances())


def invoke(system: LocalSystem, function: str, event: object) -> bool:
    """Run a function; tell whether it went well."""
    answer = system.client("lambda").invoke(
        FunctionName=f"iam-{function}", Payload=json.dumps(event).encode()
    )
    return "FunctionError" not in answer


def state_change(system: LocalSystem) -> object:
    instance, *_ = system.market.instances()
    return {
        "source": "aws.ec2",
        "detail-type": "EC2 Instance State-change Notification",
        "region": system.region,
        "time": "2026-11-20T12:00:00Z",
        "detail": {"instance-id": instance.instance_id, "state": "terminated"},
    }


def leave_out(workload: str, system: LocalSystem) -> object:
    properties = {
        "Deployment": "iam",
        "Regions": [system.region],
        "Table": "iam-ledger",
        "Workloads": ["count", "other"],
    }
    return {
        "RequestType": "Update",
        "RequestId": "1",
        "StackId": "stack",
        "LogicalResourceId": "Fleet",
        "ResponseURL": f"{system.endpoint}/_ministack/cfn-response/nobody",
        "ResourceProperties": properties,
        "OldResourceProperties": {**properties, "Workloads": ["count", "other", workload]},
    }


def test_a_whole_run_is_denied_nothing(world: World) -> None:
    assert [str(one) for one in world.iam.denied] == []
    store = world.session.work_store("count")
    records = [read_progress(job_id, store) for job_id in ("listed", "torn")]
    assert [record.state for record in records] == ["completed", "completed"]
    for role in (WORKER, SCALER, INTERRUPTION, OFFERS, TEARDOWN):
        assert world.of(role)


@pytest.mark.parametrize(
    ("role", "sid"),
    [
        *(
            (WORKER, sid)
            for sid in (
                "WorkQueue",
                "GiveUpJobs",
                "KeepResults",
                "KeepUsage",
                "ReadUploads",
                "SeeMissingObjects",
                "ReadCode",
                "ReadInputs",
                "ListInputs1",
                "ReadParameters",
                "ReadSecrets",
                "KeepOwnRows",
                "WriteLog",
            )
        ),
        *((SCALER, sid) for sid in ("KeepOffers", "KeepLedger", "KeepDecisions", "SeeQueues")),
        (INTERRUPTION, "KeepLedger"),
        *((OFFERS, sid) for sid in ("KeepOffers", "SeeBacklogs", "KeepConcerns")),
        (TEARDOWN, "KeepReconcileOut"),
    ],
)
def test_without_a_statement_the_run_would_be_denied(world: World, role: str, sid: str) -> None:
    questions = world.of(role)
    assert world.iam.would_deny(questions) == []

    with world.iam.without(world.roles[role], sid):
        denied = world.iam.would_deny(questions)

    assert denied
    assert world.iam.would_deny(questions) == []


@pytest.mark.parametrize(
    ("function", "role", "sid"),
    [
        ("offers", OFFERS, "KeepOffers"),
        ("scaler", SCALER, "KeepLedger"),
        ("scaler", SCALER, "SeeQueues"),
    ],
)
def test_a_function_without_a_statement_fails_for_real(
    world: World, function: str, role: str, sid: str
) -> None:
    tick = {"source": "spindown.tick", "workload": "count"}
    before = len(world.iam.denied)

    # A tick of the schedule may hold the lock, and then there is nothing to fail at.
    with world.iam.without(world.roles[role], sid):
        until(lambda: not invoke(world.system, function, tick), seconds=PATIENCE)

    assert world.iam.denied[before:]
    until(lambda: invoke(world.system, function, tick), seconds=PATIENCE)
    del world.iam.denied[before:]


def test_a_worker_cannot_do_what_is_not_its_own(world: World) -> None:
    keys = world.iam.keys_of(world.roles[WORKER])
    session = boto3.Session(
        keys.access_key, keys.secret_key, keys.token, region_name=world.system.region
    )
    make: Any = session.client
    made: dict[str, Any] = {
        name: make(name, endpoint_url=world.system.endpoint)
        for name in ("dynamodb", "iam", "lambda", "s3", "secretsmanager", "sqs", "ssm")
    }
    bucket = world.session.bucket
    other = world.session.workload("other")
    calls: dict[str, Callable[[], Any]] = {
        "another workload's manifest": lambda: made["s3"].get_object(
            Bucket=bucket, Key="workloads/other/jobs/j/manifest.json"
        ),
        "another workload's upload": lambda: made["s3"].get_object(
            Bucket=bucket, Key="workloads/other/inputs/b/a"
        ),
        "the catalogue": lambda: made["s3"].put_object(
            Bucket=bucket, Key="offers/catalogue.json", Body=b""
        ),
        "an input": lambda: made["s3"].put_object(Bucket="papers", Key="2026/a.txt", Body=b""),
        "what is not declared": lambda: made["s3"].get_object(Bucket="papers", Key="2025/a.txt"),
        "another queue": lambda: made["sqs"].receive_message(QueueUrl=other.queue_url),
        "its dead letters": lambda: made["sqs"].receive_message(
            QueueUrl=world.session.workload("count").dlq_url
        ),
        "a scan": lambda: made["dynamodb"].scan(TableName="iam-ledger"),
        "the settings": lambda: made["ssm"].get_parameter(Name="/spindown/iam/deployment"),
        "another secret": lambda: made["secretsmanager"].get_secret_value(SecretId="hub/other"),
        "the scaler": lambda: made["lambda"].invoke(FunctionName="iam-scaler"),
        "its own role": lambda: made["iam"].list_role_policies(RoleName=keys.role),
    }
    allowed = []
    for name, call in calls.items():
        try:
            call()
        except ClientError as error:
            if "AccessDenied" in error.response["Error"]["Code"]:
                continue
            allowed.append(f"{name}: {error}")
        else:
            allowed.append(name)

    assert allowed == []
