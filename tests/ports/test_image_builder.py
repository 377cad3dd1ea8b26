"""What every ImageBuilder promises, over HTTP as in memory.

moto has no EC2 Image Builder. So the server here speaks its protocol by botocore's model of it:
what the service itself answers is only checked against that model.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.config import Config

from spindown.aws.image_builder import AwsImageBuilder
from spindown.contract.image import STAMP_TAG
from spindown.error import NotFound
from spindown.memory import MemoryImageBuilder
from spindown.port import ImageBuilder

PIPELINE = "arn:aws:imagebuilder:us-east-1:123456789012:image-pipeline/demo--classify"
ABSENT = f"{PIPELINE}-absent"
TOKEN, OTHER = "a" * 64, "b" * 64


def _image(known: MemoryImageBuilder, name: str) -> dict[str, Any]:
    build = known.read(name)
    amis = [{"region": region, "image": image} for region, image in build.images.items()]
    state = {"status": build.state, **({"reason": build.said} if build.said else {})}
    tags = {STAMP_TAG: build.stamp} if build.stamp else {}
    return {"image": {"state": state, "outputResources": {"amis": amis}, "tags": tags}}


@contextmanager
def served(known: MemoryImageBuilder) -> Iterator[str]:
    """Serve what is known as EC2 Image Builder does; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            assert url.path == "/GetImage"
            (name,) = parse_qs(url.query)["imageBuildVersionArn"]
            self._answer(lambda: _image(known, name))

        def do_PUT(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/StartImagePipelineExecution"
            self._answer(
                lambda: {
                    "imageBuildVersionArn": known.start(
                        asked["imagePipelineArn"], token=asked["clientToken"]
                    )
                }
            )

        def _answer(self, make: Any) -> None:
            try:
                status, body = 200, make()
            except NotFound as exc:
                status, body = 404, {"message": str(exc)}
            self.send_response(status)
            if status != 200:
                self.send_header("x-amzn-ErrorType", "ResourceNotFoundException")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def known() -> MemoryImageBuilder:
    return MemoryImageBuilder([PIPELINE])


@pytest.fixture(params=["memory", "http"])
def builder(request: pytest.FixtureRequest, known: MemoryImageBuilder) -> Iterator[ImageBuilder]:
    if request.param == "memory":
        yield known
        return
    with served(known) as url:
        client = boto3.client(
            "imagebuilder",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )
        yield AwsImageBuilder(lambda: client)


def test_one_token_is_one_build(builder: ImageBuilder) -> None:
    first = builder.start(PIPELINE, token=TOKEN)

    assert builder.start(PIPELINE, token=TOKEN) == first
    assert builder.start(PIPELINE, token=OTHER) != first


def test_a_build_under_way_has_no_image(builder: ImageBuilder) -> None:
    build = builder.read(builder.start(PIPELINE, token=TOKEN))

    assert (build.images, build.has_failed) == ({}, False)


def test_a_build_that_has_ended_has_its_images(
    builder: ImageBuilder, known: MemoryImageBuilder
) -> None:
    name = builder.start(PIPELINE, token=TOKEN)
    images = {"us-east-1": "ami-1", "eu-west-1": "ami-2"}
    known.finish(name, images, stamp="with this")

    build = builder.read(name)

    assert (build.images, build.stamp, build.has_failed) == (images, "with this", False)


def test_a_build_that_failed_says_why(builder: ImageBuilder, known: MemoryImageBuilder) -> None:
    name = builder.start(PIPELINE, token=TOKEN)
    known.fail(name, "a requirement has no wheel")

    build = builder.read(name)

    assert (build.has_failed, build.said) == (True, "a requirement has no wheel")


def test_what_is_not_there_is_not_found(builder: ImageBuilder) -> None:
    with pytest.raises(NotFound):
        builder.start(ABSENT, token=TOKEN)
    with pytest.raises(NotFound):
        builder.read(f"{PIPELINE}/1.0.0/1")
