"""Plain `cdk deploy` and `cdk destroy` of what runs, in the gateway.

Nothing of the wiring is written a second time: the template, the functions' code and the launch
templates are those of an AWS account, with wheels for this machine. In place of `cdk bootstrap`
stand the two things a deploy as its caller needs: the assets' bucket and the version parameter.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spindown.config.deployment import bootstrap_parameter
from spindown.error import SpindownError
from spindown.installed import cdk_command
from spindown.local.environment import ACCOUNT

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_ssm import SSMClient

#: Of what `cdk bootstrap` would make; that of CDK 2.275.
_BOOTSTRAP_VERSION = "31"

#: The sentence by which the CDK app itself tells what is wrong, and those of the command line.
_OWN_SENTENCE = re.compile(r"^spindown: (.+)$", re.MULTILINE)
_COMPLAINT = re.compile(r"error|fail|cannot|unable", re.IGNORECASE)


class DeployError(SpindownError):
    """The deploy did not succeed; the text is one sentence."""


def bootstrap(s3: "S3Client", ssm: "SSMClient", region: str, qualifier: str) -> None:
    """Make what a deploy expects to find in an account; harmless when it is there."""
    bucket = f"cdk-{qualifier}-assets-{ACCOUNT}-{region}"
    create: Callable[..., object] = s3.create_bucket
    place = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        # S3 takes no location for the region that it came from.
        create(Bucket=bucket, **({} if region == "us-east-1" else place))
    ssm.put_parameter(
        Name=bootstrap_parameter(qualifier),
        Value=_BOOTSTRAP_VERSION,
        Type="String",
        Overwrite=True,
    )


def deploy(
    config_path: Path,
    *,
    stacks: Sequence[str],
    state: Path,
    environment: Mapping[str, str],
    log: Path,
) -> None:
    """Synthesise and deploy stacks; raise `DeployError` with what went wrong.

    `environment` points at the gateway; `state` keeps the assembly, so that what has not changed
    is not made again.
    """
    how = ("--require-approval", "never", "--method", "direct", "--progress", "events")
    _run_cdk("deploy", config_path, stacks, how, state=state, environment=environment, log=log)


def destroy(
    config_path: Path,
    *,
    stacks: Sequence[str],
    state: Path,
    environment: Mapping[str, str],
    log: Path,
) -> None:
    """Delete stacks as `cdk destroy` does; raise `DeployError` with what went wrong."""
    how = ("--force",)
    _run_cdk("destroy", config_path, stacks, how, state=state, environment=environment, log=log)


def _run_cdk(
    verb: str,
    config_path: Path,
    stacks: Sequence[str],
    how: Sequence[str],
    *,
    state: Path,
    environment: Mapping[str, str],
    log: Path,
) -> None:
    node, program = cdk_command()
    command = [
        *(node, program, verb, *stacks, *how),
        *("--app", f"{sys.executable} -m spindown.infra.app"),
        *("--output", str(state / "cdk.out")),
        *("--context", f"config={config_path.resolve()}"),
        *("--context", "bundle=host", "--context", "synthesizer=cli-credentials"),
        *("--no-notices", "--no-version-reporting", "--no-path-metadata", "--no-asset-metadata"),
        "--exclusively",
    ]
    settings = {
        "JSII_NODE": node,
        "PATH": os.pathsep.join([str(Path(node).parent), environment.get("PATH", os.defpath)]),
        # Its caches of accounts by access key must not outlive this state, nor meet another.
        "CDK_HOME": str(state / "cdk.home"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # The template is validated by `make synth`; here it costs a second for nothing.
        "CDK_VALIDATION": "false",
        "NO_COLOR": "1",
    }
    status = _run(command, cwd=state, environment={**environment, **settings}, log=log)
    if status != 0:
        said = log.read_text(encoding="utf-8", errors="replace")
        raise DeployError(describe_failure(said, log, verb))


def _run(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path) -> int:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def describe_failure(output: str, log: Path, verb: str = "deploy") -> str:
    """Say in one sentence what the output of a failed `cdk deploy` or `cdk destroy` means."""
    own = _OWN_SENTENCE.findall(output)
    if own:
        return str(own[-1])
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if _COMPLAINT.search(line)] or lines[-1:]
    said = complaints[0][:300] if complaints else "it said nothing"
    return f"cdk {verb} failed ({said}); {log} has the details."
