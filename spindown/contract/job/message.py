"""The message that asks for a job: what a user puts on the queue, parsed and validated.

A job names its items in one of three ways, or, for what Spindown itself re-sends, by the list
that lies stored under the job's own id::

    {"items": ["a.png", {"text": "b"}]}
    {"items_uri": "s3://bucket/items.jsonl"}
    {"prefix_uri": "s3://bucket/images/"}

with optional ``job_id``, ``batch_id``, ``tenant``, ``params`` and ``schema``. A message never
names code. Parsing is total: any text gives a JobMessage or a ContractError in one sentence.
"""

import difflib
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from spindown.contract.codec import is_too_deep, to_json
from spindown.error import ContractError, NewerSchema

SCHEMA = 1

#: SQS's largest message, body and attributes together (SQS API reference, SendMessage).
MESSAGE_BYTES_MAX = 1_048_576

_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
_TENANT = re.compile(r"[!-~]{1,128}")
_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^\x00-\x1f]{0,1024}")
_DIGEST = re.compile("[0-9a-f]{64}")
_SOURCES = ("items", "items_uri", "prefix_uri", "stored")
#: What ``child_id`` makes. Of eight digits no manifest could hold the children.
_CHILD_ID = re.compile(r".+\.([0-9]{5}|[1-9][0-9]{5,6})")
#: Leaves room for the number of a child within the 128 characters of an id.
_PARENT_ID_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMessage:
    """One job as asked for: exactly one of the four sources is set."""

    items: tuple[Any, ...] | None = None
    items_uri: str | None = None
    prefix_uri: str | None = None
    #: The items lie in S3: of a split job's child in ``items_key``, of a job too large to send
    #: again in ``copied_items_key``.
    stored: bool = False
    #: In a copy of a message whose items were stored: ``body_digest`` of that message.
    body_digest: str | None = None
    job_id: str | None = None
    batch_id: str | None = None
    tenant: str | None = None
    #: Job that this one was split from.
    parent: str | None = None
    #: Handed to the user's code as they are.
    params: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA


def items_key(job_id: str) -> str:
    """Return the S3 key of the list of items that a job has settled on, as JSON lines."""
    return f"jobs/{job_id}/items.jsonl"


def copied_items_key(job_id: str, digest: str) -> str:
    """Return the S3 key of the items of a copy: two messages of one id have two lists."""
    return f"jobs/{job_id}/items/{digest}.jsonl"


