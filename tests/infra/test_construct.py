"""A deployment as a construct: the stacks of the app, inside an app of somebody's own."""

import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stage

from spindown.error import ConfigError
from spindown.infra import Deployment
from spindown.infra.deployment import describe
from spindown.infra.flag import FLAGS
from tests.infra.assembly import PLAIN, ROOT, make_app, write_project

EXAMPLE = ROOT / "examples" / "construct" / "app.py"


def an_app(directory: Path, context: Mapping[str, Any] | None = None) -> App:
    return App(
        outdir=str(directory),
        context={"aws:cdk:bundling-stacks": [], **(context or {})},
        builtin_cloud_formation_validation=False,
        analytics_reporting=False,
    )


def templates(app: App) -> Mapping[str, Any]:
    return {one.stack_name: one.template for one in app.synth().stacks_recursively}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    app = an_app(tmp_path_factory.mktemp("example"))
    runpy.run_path(str(EXAMPLE))["build"](app)
    return templates(app)


def test_the_example_holds_two_deployments_and_its_own_stack(
    example: Mapping[str, Any],
) -> None:
    parts = ("core", "image", "insight")
    named = {f"words-{name}-{part}" for name in ("eu", "us") for part in parts}

    assert set(example) == named | {"tell"}


def test_no_deployment_of_an_app_names_another(example: Mapping[str, Any]) -> None:
    for mine, theirs in (("eu", "us"), ("us", "eu")):
        assert f"words-{theirs}" not in json.dumps(example[f"words-{mine}-core"])


def test_its_stacks_are_those_of_the_app(tmp_path: Path) -> None:
    project = write_project(tmp_path, PLAIN.format(image=""))
    own = make_app(project, tmp_path / "own")
    describe(own)
    other = an_app(tmp_path / "other", FLAGS)
    Deployment.from_file(other, "Lab", project)

    assert without_paths(templates(other)) == without_paths(templates(own))


def without_paths(found: Mapping[str, Any]) -> Any:
    """Return templates without the path of the app, which CDK puts into some ids and texts."""
    path = r"(AllowEventRule|Part of the policies for )[\w/-]+"
    return json.loads(re.sub(path, r"\1", json.dumps(found)))


def test_it_may_stand_in_a_stage(tmp_path: Path) -> None:
    project = write_project(tmp_path, PLAIN.format(image=""))
    app = an_app(tmp_path / "out")
    Deployment.from_file(Stage(app, "Prod"), "Lab", project)

    assembly = app.synth()
    assert {one.stack_name for one in assembly.stacks_recursively} == {
        "lab-core",
        "lab-image",
        "lab-insight",
    }
    manifests = sorted(Path(assembly.directory).rglob("*.assets.json"))
    assert len(manifests) == 3
    for manifest in manifests:
        for file in json.loads(manifest.read_text())["files"].values():
            assert (manifest.parent / file["source"]["path"]).exists(), file["displayName"]


def test_what_is_wrong_is_said_as_of_a_file(tmp_path: Path) -> None:
    project = write_project(tmp_path, PLAIN.format(image="").replace('"code"', '"none"'))
    with pytest.raises(ConfigError, match=r"workload\.plain\.run\.code"):
        Deployment.from_file(an_app(tmp_path / "out"), "Lab", project)


def test_another_name_is_not_there() -> None:
    with pytest.raises(ImportError):
        from spindown.infra import Deploiment  # noqa: F401, PLC0415


def test_a_name_is_no_other_deployment_s_of_the_app(tmp_path: Path) -> None:
    project = write_project(tmp_path, PLAIN.format(image=""))
    app = an_app(tmp_path / "out")
    Deployment.from_file(app, "One", project)

    with pytest.raises(ConfigError, match="One has this one"):
        Deployment.from_file(Stage(app, "Other"), "Two", project)


def test_no_setting_takes_an_export_away_that_is_in_use(tmp_path: Path) -> None:
    """With CDK's usual references an export stays while the deployed insight stack imports it."""
    made = {}
    for email in ('alarm_email = "a@example.com"', ""):
        project = write_project(
            tmp_path, PLAIN.format(image="").replace("zones", f"{email}\nzones")
        )
        app = an_app(tmp_path / f"out-{bool(email)}")
        Deployment.from_file(app, "Lab", project)
        made[bool(email)] = templates(app)

    imported = set(
        re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(made[True]["lab-insight"]))
    )
    exported = {
        one["Export"]["Name"]
        for one in made[False]["lab-core"]["Outputs"].values()
        if "Export" in one
    }
    assert any("FailedEvents" in name for name in imported)
    assert imported <= exported


def test_the_queue_of_no_workload_names_those_there_are(tmp_path: Path) -> None:
    project = write_project(tmp_path, PLAIN.format(image=""))
    made = Deployment.from_file(an_app(tmp_path / "out"), "Lab", project)

    assert made.queue("plain").queue_arn
    with pytest.raises(ConfigError, match="queue is 'nope': name a workload: plain"):
        made.queue("nope")
