"""A server that answers a worker's SQS, S3 and DynamoDB requests as cheaply as can be.

Run as ``python tests/bench/stub.py ITEMS``: it prints its port and serves until its input ends.
Every receive gives a new job of so many items; every write succeeds; nothing is kept.
"""

import hashlib
import itertools
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_numbers = itertools.count()
_NOTHING: dict[str, dict[str, object]] = {"UpdateItem": {"Attributes": {}}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without it each small answer waits for the acknowledgement of the one before.
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def do_POST(self) -> None:
        target = self.headers["X-Amz-Target"]
        self.rfile.read(int(self.headers["Content-Length"]))
        _, _, action = target.partition(".")
        answer = _message() if action == "ReceiveMessage" else _NOTHING.get(action, {})
        kind = "application/x-amz-json-1.0"
        self._answer(json.dumps(answer).encode(), kind)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        self._answer(b"", "text/plain", ETag=f'"{etag}"')

    def do_GET(self) -> None:
        self.send_error(404)

    def _answer(self, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Say nothing."""


def _message() -> dict[str, object]:
    number = next(_numbers)
    items = [f"item-{n}" for n in range(int(sys.argv[1]))]
    body = json.dumps({"job_id": f"job-{number}", "items": items})
    message = {
        "MessageId": f"message-{number}",
        "ReceiptHandle": f"handle-{number}",
        "Body": body,
        "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "Attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": str(int(time.time() * 1000)),
        },
    }
    return {"Messages": [message]}


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)  # noqa: T201 - the bench reads it
    sys.stdin.read()


if __name__ == "__main__":
    main()
