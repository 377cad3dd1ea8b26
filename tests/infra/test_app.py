"""The app as CDK runs it, and what it says to a person whose input is wrong."""

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from spindown.config import Config, parse
from spindown.error import ConfigError
from spindown.infra.deployment import describe, suit_this_machine
from spindown.infra.flag import FLAGS
from tests.infra.assembly import (
    PLAIN,
    ROOT,
    make_app,
    synthesise_core,
    words,
    write_project,
)


def run_app(**environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "spindown.infra.app"],
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def test_a_good_deployment_is_synthesised_without_a_word(tmp_path: Path) -> None:
    context = {
        **FLAGS,
        "config": str(write_project(tmp_path, PLAIN.format(image=""))),
        "aws:cdk:bundling-stacks": [],
    }

    done = run_app(
        CDK_OUTDIR=str(tmp_path / "out"),
        CDK_CONTEXT_JSON=json.dumps(context),
        # The rules are checked in test_rule.py.
        CDK_VALIDATION="false",
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out" / "lab-core.template.json").is_file()


def test_without_node_it_says_what_to_install() -> None:
    done = run_app(JSII_NODE="/nowhere/node")

    assert done.returncode == 1
    assert done.stderr == (
        "spindown: JSII_NODE is '/nowhere/node': unset it, or name Node.js 22 or newer\n"
    )


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ({"bundle": "docker"}, "context bundle is 'docker': write one of lambda, host"),
        (
            {"synthesizer": "none"},
            "context synthesizer is 'none': write one of default, cli-credentials",
        ),
        ({"config": "absent.toml"}, "context config is 'absent.toml': give a readable file"),
    ],
    ids=["bundle", "synthesizer", "config"],
)
def test_a_wrong_context_value_names_the_right_ones(
    tmp_path: Path, context: dict[str, str], sentence: str
) -> None:
    app = make_app(write_project(tmp_path), tmp_path / "out", context=context)

    with pytest.raises(ConfigError) as caught:
        describe(app)

    assert str(caught.value).startswith(sentence)


def test_the_caller_s_own_credentials_can_deploy_it(tmp_path: Path) -> None:
    context = {"synthesizer": "cli-credentials"}
    app = make_app(write_project(tmp_path), tmp_path / "out", context=context)
    describe(app)
    app.synth()

    assets = json.loads((tmp_path / "out" / "lab-core.assets.json").read_text())
    manifest = (tmp_path / "out" / "manifest.json").read_text()
    assert len([one for one in assets["files"].values() if "Code of" in one["displayName"]]) == 2
    assert "assumeRoleArn" not in manifest + json.dumps(assets)


@pytest.mark.parametrize(
    ("said", "threshold"),
    [({}, 1), ({"scale_up_threshold": "none"}, None), ({"scale_up_threshold": 7}, 7)],
    ids=["nothing is said", "work gathers", "from seven on"],
)
def test_on_this_machine_work_launches_at_once_unless_told(
    said: dict[str, object], threshold: int | None
) -> None:
    table = tomllib.loads(PLAIN.format(image=""))
    (workload,) = table["workload"].values()
    workload.setdefault("policy", {}).update(said)

    (found,) = suit_this_machine(parse(table, Config)).workloads.values()

    assert found.to_policy().scale_up_threshold == threshold


@pytest.mark.parametrize(("said", "seconds"), [({}, 5), ({"heartbeat_interval": "1m"}, 60)])
def test_on_this_machine_workers_soon_hear_of_a_cancel(
    said: dict[str, object], seconds: int
) -> None:
    table = tomllib.loads(PLAIN.format(image=""))
    (workload,) = table["workload"].values()
    workload.setdefault("policy", {}).update(said)

    (found,) = suit_this_machine(parse(table, Config)).workloads.values()

    assert found.to_policy().heartbeat_interval.total_seconds() == seconds


#: How many plain workloads fit into one deployment (docs/runbook.md). AWS CloudFormation quotas:
#: 500 resources and 1 MB a template; AWS IAM quotas: ten managed policies a role, over which CDK
#: spreads what a role may do; some of them are left to outposts.
WORKLOADS_AT_MOST = 33
RESOURCES_AT_MOST = 500
TEMPLATE_BYTES_AT_MOST = 1_000_000
OVERFLOW_POLICIES_AT_MOST = 6


def test_so_many_workloads_fit_into_one_deployment(tmp_path: Path) -> None:
    head, _, _ = PLAIN.partition("[workload")
    workloads = "".join(
        f'[workload.w{number}.run]\nentrypoint = "job:run"\ncode = "code"\n'
        for number in range(WORKLOADS_AT_MOST)
    )

    made = synthesise_core(write_project(tmp_path, head + workloads), tmp_path / "out")

    size = (tmp_path / "out" / "lab-core.template.json").stat().st_size
    assert RESOURCES_AT_MOST - 15 < len(made.resources) <= RESOURCES_AT_MOST
    assert size < TEMPLATE_BYTES_AT_MOST
    policies = [
        words(role) for one in made.all_of("AWS::IAM::ManagedPolicy") for role in one["Roles"]
    ]
    assert max(Counter(policies).values()) <= OVERFLOW_POLICIES_AT_MOST
