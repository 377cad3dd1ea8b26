"""The one endpoint: a router by service, served on loopback by a thread of this process.

Requests signed for a service of the market go to the market, the metadata tree to the metadata
app, all else to the emulator. Everything that touches the emulator's state runs on the one event
loop of the thread, so that nothing of it is ever touched by two at once.
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from hypercorn.asyncio import serve
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework

from spindown.error import BadInput, SpindownError
from spindown.local.environment import ADVISOR_PATH
from spindown.local.market.app import service_of
from spindown.local.market.wire.asgi import (
    App,
    Receive,
    Response,
    Scope,
    Send,
    header,
    read_body,
    replayed,
    respond,
)

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")

LOOPBACK = "127.0.0.1"
PORT = 4580
METADATA_PATH = "/_imds"

#: What SQS calls a poll, which may be long.
_POLL = "AmazonSQS.ReceiveMessage"
_MARKET_SERVICES = frozenset({"ec2", "fis", "pricing", "servicequotas"})
_START_SECONDS = 30
_STOP_SECONDS = 5


class Router:
    """The ASGI app of the gateway: says for each request who answers it."""

    def __init__(
        self,
        *,
        emulator: App,
        market: App,
        metadata: App,
        answers: Mapping[str, Callable[[], Any]],
    ) -> None:
        """Route to these; `told` by path is asked off the event loop and may call the gateway."""
        self._emulator = emulator
        self._market = market
        self._metadata = metadata
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] != "http":
            await self._emulator(scope, receive, send)
            return
        path: str = scope["path"]
        if path.startswith(f"{METADATA_PATH}/"):
            below = {**scope, "path": path.removeprefix(METADATA_PATH)}
            await self._metadata(below, receive, send)
        elif path in self._answers:
            answer = await asyncio.to_thread(self._answers[path])
            await respond(send, Response(200, json.dumps(answer).encode(), "application/json"))
        elif path == ADVISOR_PATH or service_of(scope["headers"]) in _MARKET_SERVICES:
            await self._market(scope, receive, send)
        elif header(scope["headers"], b"x-amz-target") == _POLL:
            await _answer_while_awaited(self._emulator, scope, receive, send)
        else:
            await self._emulator(scope, receive, send)


async def _answer_while_awaited(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Have a call answered as long as its caller is there.

    A long poll whose caller was killed would take a message and hide it from everybody for minutes.
    """
    body = await read_body(receive)
    answering = asyncio.ensure_future(app(scope, replayed(body, receive), send))
    leaving = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
    finally:
        answering.cancel()
        leaving.cancel()


def bind(port: int | None) -> socket.socket:
    """Take a loopback port: the one asked for, else the usual one, else any that is free."""
    for candidate in (port,) if port is not None else (PORT, 0):
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((LOOPBACK, candidate))
            # Listening is what makes a second listener fail where addresses may be reused.
            taken.listen(128)
        except OSError:
            taken.close()
            continue
        return taken
    raise BadInput("port", port, "choose a port that no other program listens on")


class Gateway:
    """The thread that serves an app, with coroutines that live as long as it does."""

    def __init__(self, taken: socket.socket) -> None:
        """Serve on a bound socket, which the gateway closes at the end."""
        self._socket = taken
        self.port: int = taken.getsockname()[1]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, app: App, *, every: Mapping[Callable[[], None], float]) -> None:
        """Begin to serve; `every` holds what to call on the loop and the seconds between calls."""
        self._thread = threading.Thread(
            target=self._run, args=(app, every), name="gateway", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(_START_SECONDS) or self._failure is not None:
            message = f"the gateway on port {self.port} did not start: {self._failure}"
            raise SpindownError(message)

    def call(self, act: Callable[[], _Result]) -> _Result:
        """Run `act` on the event loop and return its result; never call it from the loop."""

        async def run() -> _Result:
            return act()

        if self._loop is None:
            message = "the gateway is not running"
            raise SpindownError(message)
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_START_SECONDS)

    def post(self, act: Callable[[], None]) -> None:
        """Have `act` run on the event loop soon, in the order of the calls; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def stop(self) -> None:
        """Stop serving; requests under way are given up."""
        if self._loop is not None and self._stop is not None:
            self.post(self._stop.set)
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        self._socket.close()

    def _run(self, app: App, every: Mapping[Callable[[], None], float]) -> None:
        try:
            asyncio.run(self._serve(app, every))
        except BaseException as error:
            self._failure = error
            _LOGGER.debug("gateway ended", exc_info=True)
        finally:
            self._ready.set()

    async def _serve(self, app: App, every: Mapping[Callable[[], None], float]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        config = Config()
        # The server owns the socket from here.
        config.bind = [f"fd://{self._socket.detach()}"]
        config.accesslog = config.errorlog = None
        config.graceful_timeout = 0.2
        config.shutdown_timeout = 2.0
        self._loop.set_exception_handler(_report)
        beats = [asyncio.create_task(_beat(act, pause)) for act, pause in every.items()]
        self._loop.call_soon(self._ready.set)
        # The same protocol in other types: hypercorn has one for each kind of message.
        framework = cast("ASGIFramework", app)
        try:
            await serve(framework, config, shutdown_trigger=self._stop.wait)
        finally:
            for beat in beats:
                beat.cancel()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what went wrong on the loop; a connection that was given up at the end did not."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


async def _beat(act: Callable[[], None], pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        try:
            act()
        except Exception:
            # One bad beat must not silence the rest of the session.
            _LOGGER.exception("failed: %s", getattr(act, "__qualname__", act))
