import sys
from pathlib import Path

import pytest

from spindown.local.deployment import (
    DeployError,
    check_checkout,
    describe_failure,
    find_cdk,
    find_node,
    project_root,
)

LOG = Path("deploy.log")


def test_finds_a_node_that_is_new_enough_and_the_pinned_cdk() -> None:
    assert find_node().name == "node"
    assert find_cdk(project_root()).name == "cdk"


def test_a_missing_cdk_is_one_sentence_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"No CDK command line was found .* run `make setup`"):
        find_cdk(tmp_path)


def test_a_wheel_is_told_that_it_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="`make setup`"):
        check_checkout(root=tmp_path)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_checkout("magika")
    monkeypatch.setitem(sys.modules, "magika", None)
    with pytest.raises(DeployError, match=r"magika .* `make setup`"):
        check_checkout("magika")


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
