"""Synthesises a deployment in this process, and reads what came to be."""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import (
    App,
    DefaultStackSynthesizer,
    IPolicyValidationPlugin,
    Stack,
    Validations,
)
from cdk_nag import AwsSolutionsChecks

from spindown import config
from spindown.contract.image import Kit
from spindown.infra.control.bundle import Target
from spindown.infra.core import CoreStack
from spindown.infra.deployment import describe
from spindown.infra.flag import FLAGS
from spindown.infra.image_stack import ImageStack

ROOT = Path(__file__).parents[2]

#: Two workloads: the plainest one, and one that uses what there is.
CONFIG = """
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a", "eu-west-1c"]
budget_per_month = 75.0

[workload.plain.run]
entrypoint = "job:run"
code = "code"

[workload.rich]
inputs = ["s3://papers/2026/", "s3://papers/2025/"]
models = ["s3://models/ocr"]
kms_keys = ["arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"]

[workload.rich.run]
entrypoint = "job:run"
code = "code"
slots = 2
env = { LEVEL = "3" }
secrets = { TOKEN = "hub/token", PASSWORD = "/rich/password" }
metadata_access = true

[workload.rich.requirements]
architectures = ["x86_64", "arm64"]
gpu_names = ["T4", "L4"]

[workload.rich.policy]
idle_timeout = "3m"
max_price_per_hour = 1.25

[workload.rich.image]
root_volume_gib = 60
parameters = { x86_64 = "/images/rich/x86_64", arm64 = "/images/rich/arm64" }
"""

#: The same, spread over another region.
AWAY = "us-west-2"
SPREAD = CONFIG.replace(
    "budget_per_month",
    f'outpost.{AWAY}.zones = ["us-west-2b", "us-west-2d"]\nbudget_per_month',
)

#: One workload, with room for what its image is.
PLAIN = """
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a"]

[workload.plain.run]
entrypoint = "job:run"
code = "code"

[workload.plain.image]
{image}
"""


#: The same for work that needs no GPU.
NO_GPU = PLAIN.format(
    image="""
[workload.plain.requirements]
gpu_count_min = 0
architectures = ["x86_64", "arm64"]
"""
)


def write_project(directory: Path, text: str = CONFIG) -> Path:
    """Write spindown.toml and its code; return the path of the former."""
    (directory / "code").mkdir(exist_ok=True)
    (directory / "code" / "job.py").write_text("def run(batch, ctx): return []\n")
    path = directory / "spindown.toml"
    path.write_text(text)
    return path


def make_app(
    project: Path,
    directory: Path,
    *,
    checked: bool = False,
    context: Mapping[str, Any] | None = None,
) -> App:
    """Return an app whose functions' package is not made."""
    given = {"config": str(project), "aws:cdk:bundling-stacks": [], **(context or {})}
    return App(
        outdir=str(directory),
        context={**FLAGS, **given},
        builtin_cloud_formation_validation=checked,
        analytics_reporting=False,
    )


def synthesise(project: Path, directory: Path) -> "Assembly":
    """Return the templates that spindown.toml gives."""
    return _synthesise(project, directory, describe)


def _synthesise(project: Path, directory: Path, add: Callable[[App], Stack]) -> "Assembly":
    app = make_app(project, directory)
    stack = add(app)
    app.synth()
    return Assembly(project, directory, stack.stack_name)


def describe_core(app: App, project: Path) -> CoreStack:
    """Add the core stack alone to an app."""
    return CoreStack(
        app,
        config=config.load(project),
        root=project.parent,
        target=Target.LAMBDA,
        synthesizer=DefaultStackSynthesizer(),
    )


def synthesise_core(project: Path, directory: Path) -> "Assembly":
    """Return the core template alone, without the exports that other stacks ask it for."""
    return _synthesise(project, directory, lambda app: describe_core(app, project))


def describe_image(app: App, project: Path) -> ImageStack:
    """Add the image stack alone to an app."""
    return ImageStack(
        app,
        config=config.load(project),
        root=project.parent,
        synthesizer=DefaultStackSynthesizer(),
    )


def synthesise_image(project: Path, directory: Path) -> "Assembly":
    """Return the image template alone."""
    return _synthesise(project, directory, lambda app: describe_image(app, project))


def synthesise_once(
    factory: pytest.TempPathFactory, name: str, write: Callable[[Path], Path]
) -> "Assembly":
    """Return the templates of a project, made by whichever process of the tests is first.

    Args:
        factory: pytest's own.
        name: of the project, among those that are shared.
        write: writes it into a directory, returns the path of its spindown.toml.
    """
    root = once(factory, name, lambda root: _synthesise_into(root, write))
    project, stack_name = (root / "made").read_text().splitlines()
    return Assembly(Path(project), root / "out", stack_name)


