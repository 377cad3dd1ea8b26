import configparser
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from spindown.local.environment import (
    aws_environment,
    cleaned,
    environment_of_process,
    export_lines,
    temporary_files_in,
    write_profile,
)

ENDPOINT = "http://127.0.0.1:4580"


def test_the_users_own_aws_settings_do_not_leak_in() -> None:
    before = {"AWS_PROFILE": "work", "AWS_ENDPOINT_URL_SQS": "https://elsewhere", "HOME": "/h"}
    assert cleaned(before) == {"HOME": "/h"}


def test_the_processs_environment_is_restored() -> None:
    before = dict(os.environ)
    with environment_of_process({"AWS_ENDPOINT_URL": ENDPOINT}):
        assert os.environ["AWS_ENDPOINT_URL"] == ENDPOINT
    assert dict(os.environ) == before


def test_temporary_files_of_an_earlier_life_are_gone(tmp_path: Path) -> None:
    (tmp_path / "tmp" / "left").mkdir(parents=True)
    with temporary_files_in(tmp_path / "tmp"):
        assert list((tmp_path / "tmp").iterdir()) == []
        assert Path(tempfile.mkdtemp()).parent == tmp_path / "tmp"
    assert not (tmp_path / "tmp").exists()


def test_the_profile_points_every_sdk_at_the_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "aws config"
    write_profile(path, endpoint=ENDPOINT, region="eu-west-1")
    script = f'{export_lines(path)}\n"{sys.executable}" -c "{PROGRAM}"'
    done = subprocess.run(
        ["sh", "-c", script], check=True, capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.split() == [ENDPOINT, "eu-west-1", "spindown-local"]


PROGRAM = (
    "import boto3; client = boto3.client('sqs'); "
    "print(client.meta.endpoint_url, client.meta.region_name, "
    "boto3.Session().get_credentials().access_key)"
)


def test_the_profile_is_readable_under_both_names(tmp_path: Path) -> None:
    write_profile(tmp_path / "config", endpoint=ENDPOINT, region="eu-west-1")
    parser = configparser.ConfigParser()
    parser.read(tmp_path / "config")
    assert parser["default"] == parser["profile spindown-local"] or (
        dict(parser["default"]) == dict(parser["profile spindown-local"])
    )


def test_guests_and_functions_stay_off_proxies() -> None:
    assert "127.0.0.1" in aws_environment(ENDPOINT, "us-east-1")["NO_PROXY"]
