"""Serve the pages on this machine's loopback, to whoever has the address with its secret.

Only GET is answered. A name in ``Host`` that is not this machine's own is refused, so that no page
of the web reads ours by a name that it lets point here.
"""

import secrets
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from spindown.cli.dashboard.page import (
    Looked,
    batch_page,
    error_page,
    job_page,
    overview,
    workload_page,
)
from spindown.cli.render.line import print_aside
from spindown.cli.session import Session
from spindown.config import parse_duration
from spindown.error import BadInput, NotFound, SpindownError

_HOST = "127.0.0.1"
_LONGEST = timedelta(days=63)
#: For which a browser may say nothing while it is connected.
_SECONDS_IDLE = 10
_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Site:
    """The pages of one deployment by their paths."""

    session: Session
    every: timedelta
    span: timedelta | None = None
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    #: matplotlib keeps settings for the whole process.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def root(self) -> str:
        """Return what every path begins with."""
        return f"/{self.secret}/"

    def answer(self, target: str) -> tuple[HTTPStatus, str]:
        """Return status and page for the target of a request."""
        looked = Looked(span=self.span, every=self.every, root=self.root)
        try:
            address = urlsplit(target)
        except ValueError:
            # A host that is none; nobody has to have the secret to send it.
            address = urlsplit("")
        if not secrets.compare_digest(address.path[: len(self.root)].encode(), self.root.encode()):
            return HTTPStatus.NOT_FOUND, error_page(
                "take the address that was printed", Looked(span=None)
            )
        parts = [unquote(part) for part in address.path[len(self.root) :].split("/") if part]
        try:
            since = parse_qs(address.query).get("since")
            if since:
                looked = Looked(span=parse_span(since[0]), every=self.every, root=self.root)
            with self._lock:
                return HTTPStatus.OK, self._make(parts, looked)
        except (NotFound, BadInput) as exc:
            return HTTPStatus.NOT_FOUND, error_page(str(exc), looked)
        except SpindownError as exc:
            return HTTPStatus.BAD_GATEWAY, error_page(str(exc), looked)

    def _make(self, parts: list[str], looked: Looked) -> str:
        match parts:
            case []:
                return overview(self.session, looked)
            case ["w", workload]:
                return workload_page(self.session, self._own(workload), looked)
            case ["b", workload, batch]:
                return batch_page(self.session, self._own(workload), batch, looked)
            case ["j", workload, job]:
                return job_page(self.session, self._own(workload), job, looked)
        raise NotFound("there is no such page")

    def _own(self, workload: str) -> str:
        self.session.workload(workload)
        return workload


def parse_span(text: str) -> timedelta:
    """Return how far back to look (raises BadInput)."""
    try:
        span = parse_duration(text)
    except ValueError as exc:
        raise BadInput("since", text[:40], "write a length of time, as 30m, 12h or 7d") from exc
    if not timedelta(minutes=1) <= span <= _LONGEST:
        raise BadInput("since", text[:40], "write 1m to 63d")
    return span


def make_server(site: Site, port: int) -> ThreadingHTTPServer:
    """Return a server that listens; port 0 takes any that is free (raises BadInput)."""

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "spindown", ""
        timeout = _SECONDS_IDLE

        def do_GET(self) -> None:
            # Browsers leave out port 80.
            host, _, port = self.headers.get("Host", "").partition(":")
            if host not in {_HOST, "localhost"} or not (port or "80").isdecimal():
                self._send(HTTPStatus.FORBIDDEN, "take the address that was printed")
                return
            status, page = site.answer(self.path)
            self._send(status, page)

        def _send(self, status: HTTPStatus, page: str) -> None:
            data = page.encode(errors="replace")
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Refresh", f"{site.every.total_seconds():.0f}")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing: the secret is in every address."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Tell what failed, without a traceback: whoever asked gets no page, or has gone."""
            fault = sys.exception()
            if not isinstance(fault, OSError):
                print_aside(f"a page could not be made: {type(fault).__name__}")

    try:
        return Server((_HOST, port), Handler)
    except OSError as exc:
        raise BadInput("--port", port, f"name one that is free ({exc.strerror})") from exc