def _synthesise_into(root: Path, write: Callable[[Path], Path]) -> None:
    (root / "project").mkdir()
    made = synthesise(write(root / "project"), root / "out")
    (root / "made").write_text(f"{made.project}\n{made.stack_name}\n")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a directory that ``make`` has filled, once for all processes of the tests."""
    base = factory.getbasetemp()
    # Each process of xdist has a directory of its own below the common one.
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    root.mkdir(exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "done").exists():
            make(root)
            (root / "done").touch()
    return root


def report_findings(
    project: Path,
    directory: Path,
    *,
    add: Callable[[App], object] = describe,
    plugin: IPolicyValidationPlugin | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield (rule, path of the construct) of all that CDK's validator and cdk-nag find.

    ``add`` adds the stacks to an app: all of them, if nothing else is said. ``plugin`` stands in
    for cdk-nag; a rule then goes by the name that its description begins with.
    """
    app = make_app(project, directory, checked=True)
    add(app)
    Validations.of(app).add_plugins(plugin or AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as exc:
        if "ValidationFailed" not in str(exc):
            raise
    report = json.loads((directory / "validation-report.json").read_text())
    for told in report["pluginReports"]:
        for violation in told["violations"]:
            for construct in violation["violatingConstructs"]:
                named = re.match(r"\[(CT\.[\w.]+)\]", violation.get("description") or "")
                rule = named[1] if named else violation["ruleName"]
                yield rule, construct["constructPath"]


@dataclass(frozen=True)
class Assembly:
    """What was synthesised."""

    #: Path of spindown.toml.
    project: Path
    directory: Path
    stack_name: str

    @cached_property
    def template(self) -> Mapping[str, Any]:
        """The core stack's template."""
        path = self.directory / f"{self.stack_name}.template.json"
        template: Mapping[str, Any] = json.loads(path.read_text())
        return template

    @cached_property
    def assets(self) -> Mapping[str, Mapping[str, Any]]:
        """What is uploaded with the core stack, by the name that it has there."""
        path = self.directory / f"{self.stack_name}.assets.json"
        files: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text())["files"]
        return files

    @property
    def stacks(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """The resources of every stack, by its name and their logical ids."""
        found = sorted(self.directory.glob("*.template.json"))
        return {
            path.name.partition(".")[0]: json.loads(path.read_text())["Resources"] for path in found
        }

    @property
    def kit(self) -> Kit:
        """The kit that instances install, its place as ``words`` shows it."""
        ((digest, asset),) = (
            (digest, one)
            for digest, one in self.assets.items()
            if one["displayName"] == "Worker kit"
        )
        (place,) = asset["destinations"].values()
        uri = f"s3://{place['bucketName']}/{place['objectKey']}"
        return Kit(uri=uri, sha256=digest.rpartition("/")[2])

    @property
    def resources(self) -> Mapping[str, Mapping[str, Any]]:
        """The template's resources by logical id."""
        resources: Mapping[str, Mapping[str, Any]] = self.template["Resources"]
        return resources

    def all_of(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the properties of the resources of one type, in the template's order."""
        return [one["Properties"] for one in self.resources.values() if one["Type"] == kind]

    def one_of(self, kind: str, **properties: object) -> Mapping[str, Any]:
        """Return the properties of the only resource of a type that has these properties."""
        (one,) = (
            found
            for found in self.all_of(kind)
            if all(found.get(name) == value for name, value in properties.items())
        )
        return one

    def statements(self, role: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the statements of the role whose logical id begins with ``role``, by their id."""
        found = {}
        for name, resource in self.resources.items():
            # What does not fit into one policy, CDK puts into managed ones.
            is_policy = resource["Type"] in {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}
            if is_policy and name.startswith(role):
                for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                    found[statement.get("Sid", "")] = statement
        return found


def words(value: Any) -> str:
    """Return a template's value as text, references as ``<what they refer to>``."""
    match value:
        case {"Fn::Join": [str(glue), list(parts)]}:
            return glue.join(words(part) for part in parts)
        case {"Ref": str(name)}:
            return f"<{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Sub": str(text)}:
            return text
    return str(value)


def listed(value: Any) -> list[Any]:
    """Return a value that a template may give alone or as a list, as a list."""
    return value if isinstance(value, list) else [value]
