from pathlib import Path

import pytest

from spindown.local.deployment import (
    DeployError,
    deploy,
    describe_failure,
    digest,
    drop_old_assets,
    is_deployed,
    note_deployed,
    steps_of,
)
from tests.local.world import write_config

LOG = Path("deploy.log")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        pytest.param(
            "spindown: workload.a.run.code is 'x': name a directory\nError: exit 1\n",
            "workload.a.run.code is 'x': name a directory",
            id="the app's own sentence",
        ),
        pytest.param(
            "synthesising\n  toy-core failed: bucket gone\nmore\n",
            "cdk deploy failed (toy-core failed: bucket gone); deploy.log has the details.",
            id="the first complaint",
        ),
        pytest.param(
            "one\ntwo\n",
            "cdk deploy failed (two); deploy.log has the details.",
            id="the last line",
        ),
        pytest.param(
            "", "cdk deploy failed (it said nothing); deploy.log has the details.", id="silence"
        ),
    ],
)
def test_a_failed_deploy_is_told_in_one_sentence(output: str, sentence: str) -> None:
    assert describe_failure(output, LOG) == sentence


def test_what_cdk_begins_is_told_in_plain_words() -> None:
    written = [
        "Bundling asset toy-core/Control/Scaler/Function/Code/Stage...\n",
        "\n",
        "toy-core: start: Publishing Worker kit (current_account)\n",
        "toy-core: deploying... [1/1]\n",
        "toy-core |   0 | 2:52:43 PM | CREATE_IN_PROGRESS | AWS::SNS::Topic | Alarms/Topic\n",
    ]

    assert list(steps_of(written)) == [
        "packing the functions with what they import",
        "publishing templates and code",
        "changing the resources of toy-core",
    ]


def test_stacks_are_made_anew_only_where_something_changed(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    code = next(each for each in tmp_path.iterdir() if each.is_dir())
    before = digest(path)
    (code / ".hidden").write_text("x", encoding="utf-8")
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "a.pyc").write_text("x", encoding="utf-8")
    assert digest(path) == before

    (code / "more.py").write_text("", encoding="utf-8")
    with_file = digest(path)
    path.write_text(path.read_text(encoding="utf-8") + "\n# said\n", encoding="utf-8")

    assert len({before, with_file, digest(path)}) == 3


def test_only_what_a_stack_names_is_kept(tmp_path: Path) -> None:
    (tmp_path / "toy.assets.json").write_text('{"path": "asset.new.zip", "other": "asset.code"}')
    for name in ("asset.new.zip", "asset.old.zip"):
        (tmp_path / name).write_bytes(b"x")
    for name in ("asset.code", "asset.past"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")

    drop_old_assets(tmp_path)

    assert {one.name for one in tmp_path.glob("asset.*")} == {"asset.new.zip", "asset.code"}


def test_a_deploy_counts_once_all_that_runs_goes_by_it(tmp_path: Path) -> None:
    path, state = write_config(tmp_path), tmp_path / "state"
    state.mkdir()
    (state / "cdk.out.sha256").write_text(digest(path), encoding="utf-8")
    made = is_deployed(path, state)
    note_deployed(state)
    renewed = is_deployed(path, state)

    with pytest.raises(DeployError):
        deploy(path, stacks=["none"], state=state, environment={}, log=tmp_path / "log")

    assert (made, renewed, is_deployed(path, state)) == (False, True, False)
