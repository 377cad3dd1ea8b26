"""What S3 sends when an object is there: an event, read as the items and the id of a job.

Both forms are read: S3's own notification, and the event that S3 sends by EventBridge (Amazon S3
User Guide, "Event message structure", "EventBridge event message structure"). S3 sends an event at
least once and in any order. So the id is made of what the event says of the object, and nothing of
the event itself: two events of one version of an object ask for one job.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote_plus

from spindown.contract.location import Location, is_whole
from spindown.error import ContractError

#: Why S3 sends a notification when somebody has set them up: no object is meant.
_TEST = "s3:TestEvent"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: Bytes of a key (Amazon S3 User Guide, "Naming Amazon S3 objects").
_KEY_BYTES = 1024
#: Of an object that a bucket without versioning took.
_NO_VERSION = "null"


def is_event(row: Mapping[str, Any]) -> bool:
    """Tell whether a message was sent by S3, or says that it was."""
    return "Records" in row or row.get("source") == "aws.s3" or row.get("Event") == _TEST


def read_event(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """Return the items of an event, each ``s3://bucket/key``, and the id of their job.

    There are no items, and no id, where no object came to be: S3's test of a notification, and the
    empty object that a console makes for a folder.

    Raises:
        ContractError: it is no event of an object that has come to be.
    """
    if row.get("Event") == _TEST:
        return (), None
    objects = _of_eventbridge(row) if row.get("source") == "aws.s3" else _of_s3(row)
    items = tuple(str(at) for at, _ in objects if not at.key.endswith("/"))
    told = sorted([at.bucket, at.key, version] for at, version in objects)
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    return items, f"s3-{digest[:32]}" if items else None


def _of_s3(row: Mapping[str, Any]) -> list[tuple[Location, str]]:
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
        version = _version(about.get("versionId"), about.get("eTag"))
        found.append((_location(_object(event, "bucket"), key), version))
    return found


def _of_eventbridge(row: Mapping[str, Any]) -> list[tuple[Location, str]]:
    if row.get("detail-type") != "Object Created":
        _refuse("detail-type", row.get("detail-type"))
    detail = _object(row, "detail")
    about = _object(detail, "object")
    version = _version(about.get("version-id"), about.get("etag"))
    return [(_location(_object(detail, "bucket"), _text(about, "key")), version)]


def _version(version_id: object, etag: object) -> str:
    """Return what tells the object from what had its key before."""
    told = etag if version_id in (None, "", _NO_VERSION) else version_id
    if not isinstance(told, str) or not told or not is_whole(told):
        _refuse("etag", told)
    return told.strip('"')


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
