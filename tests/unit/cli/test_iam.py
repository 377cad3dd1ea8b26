"""The policies as the command prints them."""

import json
from pathlib import Path

import pytest

from spindown.cli.iam import boundary, deployer, execution, operator, submitter
from spindown.cli.init import init
from spindown.error import BadInput

ACCOUNT = "123456789012"


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "spindown.toml"
    init(config=path, region="eu-west-1")
    capsys.readouterr()
    return path


@pytest.mark.parametrize("command", [deployer, operator, submitter])
def test_it_prints_a_policy_alone(
    command: object, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    command(config=config, account=ACCOUNT)

    printed = json.loads(capsys.readouterr().out)
    assert printed["Version"] == "2012-10-17"
    assert ACCOUNT in json.dumps(printed["Statement"])


def test_what_a_deploy_needs_is_read_from_its_templates(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution(config=config, account=ACCOUNT)
    told = capsys.readouterr()
    boundary(config=config, account=ACCOUNT)
    bound = json.loads(capsys.readouterr().out)

    policies = json.loads(told.out)
    assert "sqs:CreateQueue" in json.dumps(policies)
    assert "sqs:ReceiveMessage" in json.dumps(bound)
    assert all("-execution-" in name for name in policies)
    # Other apps deploy by the same role.
    assert "bootstrap_qualifier" in told.err


def test_a_role_of_ones_own_is_none_that_other_apps_deploy_by(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config.read_text()
    own = '[deployment]\nbootstrap_qualifier = "own"\n'
    config.write_text(text.replace("[deployment]\n", own, 1))

    execution(config=config, account=ACCOUNT)

    assert capsys.readouterr().err == ""


def test_a_bucket_that_is_known_is_named_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator(config=config, account=ACCOUNT)
    assert "print it again after the deploy" in capsys.readouterr().err

    operator(config=config, account=ACCOUNT, bucket="lab-core-store-1")

    told = capsys.readouterr()
    assert "arn:aws:s3:::lab-core-store-1/" in told.out
    assert ("storebucket" in told.out, told.err) == (False, "")


def test_an_unknown_workload_is_refused(config: Path) -> None:
    with pytest.raises(BadInput) as caught:
        submitter(["ocr"], config=config, account=ACCOUNT)

    assert caught.value.field == "workload"


def test_what_is_no_account_is_refused(config: Path) -> None:
    with pytest.raises(BadInput) as caught:
        operator(config=config, account="12345")

    assert caught.value.field == "--account"
