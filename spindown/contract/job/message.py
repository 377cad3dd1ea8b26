"""The message that asks for a job: what a user puts on the queue, parsed and validated.

A job names its items in one of three ways::

    {"items": ["a.png", {"text": "b"}]}
    {"items_uri": "s3://bucket/items.jsonl"}
    {"prefix_uri": "s3://bucket/images/"}

with optional ``job_id``, ``batch_id``, ``tenant``, ``params``, ``schema``, ``type`` and
``requirements``, of which the last two say what machine it needs. A message never names code.
Parsing is total: any text gives a JobMessage or a ContractError in one sentence.

An event that S3 sends of an object is a message too (``contract.job.s3_event``).

What has no room in a message, and each part of a split job, Spindown stores whole and sends by its
digest: ``{"job_id": "j", "stored": "<SHA-256>"}``. Whoever else sends that says nothing new: only
what Spindown has stored for this very job can be named so, with everything that it asks for.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from spindown.contract.codec import DEPTH_MAX, count_values, load_strict, to_json
from spindown.contract.job.s3_event import is_s3_event, read_s3_event
from spindown.domain.policy import JobNeeds
from spindown.error import ContractError, NewerSchema

SCHEMA = 1

#: SQS's largest message, body and attributes together (SQS API reference, SendMessage).
MESSAGE_BYTES_MAX = 1_048_576

_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
_TYPE = re.compile(r"[a-z](-?[a-z0-9])*")
_TENANT = re.compile(r"[!-~]{1,128}")
_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^\x00-\x1f]{0,1024}")
_DIGEST = re.compile("[0-9a-f]{64}")
SOURCES = ("items", "items_uri", "prefix_uri")
#: The body and its list, within which an item lies.
_LEVELS_AROUND = 2
#: What only a stored body may have.
_OF_STORED = "parent"
#: What ``child_id`` makes. Of eight digits no manifest could hold the children.
CHILD_ID = re.compile(r".+\.([0-9]{5}|[1-9][0-9]{5,6})")
#: Leaves room for the number of a child within the 128 characters of an id.
_PARENT_ID_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMessage:
    """One job as asked for: one of the three sources is set, unless it is yet to be read."""

    items: tuple[Any, ...] | None = None
    items_uri: str | None = None
    prefix_uri: str | None = None
    #: SHA-256 of the body that lies in ``stored_key``; all else but the id is read from there.
    stored: str | None = None
    job_id: str | None = None
    batch_id: str | None = None
    tenant: str | None = None
    #: Job that this one was split from.
    parent: str | None = None
    #: Handed to the user's code as they are.
    params: Mapping[str, Any] = field(default_factory=dict)
    #: One of the types that the workload declares; None: it has none.
    type: str | None = None
    #: What it needs besides, by the names of ``domain.policy.JobNeeds``; None: it says nothing.
    requirements: Mapping[str, Any] | None = None
    schema: int = SCHEMA


def items_key(job_id: str) -> str:
    """Return the S3 key of the list of items that a job has settled on, as JSON lines."""
    return f"jobs/{job_id}/items.jsonl"


def stored_prefix(job_id: str) -> str:
    """Return where the stored bodies of a job lie."""
    return f"jobs/{job_id}/bodies/"


def stored_key(job_id: str, digest: str) -> str:
    """Return the S3 key of a stored body: two bodies of one id have two keys."""
    return f"{stored_prefix(job_id)}{digest}.json"


def body_digest(message: JobMessage) -> str:
    """Return the SHA-256 of what a message asks for: its items and parameters.

    A copy has the digest of its original. One that lies stored must have been read.
    """
    asked = {name: getattr(message, name) for name in (*SOURCES, "params")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def is_id(text: str) -> bool:
    """Tell whether a text may be the id of a job or a batch; such a text is never a path."""
    return _ID.fullmatch(text) is not None


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
    if is_s3_event(row):
        items, job_id = read_s3_event(row)
        return JobMessage(items=items, job_id=job_id)
    _check_schema(row)
    _check_keys(row, [f.name for f in fields(JobMessage) if f.name != _OF_STORED])
    if "stored" in row:
        return _parse_pointer(row)
    job = _parse_body(row)
    if CHILD_ID.fullmatch(job.job_id or ""):
        # One id for two jobs would be one job that is done.
        remedy = (
            "let it not end in a dot and 5 to 7 digits, as the ids of a split job's children do"
        )
        _refuse("job_id", job.job_id, remedy)
    return job


def _check_schema(row: Mapping[str, Any]) -> None:
    schema = row.get("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        _refuse("schema", schema, f"write {SCHEMA} or leave it out")
    if schema > SCHEMA:
        raise NewerSchema("message.schema", schema, f"this worker reads schema {SCHEMA}")


def _parse_pointer(row: Mapping[str, Any]) -> JobMessage:
    _check_text(row, "job_id", _ID, _ID_FORM)
    digest = row["stored"]
    is_digest = isinstance(digest, str) and _DIGEST.fullmatch(digest)
    if not is_digest or row.get("job_id") is None or row.keys() - {"job_id", "stored", "schema"}:
        _refuse("stored", digest, "leave it out; only Spindown writes it")
    return JobMessage(**row)


def parse_stored(data: bytes, pointer: JobMessage) -> JobMessage:
    """Read the body that a message stands for (raises NewerSchema, ContractError)."""
    if hashlib.sha256(data).hexdigest() != pointer.stored:
        _refuse("stored", pointer.stored, "submit the job again: its body was damaged")
    try:
        # Its items may nest deeper than within a message.
        row = load_strict(data, DEPTH_MAX + _LEVELS_AROUND)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        _refuse("stored", pointer.stored, "submit the job again: its body is no job")
    _check_schema(row)
    _check_keys(row, [f.name for f in fields(JobMessage)])
    return replace(_parse_body(row), job_id=pointer.job_id, stored=pointer.stored)


def _parse_body(row: Mapping[str, Any]) -> JobMessage:
    given = [name for name in SOURCES if name in row]
    if len(given) != 1:
        _refuse("items", given, "give exactly one of items, items_uri, prefix_uri")
    for name, pattern, form in TEXTS:
        _check_text(row, name, pattern, form)
    if not isinstance(row.get("items", []), list):
        _refuse("items", row["items"], "write a list, one element an item")
    if not isinstance(row.get("params", {}), dict):
        _refuse("params", row["params"], "write an object")
    check_requirements(row.get("requirements"))
    items = tuple(row["items"]) if "items" in row else None
    return JobMessage(**{**row, "items": items})


def needs_of(message: JobMessage) -> JobNeeds | None:
    """Return what a message asks for of its machine; None: it says nothing."""
    asked = message.requirements
    if asked is None:
        return None
    architectures = asked.get("architectures")
    kept = None if architectures is None else frozenset(architectures)
    return JobNeeds(**{**asked, "architectures": kept})


def with_needs(message: JobMessage, needs: JobNeeds) -> JobMessage:
    """Return the message as it asks for something else of its machine; its body is its own."""
    asked = {f.name: getattr(needs, f.name) for f in fields(JobNeeds)}
    if needs.architectures is not None:
        asked["architectures"] = sorted(needs.architectures)
    requirements = {name: value for name, value in asked.items() if value is not None}
    return replace(message, requirements=requirements)


def check_requirements(asked: Any) -> None:
    """Check what a message asks for of its machine; None: nothing (raises ContractError)."""
    if asked is None:
        return
    if not isinstance(asked, dict):
        _refuse("requirements", asked, 'write an object such as {"memory_gib": 64}')
    for name, value in asked.items():
        if name not in NEEDS:
            close = difflib.get_close_matches(name, NEEDS, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"name some of {', '.join(NEEDS)}"
            _refuse(f"requirements.{name[:100]}", value, remedy)
        fits, remedy = NEEDS[name]
        if not fits(value):
            _refuse(f"requirements.{name}", value, remedy)


def _is_amount(value: object) -> bool:
    return _is_number(value, int | float)


def _is_count(value: object) -> bool:
    return _is_number(value, int)


def _is_number(value: object, kind: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, kind) and 0 <= value <= _NEED_AT_MOST


def _are_architectures(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(each in ARCHITECTURES for each in value)


#: Beyond any machine.
_NEED_AT_MOST = 10**9
ARCHITECTURES = ("x86_64", "arm64")
_COUNT, _AMOUNT = "write a whole number from 0", "write a finite number of GiB from 0"
#: What a message may ask for -> whether a value of it is allowed, and what to write instead.
NEEDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "vcpus": (_is_count, _COUNT),
    "memory_gib": (_is_amount, _AMOUNT),
    "gpus": (_is_count, _COUNT),
    "gpu_memory_gib": (_is_amount, _AMOUNT),
    "disk_gib": (_is_amount, _AMOUNT),
    "architectures": (_are_architectures, f"write a list of {' and '.join(ARCHITECTURES)}"),
}


def encode_job(message: JobMessage) -> str:
    """Return the body of a message, without what is not set; one that is stored by its digest."""
    unset = JobMessage()
    if message.stored is not None:
        message = JobMessage(job_id=message.job_id, stored=message.stored, schema=message.schema)
    row = {f.name: getattr(message, f.name) for f in fields(message)}
    row = {name: value for name, value in row.items() if value != getattr(unset, name)}
    return to_json(row)


def encode_stored(message: JobMessage) -> tuple[bytes, JobMessage]:
    """Return the body to store for a message, and the message that stands for it."""
    data = encode_job(replace(message, stored=None)).encode()
    return data, replace(message, stored=hashlib.sha256(data).hexdigest())


def with_id(message: JobMessage, message_id: str) -> JobMessage:
    """Return the message with an id: its own, or one derived from SQS's message id."""
    return message if message.job_id else replace(message, job_id=derived_id(message_id))


