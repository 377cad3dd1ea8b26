"""A deployment of three workloads, two of whose images are baked, synthesised once."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.infra.assembly import Assembly, synthesise_once, write_project

CONFIG = """
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a", "eu-west-1c"]

[workload.plain.run]
entrypoint = "job:run"
code = "code"

[workload.plain.image]
mode = "bootstrap"

[workload.lean.run]
entrypoint = "job:run"
code = "code"
batch_size = 8

[workload.lean.image]
mode = "bake"

[workload.rich.run]
entrypoint = "job:run"
code = "code"
requirements = "needs.txt"

[workload.rich.requirements]
architectures = ["x86_64", "arm64"]

[workload.rich.image]
mode = "bake"
root_volume_gib = 60
"""


def write_baking_project(directory: Path) -> Path:
    project = write_project(directory, CONFIG)
    (directory / "code" / "needs.txt").write_text("six\n")
    return project


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "baking", write_baking_project)


@pytest.fixture(scope="session")
def image(core: Assembly) -> Assembly:
    return replace(core, stack_name="lab-image")
