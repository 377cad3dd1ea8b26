"""The little of ASGI that the market speaks: whole requests in, whole responses out."""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

#: access key / date / region / service / aws4_request
_CREDENTIAL = re.compile(r"Credential=[^/,]*/\d{8}/([^/,]+)/([^/,]+)/aws4_request")


@dataclass(frozen=True, slots=True)
class Response:
    """A whole HTTP response."""

    status: int
    body: bytes
    content_type: str = "text/plain"


def header(headers: Headers, name: bytes) -> str:
    """Return a header's value, "" when it is missing; `name` is in lower case."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


def credential_scope(headers: Headers) -> tuple[str, str] | None:
    """Return the (region, service) that a request is signed for; None when it is not signed."""
    match = _CREDENTIAL.search(header(headers, b"authorization"))
    return (match[1], match[2]) if match else None


async def read_body(receive: Receive) -> bytes:
    """Collect a request's whole body."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def respond(send: Send, response: Response) -> None:
    """Send a whole response."""
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives an already read body once more."""
    pending = [body]

    async def again() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return again


async def call(app: App, scope: Scope, body: bytes) -> Response:
    """Send one request to an ASGI app in this process and collect its response."""
    status, content_type, parts = 500, "", [b""]

    async def send(message: Message) -> None:
        nonlocal status, content_type
        if message["type"] == "http.response.start":
            status = message["status"]
            content_type = header(message.get("headers", ()), b"content-type")
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    async def hang_up() -> Message:
        return {"type": "http.disconnect"}

    await app(scope, replayed(body, hang_up), send)
    return Response(status, b"".join(parts), content_type)