#: An item takes 60 bytes of memory at least, however short its line is.
ITEMS_MAX = 1_000_000
#: So does each value in it. Text has a comma in some forty characters.
VALUES_MAX = 16_000_000


def parse_items(data: bytes, name: str) -> tuple[Any, ...]:
    """Parse JSON lines, one item a line, empty lines skipped (raises ContractError)."""
    if count_values(data) > VALUES_MAX:
        remedy = f"name lists of {VALUES_MAX} values at the most, a job each"
        raise ContractError(name, f"{len(data)} bytes of many values", remedy)
    lines = data.count(b"\n")
    if lines > ITEMS_MAX:
        remedy = f"name lists of {ITEMS_MAX} items at the most, a job each"
        raise ContractError(name, f"{lines} lines", remedy)
    items = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        # Of a line that may be all of the file, only what is shown is kept with the error.
        try:
            text = line.decode()
            items.append(load_strict(text))
        except UnicodeDecodeError:
            raise ContractError(name, line[:_SHOWN], f"save line {number} as UTF-8") from None
        except (ValueError, RecursionError) as exc:
            why = _first_words(exc)
            remedy = f'write one JSON value on line {number}, such as "hello world" ({why})'
            raise ContractError(name, text[:_SHOWN], remedy) from None
    return tuple(items)


