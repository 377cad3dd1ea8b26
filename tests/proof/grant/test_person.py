"""What `spindown iam` prints is enough for each command of whom it is for, and not too much."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from spindown.contract.name import resource_name
from spindown.local.environment import ACCOUNT
from spindown.operate.iam_policy import RIGHTS
from tests.proof.grant.world import World, deployed

pytestmark = pytest.mark.proof

#: Statement -> a command that is refused something without it.
OPERATOR = {
    "ReadSettings": "status",
    "EditPolicies": "policy set count max_workers=2",
    "UseQueues": "status",
    "ReadObjects": "results once",
    "KeepObjects": "submit count spindown.toml",
    "SeeObjects": "results nothing",
    "KeepLedger": "status",
    "ReadLogs": "logs once",
    "WakeScaler": "submit count spindown.toml",
    "SeeDashboards": "dashboard --html page.html",
}
SUBMITTER = {
    "SendWork": "submit count spindown.toml",
    "WriteBatches": "submit count spindown.toml",
    "WakeScaler": "submit count spindown.toml",
}
#: Statement -> a call that needs it, where no command makes it here: nothing has a source or a
#: webhook, doctor asks for schedules and subscribers in an account alone, and a person in the
#: runbook.
CALLS: Mapping[str, Callable[["Person"], object]] = {
    "CallFunctions": lambda who: who.client("lambda").invoke(FunctionName=who.name("offers")),
    "EndFailedEvents": lambda who: who.client("sqs").purge_queue(QueueUrl=who.failed_events),
    "SeeSchedules": lambda who: who.client("scheduler").get_schedule(Name=who.name("count--tick")),
    "SeeSources": lambda who: who.client("s3").get_bucket_notification_configuration(
        Bucket=who.world.session.deployment.bucket
    ),
    "SeeSpareTicks": lambda who: who.client("events").describe_rule(Name=who.name("count--tick")),
    "SeeSubscribers": lambda who: who.client("sns").list_subscriptions_by_topic(
        TopicArn=who.world.session.deployment.topic
    ),
}
#: EC2, its prices and its quotas are our own market here, which asks no IAM. What belongs to AWS or
#: lies below a path is named otherwise by the emulator's IAM.
NOT_RUN = {"EndWorkers", "SeeMarket", "SeeParameters", "SeeSpotRole"}


@dataclass(frozen=True)
class Person:
    """Somebody with the rights that a command prints."""

    world: World
    directory: Path
    role: str

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run a command as this person, and nothing denied before counts."""
        self.world.iam.denied.clear()
        keys = self.world.iam.keys_of(self.role)
        aws = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
            "AWS_ENDPOINT_URL": self.world.system.endpoint,
        }
        return subprocess.run(
            [sys.executable, "-m", "spindown", *line.split()],
            check=False,
            cwd=self.directory,
            env={**os.environ, **aws},
            capture_output=True,
            text=True,
        )

    def client(self, service: str) -> Any:
        """Return a client of a service with which this person calls."""
        keys = self.world.iam.keys_of(self.role)
        # boto3's stubs have an overload for each service; here the name is the caller's.
        create: Any = boto3.client
        return create(
            service,
            region_name=self.world.system.region,
            endpoint_url=self.world.system.endpoint,
            aws_access_key_id=keys.access_key,
            aws_secret_access_key=keys.secret_key,
            aws_session_token=keys.token,
        )

    def name(self, part: str) -> str:
        """Return what a part of the deployment is called."""
        return resource_name(self.world.session.deployment.name, part)

    @property
    def failed_events(self) -> str:
        """Return the URL of the queue of events that came to nothing."""
        prefix = f"{self.world.session.deployment.name}-core-ControlFailedEvents"
        found = self.world.client("sqs").list_queues(QueueNamePrefix=prefix)["QueueUrls"]
        return str(found[0])

    @property
    def denied(self) -> Sequence[str]:
        """Return what the last command was denied."""
        return [str(one) for one in self.world.iam.denied if one.role == self.role]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iam")


@pytest.fixture(scope="module")
def world(directory: Path) -> Iterator[World]:
    yield from deployed(directory)


def hire(world: World, directory: Path, role: str) -> Person:
    """Make a role of what the command prints."""
    printed = subprocess.run(
        [sys.executable, "-m", "spindown", "iam", role, "--account", ACCOUNT],
        check=True,
        cwd=directory,
        capture_output=True,
        text=True,
    ).stdout
    iam = world.client("iam")
    trust = {"Version": "2012-10-17", "Statement": []}
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(trust))
    iam.put_role_policy(RoleName=role, PolicyName="printed", PolicyDocument=printed)
    return Person(world, directory, role)


@pytest.fixture(scope="module")
def submitter(world: World, directory: Path) -> Person:
    return hire(world, directory, "submitter")


