import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spindown.error import BadInput
from spindown.local.gateway import Gateway, Router, bind
from spindown.local.market.wire.asgi import App, Receive, Response, Scope, Send, respond
from tests.local.waiting import until


def named(name: str) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await respond(send, Response(200, f"{name} {scope['path']}".encode()))

    return app


def router(emulator: App | None = None) -> Router:
    return Router(
        emulator=emulator or named("emulator"),
        market=named("market"),
        metadata=named("metadata"),
        answers={"/_spindown/status": lambda: {"is": "up"}},
    )


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    served = Gateway(bind(0))
    served.start(router(), every={})
    yield served
    served.stop()


def ask(gateway: Gateway, path: str, *, service: str | None = None) -> str:
    headers: dict[str, Any] = {}
    if service is not None:
        request = AWSRequest(method="GET", url=f"{gateway.endpoint}{path}")
        SigV4Auth(Credentials("key", "secret"), service, "us-east-1").add_auth(request)
        headers = dict(request.headers)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("service", ["ec2", "pricing", "servicequotas"])
def test_the_market_answers_for_its_services(gateway: Gateway, service: str) -> None:
    assert ask(gateway, "/", service=service) == "market /"


@pytest.mark.parametrize("service", ["sqs", "s3", "lambda", None])
def test_the_emulator_answers_for_all_others(gateway: Gateway, service: str | None) -> None:
    assert ask(gateway, "/path", service=service) == "emulator /path"


def test_the_market_serves_the_spot_advisors_file(gateway: Gateway) -> None:
    assert ask(gateway, "/spot-advisor-data.json", service=None) == (
        "market /spot-advisor-data.json"
    )


def test_each_instance_has_its_metadata_below_one_path(gateway: Gateway) -> None:
    assert ask(gateway, "/_imds/i-1/latest/api/token") == "metadata /i-1/latest/api/token"


def test_a_long_poll_ends_with_its_caller() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def poll(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await named("emulator")(scope, receive, send)
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    served = Gateway(bind(0))
    served.start(router(poll), every={})
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=5)
    try:
        poll_of_sqs = {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}
        connection.request("POST", "/", body="{}", headers=poll_of_sqs)
        assert begun.wait(20)
        connection.close()
        assert ended.wait(20)
    finally:
        served.stop()


def test_tells_its_status(gateway: Gateway) -> None:
    assert json.loads(ask(gateway, "/_spindown/status")) == {"is": "up"}


def test_listens_on_loopback_only() -> None:
    with bind(0) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"


def test_an_occupied_port_is_one_clear_sentence() -> None:
    with bind(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput) as caught:
            bind(port)
    assert str(caught.value) == f"port is {port}: choose a port that no other program listens on"


def test_takes_a_free_port_when_the_usual_one_is_occupied() -> None:
    with bind(None) as first, bind(None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]


def test_calls_run_on_the_loop_and_return(gateway: Gateway) -> None:
    seen: list[int] = []
    gateway.post(lambda: seen.append(1))
    assert gateway.call(lambda: [*seen, 2]) == [1, 2]


def test_a_beat_that_fails_does_not_end_the_beating() -> None:
    beats: list[int] = []

    def fail() -> None:
        beats.append(1)
        message = "a bad beat"
        raise ValueError(message)

    served = Gateway(bind(0))
    served.start(router(), every={fail: 0.01})
    try:
        until(lambda: len(beats) > 2)
    finally:
        served.stop()


def test_the_port_is_free_again_after_the_end(gateway: Gateway) -> None:
    gateway.stop()
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", gateway.port))
    with bind(gateway.port):
        pass
