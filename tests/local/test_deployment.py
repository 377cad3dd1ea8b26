from pathlib import Path

import pytest

from spindown.local.deployment import describe_failure

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
