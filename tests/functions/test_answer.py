"""CloudFormation is told how its request went, whatever happens: else it waits for 35 minutes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from spindown.functions import teardown

EVENT = Path(__file__).parents[1] / "events" / "stack_delete.json"


@dataclass
class CloudFormation:
    """What waits for an answer, on this machine."""

    address: str = ""
    said: list[Any] = field(default_factory=list)


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    found = CloudFormation()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            length = int(self.headers["Content-Length"])
            found.said.append(json.loads(self.rfile.read(length)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found.address = f"http://127.0.0.1:{server.server_port}/answer"
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


class Context:
    """What Lambda tells of an invocation, as far as it is read."""

    function_name = "demo--teardown"
    memory_limit_in_mb = 256
    invoked_function_arn = "arn:aws:lambda:us-west-2:111122223333:function:demo--teardown"
    aws_request_id = "6f0a"

    def get_remaining_time_in_millis(self) -> int:
        return 900_000


def ask(cloudformation: CloudFormation, **changes: object) -> Any:
    event = json.loads(EVENT.read_text())
    teardown.handler({**event, "ResponseURL": cloudformation.address, **changes}, Context())
    (said,) = cloudformation.said
    return said


def test_a_fault_that_nobody_foresaw_is_told_as_a_failure(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("no section\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    said = ask(cloudformation)

    assert said["Status"] == "FAILED"
    assert "ConfigParseError" in said["Reason"]


def test_where_nothing_leaves_nothing_is_ended(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "us-west-2")

    said = ask(cloudformation, RequestType="Create")

    assert (said["Status"], said["PhysicalResourceId"]) == ("SUCCESS", "fleet-of-demo")
