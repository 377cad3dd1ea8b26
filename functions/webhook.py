"""Post what the topic tells people, alarms and alerts, to a webhook such as Slack's.

Trigger: SNS, for each text. Effects: one POST of ``{"text": ...}``; where it fails, Lambda tries
it twice more. Whoever knows the address may post there, so it is read from where secrets are kept,
and stands in no error and no log.
"""

import json
import os
import re
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from aws_lambda_powertools import Logger

from spindown.contract.settings import ENV_WEBHOOK
from spindown.error import BadInput, Unreachable, printable
from spindown.functions.port import connect

logger = Logger(service="webhook")

#: Seconds of one network operation.
_TIMEOUT = 5.0
#: Characters that one post shows.
_SHOWN = 3_000
_NO_WIDTH = "\N{ZERO WIDTH SPACE}"
#: An @ that is not within an address such as ``me@example.org``: what is read as a mention begins a
#: word (Mattermost, "Mention people in messages"), or is one of these names wherever it stands
#: (Discord, "Mention Everyone"). An address is left as it is, so that it works when copied.
_CALLS = re.compile(
    r"(?<![a-z0-9])@|@(?=all|channel|everyone|here)|@(?![a-z0-9-]+(?:\.[a-z0-9-]+)+)", re.IGNORECASE
)


def handle(event: Mapping[str, Any], url: str, trusted: ssl.SSLContext | None = None) -> int:
    """Post each text of an event of SNS; return how many (raises Unreachable, BadInput).

    Without a text the address is checked all the same: `spindown doctor` asks so.
    """
    _parse(url)
    records = event["Records"]
    for record in records:
        post(url, text_of(record["Sns"]), trusted)
    return len(records)


def text_of(message: Mapping[str, Any]) -> str:
    """Return what a person reads: subject and words; of an alarm its state and its description."""
    subject, words = str(message.get("Subject") or ""), str(message.get("Message") or "")
    try:
        alarm = json.loads(words)
    except (ValueError, RecursionError):
        alarm = None
    if isinstance(alarm, dict) and "AlarmName" in alarm:
        subject = f"{alarm.get('NewStateValue')}: {alarm['AlarmName']}"
        words = str(alarm.get("AlarmDescription") or alarm.get("NewStateReason") or "")
    text = "\n".join(printable(one) for one in (subject, words) if one)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    # As Slack asks: a text that others wrote must not call a whole channel by <!channel> (Slack
    # API, "Formatting text for app surfaces"). Others that take its form call one by @channel, and
    # show a picture or a link by Markdown (Mattermost, "Mention people in messages", "Format
    # messages"): a blank that has no width keeps both from being read so.
    text = _CALLS.sub(f"@{_NO_WIDTH}", text).replace("](", f"]{_NO_WIDTH}(")
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escaped)
    return text


def _parse(url: str) -> SplitResult:
    """Return the parts of the address (raises BadInput, which does not show it)."""
    try:
        at = urlsplit(url.strip())
        is_good = at.hostname is not None and at.scheme == "https" and not at.username
        # Reading it raises where it is no number.
        is_good = is_good and (at.port is None or at.port > 0) and url.strip().isprintable()
    except ValueError:
        is_good = False
    if not is_good:
        remedy = "store an address that begins with https:// there"
        raise BadInput("alarm_webhook", os.environ.get(ENV_WEBHOOK, "the secret"), remedy)
    return at


def post(url: str, text: str, trusted: ssl.SSLContext | None = None) -> None:
    """Post one text, by HTTPS alone; a redirect is not followed.

    Raises:
        BadInput: it is no address of HTTPS.
        Unreachable: there is no answer, or one that is not of success.
    """
    at = _parse(url)
    path = f"{at.path or '/'}?{at.query}" if at.query else at.path or "/"
    body = json.dumps({"text": text}).encode()
    connection = HTTPSConnection(
        at.hostname or "",
        at.port,
        timeout=_TIMEOUT,
        context=trusted or ssl.create_default_context(),
    )
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as exc:
        # Without its words: those of http.client may hold the address.
        raise Unreachable(f"the webhook did not answer ({type(exc).__name__})") from None
    finally:
        connection.close()
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise Unreachable(f"the webhook answered with HTTP {status}")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> dict[str, int]:  # noqa: ARG001 - Lambda's form
    """Lambda entry point: post the texts of one event."""
    posted = handle(event, connect().secrets().read(os.environ[ENV_WEBHOOK]))
    logger.info("posted", extra={"action": "posted", "texts": posted})
    return {"posted": posted}