#: Characters of a value that an error shows (``error.BadInput``), and some more.
_SHOWN = 200


def encode_items(items: Sequence[Any]) -> bytes:
    """Return items as JSON lines."""
    return "".join(to_json(item) + "\n" for item in items).encode()


def _load_object(body: str) -> dict[str, Any]:
    try:
        row = load_strict(body)
    except (ValueError, RecursionError) as exc:
        _refuse("body", body, f"write one JSON object ({_first_words(exc)})")
    if not isinstance(row, dict):
        _refuse("body", body, 'write a JSON object such as {"items": [...]}')
    return row


def _first_words(exc: Exception) -> str:
    return "too deeply nested" if isinstance(exc, RecursionError) else str(exc)[:100]


def _check_keys(row: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in row:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else "take this unknown key out"
            _refuse(name[:100], row[name], remedy)


_ID_FORM = "write 1 to 128 of A-Z, a-z, 0-9, dot, underscore and hyphen"
TEXTS = (
    ("job_id", _ID, _ID_FORM),
    ("batch_id", _ID, _ID_FORM),
    ("parent", _ID, _ID_FORM),
    ("type", _TYPE, "write a type that the workload declares"),
    ("tenant", _TENANT, "write 1 to 128 visible ASCII characters without spaces"),
    ("items_uri", _URI, "write it as s3://bucket/key.jsonl"),
    ("prefix_uri", _URI, "write it as s3://bucket/prefix/"),
)


def _check_text(row: Mapping[str, Any], name: str, pattern: re.Pattern[str], form: str) -> None:
    optional = name not in SOURCES
    value = row.get(name)
    if name not in row or (optional and value is None):
        return
    if not isinstance(value, str) or not pattern.fullmatch(value):
        _refuse(name, value, form)


def _refuse(field_name: str, value: object, remedy: str) -> NoReturn:
    raise ContractError(f"message.{field_name}", value, remedy)