def body_digest(message: JobMessage) -> str:
    """Return the SHA-256 of what a message asks for: its items and parameters.

    A copy has the digest of its original, though its items may lie stored.
    """
    if message.body_digest is not None:
        return message.body_digest
    asked = {name: getattr(message, name) for name in (*_SOURCES, "params")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def child_id(job_id: str, number: int) -> str:
    """Return the id of a split job's child, the same for whoever splits it."""
    if len(job_id) > _PARENT_ID_CHARACTERS:
        digest = hashlib.sha256(job_id.encode()).hexdigest()[:16]
        job_id = f"{job_id[: _PARENT_ID_CHARACTERS - 17]}-{digest}"
    return f"{job_id}.{number:05d}"


def own_children(job_id: str, named: Sequence[str]) -> tuple[str, ...]:
    """Return those of a manifest's children that a split of the job makes.

    Whoever follows only these never comes back to a job: each has a longer id than its parent, or
    one with a digest of it.
    """
    return tuple(child for number, child in enumerate(named) if child == child_id(job_id, number))


def derived_id(message_id: str) -> str:
    """Return the id of a job whose message names none: the same at every receive of it."""
    return f"job-{hashlib.sha256(message_id.encode()).hexdigest()[:24]}"


def parse_job(body: str) -> JobMessage:
    """Parse a message body.

    Raises:
        NewerSchema: a later version's message: put it back.
        ContractError: it is malformed; names the field, the value and the remedy.
    """
    row = _load_object(body)
    schema = row.get("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        _refuse("schema", schema, f"write {SCHEMA} or leave it out")
    if schema > SCHEMA:
        raise NewerSchema("message.schema", schema, f"this worker reads schema {SCHEMA}")
    _check_keys(row)
    given = [name for name in _SOURCES if name in row]
    if len(given) != 1:
        _refuse("items", given, "give exactly one of items, items_uri, prefix_uri")
    for name, pattern, form in _TEXTS:
        _check_text(row, name, pattern, form)
    if not isinstance(row.get("items", []), list):
        _refuse("items", row["items"], "write a list, one element an item")
    if not isinstance(row.get("params", {}), dict):
        _refuse("params", row["params"], "write an object")
    if "stored" in row and (row["stored"] is not True or row.get("job_id") is None):
        _refuse("stored", row["stored"], "leave it out; only Spindown writes it")
    if "body_digest" in row and "stored" not in row:
        _refuse("body_digest", row["body_digest"], "leave it out; only Spindown writes it")
    _check_child(row)
    items = tuple(row["items"]) if "items" in row else None
    return JobMessage(**{**row, "items": items})


def encode_job(message: JobMessage) -> str:
    """Return the body of a message, without what is not set."""
    unset = JobMessage()
    row = {f.name: getattr(message, f.name) for f in fields(message)}
    row = {name: value for name, value in row.items() if value != getattr(unset, name)}
    return to_json(row)


def with_id(message: JobMessage, message_id: str) -> JobMessage:
    """Return the message with an id: its own, or one derived from SQS's message id."""
    return message if message.job_id else replace(message, job_id=derived_id(message_id))


def parse_items(data: bytes, name: str) -> tuple[Any, ...]:
    """Parse JSON lines, one item a line, empty lines skipped (raises ContractError)."""
    items = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        # Of a line that may be all of the file, only what is shown is kept with the error.
        try:
            text = line.decode()
            items.append(_load_strict(text))
        except UnicodeDecodeError:
            raise ContractError(name, line[:_SHOWN], f"save line {number} as UTF-8") from None
        except (ValueError, RecursionError) as exc:
            remedy = f"write one JSON value on line {number} ({_first_words(exc)})"
            raise ContractError(name, text[:_SHOWN], remedy) from None
    return tuple(items)


#: Characters of a value that an error shows (``error.BadInput``), and some more.
_SHOWN = 200


def encode_items(items: Sequence[Any]) -> bytes:
    """Return items as JSON lines."""
    return "".join(to_json(item) + "\n" for item in items).encode()


def _load_object(body: str) -> dict[str, Any]:
    try:
        row = _load_strict(body)
    except (ValueError, RecursionError) as exc:
        _refuse("body", body, f"write one JSON object ({_first_words(exc)})")
    if not isinstance(row, dict):
        _refuse("body", body, 'write a JSON object such as {"items": [...]}')
    return row


def _load_strict(text: str) -> Any:
    """Parse JSON, and only what can be written as JSON again wherever it goes."""
    value = json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    if is_too_deep(value):
        raise RecursionError
    return value


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _first_words(exc: Exception) -> str:
    return "too deeply nested" if isinstance(exc, RecursionError) else str(exc)[:100]


def _check_keys(row: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(JobMessage)]
    for name in row:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else "take this unknown key out"
            _refuse(name[:100], row[name], remedy)


_ID_FORM = "write 1 to 128 of A-Z, a-z, 0-9, dot, underscore and hyphen"
_TEXTS = (
    ("job_id", _ID, _ID_FORM),
    ("batch_id", _ID, _ID_FORM),
    ("parent", _ID, _ID_FORM),
    ("tenant", _TENANT, "write 1 to 128 visible ASCII characters without spaces"),
    ("body_digest", _DIGEST, "leave it out; only Spindown writes it"),
    ("items_uri", _URI, "write it as s3://bucket/key.jsonl"),
    ("prefix_uri", _URI, "write it as s3://bucket/prefix/"),
)


def _check_text(row: Mapping[str, Any], name: str, pattern: re.Pattern[str], form: str) -> None:
    optional = name not in _SOURCES
    value = row.get(name)
    if name not in row or (optional and value is None):
        return
    if not isinstance(value, str) or not pattern.fullmatch(value):
        _refuse(name, value, form)


def _check_child(row: Mapping[str, Any]) -> None:
    """Leave the ids of children to splits: one id for two jobs would be one job that is done."""
    job_id, parent = row.get("job_id"), row.get("parent")
    found = _CHILD_ID.fullmatch(job_id or "")
    if found is None:
        return
    is_of_split = parent is not None and child_id(parent, int(found[1])) == job_id
    if not is_of_split or "stored" not in row:
        remedy = (
            "let it not end in a dot and 5 to 7 digits, as the ids of a split job's children do"
        )
        _refuse("job_id", job_id, remedy)


def _refuse(field_name: str, value: object, remedy: str) -> NoReturn:
    raise ContractError(f"message.{field_name}", value, remedy)
