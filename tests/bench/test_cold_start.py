"""What a function's start costs, against a start that only imports boto3 and makes its clients.

The handler is started from the package as it is deployed, built for this machine: its service
models are cut down to what is called. What it is held against is what a function has without such
care: boto3 of the same version, with its full models. The ratio against boto3 with our cut-down
models is recorded beside it, so that one sees how much the models do.

A start runs in a process of its own, from the first import until the clients of a tick (DynamoDB,
SQS, S3, SSM, EC2) are made. Both sides find compiled bytecode, as code on a writable disk does;
``source`` is the start of a package that brings none to a disk that keeps none, as Lambda's. Time
is CPU time in that process; the order turns round each time, and the medians are compared, since
the machine may be shared.
"""

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from spindown.infra.control.bundle import Target, make_bundle
from tests.bench.record import record

pytestmark = pytest.mark.bench

ROUNDS = 10
LIMIT = 1.25
#: boto3 and all that it imports.
PLAIN = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six.py", "urllib3")
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}

TIMED = """
import sys
sys.path.insert(0, sys.argv[1])
from time import process_time
start = process_time()
{start}
print((process_time() - start) * 1000.0)
"""
BOTO3 = TIMED.format(
    start="""
import boto3
session = boto3.Session()
clients = [session.client(name) for name in ("dynamodb", "sqs", "s3", "ssm", "ec2")]
"""
)
SCALER = """
import spindown.functions.scaler
from spindown.functions.port import connect
aws = connect()
ports = aws.table("t"), aws.queue("q"), aws.object_store("b"), aws.settings("d"), aws.compute()
aws._ec2("us-east-1")
"""
HANDLER = TIMED.format(start=SCALER)
#: A live edit of the policy is validated, which is all that pydantic is for.
EDITED = TIMED.format(
    start=SCALER
    + """
from spindown.config import merge_policy
from spindown.domain.policy import Policy
merge_policy(Policy(), {"max_workers": 3, "idle_timeout": "5m"})
"""
)


class Start:
    """One way to start, and what it has taken so far, ms of CPU."""

    def __init__(self, code: str, package: Path) -> None:
        # Isolated and without site-packages: what is not in the package is not there.
        self._command = [sys.executable, "-I", "-S", "-B", "-c", code, str(package)]
        self.taken: list[float] = []

    def run(self) -> None:
        done = subprocess.run(
            self._command, env=ENVIRONMENT, check=True, capture_output=True, text=True
        )
        self.taken.append(float(done.stdout))

    @property
    def median(self) -> float:
        return median(self.taken)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("package")
    make_bundle(directory, Target.HOST)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("plain")
    installed = Path(sysconfig.get_paths()["purelib"])
    for name in PLAIN:
        source = installed / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, directory / name, ignore=ignored)
        else:
            shutil.copyfile(source, directory / name)
    yield directory
    shutil.rmtree(directory)


def compile_all(*directories: Path) -> None:
    """Compile for good: nothing is compared with its source any more."""
    options = ("--invalidation-mode", "unchecked-hash")
    command = [sys.executable, "-m", "compileall", "-q", *options, *map(str, directories)]
    subprocess.run(command, check=True)


def take_turns(starts: Sequence[Start], rounds: int) -> None:
    """Run all, then all the other way round: neither is always first."""
    for _ in range(rounds // 2):
        for start in (*starts, *reversed(starts)):
            start.run()


def test_a_handler_starts_nearly_as_fast_as_its_clients(package: Path, plain: Path) -> None:
    assert (package / f"boto3-{importlib.metadata.version('boto3')}.dist-info").is_dir()
    source, bare_source = Start(HANDLER, package), Start(BOTO3, plain)
    take_turns((bare_source, source), ROUNDS)
    compile_all(package, plain)
    bare, trimmed = Start(BOTO3, plain), Start(BOTO3, package)
    handler, edited = Start(HANDLER, package), Start(EDITED, package)
    take_turns((bare, trimmed, handler, edited), ROUNDS)

    ratios = {
        "ratio": handler.median / bare.median,
        "ratio_with_pydantic": edited.median / bare.median,
        "ratio_source": source.median / bare_source.median,
    }
    record(
        "cold_start",
        {
            "boto3_and_clients_cpu_ms": round(bare.median, 1),
            "boto3_and_clients_trimmed_cpu_ms": round(trimmed.median, 1),
            "boto3_and_clients_source_cpu_ms": round(bare_source.median, 1),
            "handler_cpu_ms": round(handler.median, 1),
            "handler_with_pydantic_cpu_ms": round(edited.median, 1),
            "handler_source_cpu_ms": round(source.median, 1),
            **{name: round(ratio, 3) for name, ratio in ratios.items()},
            "limit": LIMIT,
            "ratio_to_trimmed": round(handler.median / trimmed.median, 3),
            "ratio_to_trimmed_with_pydantic": round(edited.median / trimmed.median, 3),
            "starts_each": len(handler.taken),
        },
    )
    assert max(ratios.values()) <= LIMIT
