"""What the topic tells people comes to a webhook, over TLS, and its address to nobody."""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from spindown.error import BadInput, SpindownError, Unreachable
from spindown.functions.webhook import handle, post, text_of

SECRET = "T00/B00/very-secret"


class Webhook(HTTPServer):
    """A webhook on loopback that keeps what it is told."""

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.trusted = ssl.create_default_context(cafile=certificate)
        self.status = 200
        self.told: list[tuple[str, Any]] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}/services/{SECRET}?a=b"

    def handle_error(self, *_: Any) -> None:
        """Say nothing of who did not trust it."""


class _Answer(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.told.append((self.path, body))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + made.public_bytes(pem))
    return path


@pytest.fixture
def webhook(certificate: Path) -> Iterator[Webhook]:
    with Webhook(certificate) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def an_event(*texts: tuple[str, str]) -> dict[str, Any]:
    return {"Records": [{"Sns": {"Subject": s, "Message": m}} for s, m in texts]}


def test_each_text_is_posted_as_slack_takes_it(webhook: Webhook) -> None:
    event = an_event(("lab--ocr: quota", "It is full."), ("lab--ocr: late", "It waits."))

    assert handle(event, webhook.url, webhook.trusted) == 2

    path = f"/services/{SECRET}?a=b"
    assert webhook.told == [
        (path, {"text": "lab--ocr: quota\nIt is full."}),
        (path, {"text": "lab--ocr: late\nIt waits."}),
    ]


@pytest.mark.parametrize("status", [301, 307, 404, 429, 500])
def test_an_answer_that_is_no_success_is_tried_again(webhook: Webhook, status: int) -> None:
    webhook.status = status

    with pytest.raises(Unreachable, match=f"HTTP {status}") as failed:
        handle(an_event(("a", "b")), webhook.url, webhook.trusted)

    # A redirect is not followed.
    assert len(webhook.told) == 1
    assert SECRET not in str(failed.value)


def test_a_server_that_is_not_trusted_is_told_nothing(webhook: Webhook) -> None:
    with pytest.raises(Unreachable):
        post(webhook.url, "text")

    assert webhook.told == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1/{SECRET}",
        f"ftp://127.0.0.1/{SECRET}",
        f"https://somebody@127.0.0.1/{SECRET}",
        f"https:///{SECRET}",
        f"https://127.0.0.1:x/{SECRET}",
        f"https://[::1/{SECRET}",
        f"https://127.0.0.1/\x00{SECRET}",
        "",
        SECRET,
    ],
)
def test_only_an_address_of_https_is_used_and_none_is_shown(url: str) -> None:
    for post_it in (lambda: post(url, "text"), lambda: handle({"Records": []}, url)):
        with pytest.raises(BadInput, match="https://") as failed:
            post_it()

        assert SECRET not in str(failed.value)


@pytest.mark.parametrize("path", [f"/a b/{SECRET}", f"/é/{SECRET}"])
def test_an_address_that_no_request_takes_is_not_shown(webhook: Webhook, path: str) -> None:
    url = f"https://127.0.0.1:{webhook.server_port}{path}"

    with pytest.raises(SpindownError) as failed:
        post(url, "text", webhook.trusted)

    assert SECRET not in str(failed.value)
    assert failed.value.__suppress_context__


def test_an_alarm_is_told_by_its_state_and_description() -> None:
    alarm = {
        "AlarmName": "lab--ocr--idle",
        "AlarmDescription": "It idles.",
        "NewStateValue": "ALARM",
        "NewStateReason": "Threshold Crossed",
    }

    text = text_of({"Subject": 'ALARM: "lab--ocr--idle"', "Message": json.dumps(alarm)})

    assert text == "ALARM: lab--ocr--idle\nIt idles."


def test_a_text_that_nests_as_no_alarm_does_is_posted() -> None:
    assert text_of({"Message": "[" * 100_000}).startswith("[[")


def test_a_text_calls_nobody_and_stays_short() -> None:
    text = text_of({"Subject": None, "Message": "<!channel> & \x1b[2J" + "x" * 300_000})

    assert text.startswith("&lt;!channel&gt; &amp; ")
    assert "\x1b" not in text
    assert len(text) < 4_000


def test_a_text_calls_nobody_where_markdown_is_read() -> None:
    text = text_of({"Message": "@channel @here ![x](https://evil/x.png) [x](https://evil)"})

    assert "@channel" not in text
    assert "@here" not in text
    assert "](" not in text


@pytest.mark.parametrize("text", ["write to me.too@example.org.", "a1@ops-2.example.co.uk, now"])
def test_an_address_can_be_copied_from_a_text(text: str) -> None:
    assert text_of({"Message": text}) == text


@pytest.mark.parametrize(
    "text",
    [
        "(@jane.doe)",
        "x.@here.org",
        "x_@channel.org",
        "x@everyone",
        "x@Everyone.org",
        "x@hereabouts.org",
        "x@allies.org",
        "x@jane",
        "\N{GREEK SMALL LETTER ALPHA}@jane.doe",
    ],
)
def test_what_only_looks_like_an_address_calls_nobody(text: str) -> None:
    assert not re.search(r"@\w", text_of({"Message": text}))
