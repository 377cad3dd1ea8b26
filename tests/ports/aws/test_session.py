"""The sessions of worker and functions: what they leave out of each request, and what they keep."""

import io
from typing import Any, cast

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config

from spindown.aws.session import USER_AGENT, CoreSession, steady_session


class Raw(io.BytesIO):
    """A body as urllib3 gives it."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def send_write(client: Any) -> HTTPHeaders:
    """Return the headers that a write went out with."""
    sent: list[Any] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        headers = HTTPHeaders()
        headers["ETag"] = '"e"'
        return AWSResponse(request.url, 200, headers, Raw())

    client.meta.events.register("before-send.s3", cast("Any", answer))
    assert client.put_object(Bucket="b", Key="k", Body=b"{}", IfNoneMatch="*")["ETag"] == '"e"'
    headers: HTTPHeaders = sent[0].headers
    return headers


def test_a_write_goes_out_at_once_and_still_signed_and_checked() -> None:
    client = steady_session("eu-west-1").client("s3", endpoint_url="http://127.0.0.1:1")
    headers = {name.lower() for name in send_write(client)}
    assert "expect" not in headers
    assert {"authorization", "if-none-match", "x-amz-checksum-crc32"} <= headers
    assert client.meta.region_name == "eu-west-1"


@pytest.mark.parametrize("session", [steady_session("eu-west-1"), CoreSession()])
def test_every_client_names_spindown_in_its_user_agent(
    session: Any,
) -> None:
    client = session.client("s3", region_name="eu-west-1", config=Config(connect_timeout=1))
    agent = cast("bytes", send_write(client)["User-Agent"])
    assert agent.decode().split()[0] == USER_AGENT
    assert client.meta.config.connect_timeout == 1