@pytest.fixture(scope="module")
def operator(world: World, directory: Path) -> Person:
    person = hire(world, directory, "operator")
    # For whatever asks for them, in any order.
    for batch in ("once", "twice-more"):
        assert person.run(f"submit count spindown.toml --batch {batch}").returncode == 0
    return person


@pytest.mark.parametrize(
    "line",
    [
        "submit count spindown.toml",
        "submit count spindown.toml --batch monday",
        "submit count --uri s3://papers/2026/",
    ],
)
def test_who_submits_needs_no_more(submitter: Person, line: str) -> None:
    done = submitter.run(line)

    assert (done.returncode, done.stderr) == (0, "")
    # That it may not look whether a name was used, the write of the index makes up for.
    assert [one for one in submitter.denied if "batches/monday" not in one] == []


def test_a_name_that_was_used_is_refused_to_who_may_not_look(submitter: Person) -> None:
    runs = [submitter.run("submit count spindown.toml --batch twice") for _ in range(2)]

    assert [done.returncode for done in runs] == [0, 1]
    assert "twice" in runs[1].stderr


@pytest.mark.parametrize("sid", SUBMITTER)
def test_a_submit_misses_each_statement(submitter: Person, sid: str) -> None:
    with submitter.world.iam.without("submitter", sid):
        done = submitter.run(SUBMITTER[sid])

    assert submitter.denied
    # Without a nudge the scaler looks within a minute.
    assert (done.returncode == 0) is (sid == "WakeScaler")


@pytest.mark.parametrize("key", ["batches/{}.json", "submitted/{}/00000.jsonl", "open/{}"])
def test_who_submits_writes_over_nothing_of_a_batch(submitter: Person, key: str) -> None:
    name = f"owned-{key[0]}"
    assert submitter.run(f"submit count spindown.toml --batch {name}").returncode == 0
    store = submitter.world.store
    before = store.get(key.format(name)).data
    put = partial(
        submitter.client("s3").put_object,
        Bucket=submitter.world.session.deployment.bucket,
        Key=f"workloads/count/{key.format(name)}",
        Body=b"forged",
    )

    codes = []
    for how in ({}, {"IfNoneMatch": "*"}):
        with pytest.raises(ClientError) as refused:
            put(**how)
        codes.append(refused.value.response["Error"]["Code"])

    assert codes == ["AccessDenied", "PreconditionFailed"]
    assert store.get(key.format(name)).data == before


@pytest.mark.parametrize("line", ["status", "results monday", "policy set count max_workers=9"])
def test_who_submits_may_do_nothing_else(submitter: Person, line: str) -> None:
    done = submitter.run(line)

    assert done.returncode == 1
    assert submitter.denied


@pytest.mark.parametrize(
    "line",
    [
        "submit count spindown.toml",
        "status",
        "plan count",
        "why count",
        "cost count",
        "rightsize count",
        "usage count",
        "results once --summary",
        "logs once",
        "policy show count",
        "policy set count max_workers=2",
        "policy history count",
        "policy reset count max_workers",
        "cancel twice-more",
        "redrive count",
        "drain other",
    ],
)
def test_who_operates_needs_no_more(operator: Person, line: str) -> None:
    done = operator.run(line)

    assert operator.denied == [], done.stderr
    assert done.returncode == 0, done.stderr


def test_doctor_reports_though_it_may_not_see_all(operator: Person) -> None:
    done = operator.run("doctor --json")

    assert json.loads(done.stdout)["findings"]
    # Secrets, keys and inputs, which are not the deployment's own; roles and images: ``OF_AWS``.
    assert {one.split()[1] for one in operator.denied} <= {
        "iam:GetRole",
        "kms:DescribeKey",
        "s3:ListBucket",
        "secretsmanager:DescribeSecret",
        "ssm:GetParameter",
    }


@pytest.mark.parametrize("sid", OPERATOR)
def test_an_operator_misses_each_statement(operator: Person, sid: str) -> None:
    with operator.world.iam.without("operator", sid):
        operator.run(OPERATOR[sid])

    assert operator.denied


@pytest.mark.parametrize("sid", CALLS)
def test_a_call_of_an_operator_needs_its_statement(operator: Person, sid: str) -> None:
    operator.world.iam.denied.clear()
    CALLS[sid](operator)
    denied = operator.denied

    with operator.world.iam.without("operator", sid), pytest.raises(ClientError):
        CALLS[sid](operator)

    assert (denied, bool(operator.denied)) == ([], True)


@pytest.mark.parametrize(
    ("role", "run"), [("operator", {*OPERATOR, *CALLS, *NOT_RUN}), ("submitter", {*SUBMITTER})]
)
def test_no_statement_is_left_out(role: str, run: set[str], request: pytest.FixtureRequest) -> None:
    person: Person = request.getfixturevalue(role)

    assert role in RIGHTS
    assert person.world.iam.statements(role) == run
