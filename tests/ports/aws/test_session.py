"""The session of a worker: what it leaves out of each request, and what it keeps."""

import io
from typing import Any, cast

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from spindown.aws.session import steady_session


class Raw(io.BytesIO):
    """A body as urllib3 gives it."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


def test_a_write_goes_out_at_once_and_still_signed_and_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    sent: list[Any] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        headers = HTTPHeaders()
        headers["ETag"] = '"e"'
        return AWSResponse(request.url, 200, headers, Raw())

    client = steady_session("eu-west-1").client("s3", endpoint_url="http://127.0.0.1:1")
    client.meta.events.register("before-send.s3", cast("Any", answer))
    assert client.put_object(Bucket="b", Key="k", Body=b"{}", IfNoneMatch="*")["ETag"] == '"e"'
    headers = {name.lower() for name in sent[0].headers}
    assert "expect" not in headers
    assert {"authorization", "if-none-match", "x-amz-checksum-crc32"} <= headers
    assert client.meta.region_name == "eu-west-1"
