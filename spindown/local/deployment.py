"""Plain `cdk deploy` and `cdk destroy` of what runs, in the gateway.

Nothing of the wiring is written a second time: the template, the functions' code and the launch
templates are those of an AWS account, with wheels for this machine. In place of `cdk bootstrap`
stand the two things a deploy as its caller needs: the assets' bucket and the version parameter.

What was synthesised is kept, and deployed again as long as nothing that it is made of has changed.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import spindown
from spindown import config
from spindown.config.archive import code_files, find_code
from spindown.config.deployment import bootstrap_parameter
from spindown.contract.pack import is_left_out
from spindown.error import SpindownError
from spindown.installed import cdk_command
from spindown.local.environment import ACCOUNT

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_ssm import SSMClient

#: Of what `cdk bootstrap` would make; that of CDK 2.275.
_BOOTSTRAP_VERSION = "31"

#: The sentence by which the CDK app itself tells what is wrong, and those of the command line.
_OWN_SENTENCE = re.compile(r"^spindown: (.+)$", re.MULTILINE)
_COMPLAINT = re.compile(r"error|fail|cannot|unable", re.IGNORECASE)

#: How often what `cdk` has written is looked at.
_LOOK_SECONDS = 0.2
#: What `cdk` writes when it begins something -> how that is told.
_STEPS = (
    (re.compile(r"^Bundling asset "), "packing the functions with what they import"),
    (re.compile(r"^\S+: start: Publishing "), "publishing templates and code"),
    (re.compile(r"^(\S+): (?:deploying|destroying)\.\.\."), r"changing the resources of \1"),
)

#: In the state directory: of what the stacks there were made.
_KEPT = "cdk.out.sha256"
#: The same of those that were deployed last, once everything that runs goes by them.
_DEPLOYED = "deployed.sha256"

Tell = Callable[[str], None]


def _tell_nobody(step: str) -> None:
    del step


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
    tell: Tell = _tell_nobody,
) -> None:
    """Synthesise and deploy stacks; raise `DeployError` with what went wrong.

    `environment` points at the gateway; `state` keeps the assembly, so that what has not changed
    is not made again; `tell` hears of each step as it begins.
    """
    how: Sequence[str] = (
        *("--require-approval", "never", "--method", "direct"),
        *("--progress", "events"),
    )
    assembly, made_of = str(state / "cdk.out"), digest(config_path)
    kept = state / _KEPT
    is_kept = kept.is_file() and kept.read_text(encoding="utf-8") == made_of
    (state / _DEPLOYED).unlink(missing_ok=True)
    tell("reading the stacks, unchanged since the last time" if is_kept else "making the stacks")
    if not is_kept:
        # So that what breaks off is never taken for whole.
        kept.unlink(missing_ok=True)
    how = (*how, "--app", assembly) if is_kept else (*how, *_app(assembly))
    _run_cdk(
        "deploy", config_path, stacks, how, state=state, environment=environment, log=log, tell=tell
    )
    drop_old_assets(Path(assembly))
    kept.write_text(made_of, encoding="utf-8")


def note_deployed(state: Path) -> None:
    """Note that everything that runs goes by what was deployed last."""
    shutil.copyfile(state / _KEPT, state / _DEPLOYED)


def is_deployed(config_path: Path, state: Path) -> bool:
    """Tell whether everything that runs goes by what a spindown.toml and its code come to."""
    noted = state / _DEPLOYED
    return noted.is_file() and noted.read_text(encoding="utf-8") == digest(config_path)


def stacks_of(deployment: str, regions: Sequence[str]) -> tuple[str, ...]:
    """Return what runs, home first; the other stacks are checked, never run here."""
    return (f"{deployment}-core", *(f"{deployment}-outpost-{region}" for region in regions[1:]))


def put_dashboards(
    cloudwatch: "CloudWatchClient", state: Path, deployment: str, region: str
) -> None:
    """Store the dashboards of the insight stack, which is only synthesised here."""
    template = state / "cdk.out" / f"{deployment}-insight.template.json"
    for name, body in read_dashboards(template, region):
        cloudwatch.put_dashboard(DashboardName=name, DashboardBody=body)


def drop_old_assets(assembly: Path) -> None:
    """Remove what earlier syntheses have packed and no stack of this one names."""
    named = "".join(one.read_text(encoding="utf-8") for one in assembly.glob("*.assets.json"))
    for old in assembly.glob("asset.*"):
        if old.name not in named:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def digest(config_path: Path) -> str:
    """Return the SHA-256 of all that stacks are made of (raises ConfigError).

    That is spindown.toml, the code that it names, Spindown itself, and this Python.
    """
    config_path = config_path.resolve()
    loaded, root = config.load(config_path), config_path.parent
    found = hashlib.sha256(f"{sys.executable} {sys.version} {config_path}".encode())
    files = [config_path, *_own_files()]
    for name, workload in sorted(loaded.workloads.items()):
        code, wanted = find_code(root, name, workload), workload.run.requirements
        if code is not None:
            files += code_files(code, wanted if isinstance(wanted, str) else None)
    for path in dict.fromkeys(files):
        mode, data = path.stat().st_mode, path.read_bytes()
        found.update(f"\0{path}\0{mode}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def _own_files() -> Iterator[Path]:
    """Yield the files of Spindown itself."""
    for parent, folders, names in os.walk(Path(spindown.__file__).parent, followlinks=True):
        folders[:] = sorted(each for each in folders if not is_left_out(PurePosixPath(each)))
        for name in sorted(names):
            path = Path(parent, name)
            if not is_left_out(PurePosixPath(name)) and path.is_file():
                yield path


def destroy(
    config_path: Path,
    *,
    stacks: Sequence[str],
    state: Path,
    environment: Mapping[str, str],
    log: Path,
) -> None:
    """Delete stacks as `cdk destroy` does; raise `DeployError` with what went wrong."""
    how = ("--force", *_app(str(state / "cdk.out")))
    _run_cdk("destroy", config_path, stacks, how, state=state, environment=environment, log=log)


def _app(assembly: str) -> Sequence[str]:
    """Return the options that make an assembly."""
    return ("--app", f"{sys.executable} -m spindown.infra.app", "--output", assembly)


def _run_cdk(
    verb: str,
    config_path: Path,
    stacks: Sequence[str],
    how: Sequence[str],
    *,
    state: Path,
    environment: Mapping[str, str],
    log: Path,
    tell: Tell = _tell_nobody,
) -> None:
    node, program = cdk_command()
    command = [
        *(node, program, verb, *stacks, *how),
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
    status = _run(command, cwd=state, environment={**environment, **settings}, log=log, tell=tell)
    if status != 0:
        said = log.read_text(encoding="utf-8", errors="replace")
        raise DeployError(describe_failure(said, log, verb))


def _run(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path, tell: Tell
) -> int:
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
    shown = ""
    try:
        with log.open(encoding="utf-8", errors="replace") as written:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_SECONDS)
                for step in steps_of(written.readlines()):
                    if step != shown:
                        tell(step)
                    shown = step
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def steps_of(lines: Sequence[str]) -> Iterator[str]:
    """Yield what `cdk` has begun to do, by what it has written."""
    for line in lines:
        for pattern, step in _STEPS:
            if found := pattern.match(line):
                yield found.expand(step)


def describe_failure(output: str, log: Path, verb: str = "deploy") -> str:
    """Say in one sentence what the output of a failed `cdk deploy` or `cdk destroy` means."""
    own = _OWN_SENTENCE.findall(output)
    if own:
        return str(own[-1])
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if _COMPLAINT.search(line)] or lines[-1:]
    said = complaints[0][:300] if complaints else "it said nothing"
    return f"cdk {verb} failed ({said}); {log} has the details."


def read_dashboards(template: Path, region: str) -> Iterator[tuple[str, str]]:
    """Yield name and body of each dashboard of a template, its references resolved."""
    resources = json.loads(template.read_text(encoding="utf-8"))["Resources"]
    for resource in resources.values():
        if resource["Type"] == "AWS::CloudWatch::Dashboard":
            properties = resource["Properties"]
            body = properties["DashboardBody"]
            parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
            yield (
                str(properties["DashboardName"]),
                "".join(_resolve(part, resources, region) for part in parts),
            )


def _resolve(part: Any, resources: Mapping[str, Any], region: str) -> str:
    match part:
        case str():
            return part
        case {"Ref": "AWS::Region"}:
            return region
        case {"Fn::GetAtt": [name, "Arn"]}:
            alarm = resources[name]["Properties"]["AlarmName"]
            return f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:{alarm}"
    raise DeployError(f"a dashboard refers to what is not known here: {part}")
