"""What S3 sends when an object is there: an event, read as the items and the id of a job.

Both forms are read: S3's own notification, and the event that S3 sends by EventBridge (Amazon S3
User Guide, "Event message structure", "EventBridge event message structure"). S3 sends an event at
least once and in any order. So the id is made of what two events of one write of an object have in
common: they ask for one job.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import unquote_plus

from spindown.contract.location import Location, is_whole
from spindown.error import ContractError

#: Why S3 sends a notification when somebody has set them up: no object is meant.
_TEST = "s3:TestEvent"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: Bytes of a key (Amazon S3 User Guide, "Naming Amazon S3 objects").
_KEY_BYTES = 1024
#: With what the address of an object begins.
ADDRESS = "s3://"
#: Characters of an address, at most.
_ADDRESS_LENGTH = len(ADDRESS) + 63 + 1 + _KEY_BYTES
#: With what the id of such a job begins; the rest of it is a digest.
ID_PREFIX = "s3-"
_ID = re.compile(ID_PREFIX + "[0-9a-f]{32}")
#: Of an object that a bucket without versioning took.
_NO_VERSION = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """An object that has come to be."""

    at: Location
    version: str
    #: Whether it is the empty one that a console makes for a folder.
    is_folder: bool


def is_s3_event(row: Mapping[str, Any]) -> bool:
    """Tell whether a message was sent by S3, or says that it was."""
    return "Records" in row or row.get("source") == "aws.s3" or row.get("Event") == _TEST


def read_s3_event(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """Return the items of an event, each ``s3://bucket/key``, and the id of their job.

    There are no items, and no id, where no object came to be: S3's test of a notification, and the
    empty object that a console makes for a folder.

    Raises:
        ContractError: it is no event of an object that has come to be.
    """
    if row.get("Event") == _TEST:
        return (), None
    found = _of_eventbridge(row) if row.get("source") == "aws.s3" else _of_s3(row)
    # Two events of the same objects must not differ in anything.
    objects = sorted(found, key=lambda one: (one.at.bucket, one.at.key, one.version))
    items = tuple(str(one.at) for one in objects if not one.is_folder)
    named = [[one.at.bucket, one.at.key, one.version] for one in objects]
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
    return items, f"{ID_PREFIX}{digest[:32]}" if items else None


def source_of(job_id: str, items: Sequence[Any] | None) -> str:
    """Return the address of the object of a job that an event asked for; "": none asked for it."""
    first = items[0] if items else None
    if not isinstance(first, str) or not is_source_id(job_id):
        return ""
    # Whoever may send may call a job so, with items of any length.
    is_told = first.startswith(ADDRESS) and len(first) <= _ADDRESS_LENGTH
    return first if is_told else ""


def is_source_id(job_id: str) -> bool:
    """Tell whether a job may be one that an event asked for, by its id."""
    return _ID.fullmatch(job_id) is not None


def _of_s3(row: Mapping[str, Any]) -> list[_Written]:
    records = row["Records"]
    if not isinstance(records, list) or not records:
        _refuse("Records", records)
    found = []
    for record in records:
        event, name = _object(record, "s3"), _text(record, "eventName")
        if record.get("eventSource") != "aws:s3" or not name.startswith("ObjectCreated:"):
            _refuse("eventName", name)
        about = _object(event, "object")
        # A space is a plus sign in it (as above, "Event message structure").
        try:
            key = unquote_plus(_text(about, "key"), errors="strict")
        except UnicodeDecodeError:
            _refuse("key", about["key"])
        version = _version(about, about.get("versionId"), about.get("eTag"))
        found.append(_written(_location(_object(event, "bucket"), key), version, about))
    return found


def _of_eventbridge(row: Mapping[str, Any]) -> list[_Written]:
    if row.get("detail-type") != "Object Created":
        _refuse("detail-type", row.get("detail-type"))
    detail = _object(row, "detail")
    about = _object(detail, "object")
    version = _version(about, about.get("version-id"), about.get("etag"))
    at = _location(_object(detail, "bucket"), _text(about, "key"))
    return [_written(at, version, about)]


def _written(at: Location, version: str, about: Mapping[str, Any]) -> _Written:
    return _Written(
        at=at, version=version, is_folder=at.key.endswith("/") and not about.get("size")
    )


def _version(about: Mapping[str, Any], version_id: object, etag: object) -> str:
    """Return what tells this write of an object from others under its key.

    Events that tell of one write have one sequencer (AWS re:Post, "Why do I see duplicate messages
    in Amazon SQS for the same Amazon S3 event?"). The ETag alone says no more than the content:
    what was deleted and is written once more would be done already.
    """
    if version_id not in (None, "", _NO_VERSION):
        return _checked("versionId", version_id)
    tag = _checked("etag", etag).strip('"')
    sequencer = about.get("sequencer")
    return tag if sequencer is None else f"{tag}-{_checked('sequencer', sequencer)}"


def _checked(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or not is_whole(value):
        _refuse(name, value)
    return value


def _location(bucket: Mapping[str, Any], key: str) -> Location:
    name = _text(bucket, "name")
    if not _BUCKET.fullmatch(name):
        _refuse("bucket.name", name)
    if not key or not is_whole(key) or len(key.encode()) > _KEY_BYTES:
        _refuse("object.key", key)
    return Location(bucket=name, key=key)


def _object(row: object, name: str) -> Mapping[str, Any]:
    value = row.get(name) if isinstance(row, dict) else None
    return value if isinstance(value, dict) else _refuse(name, value)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else _refuse(name, value)


def _refuse(name: str, value: object) -> NoReturn:
    remedy = "let only S3 send such messages: they tell of an object that was created"
    raise ContractError(f"message.{name}", value, remedy)
