"""Write docs/schema: what programs send and read, as JSON Schemas (draft 2020-12).

They come from what the product reads and writes with: patterns of the parser of messages, and the
dataclasses of manifests, records and events. A reader may get keys that are not there: later
versions add some.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from spindown.contract.job import event, manifest, message
from spindown.contract.job.event import JobEvent
from spindown.contract.job.manifest import Manifest
from spindown.contract.job.result import Record

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schema"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_COUNT = {"type": "integer", "minimum": 0}
_AMOUNT = {"type": "number", "minimum": 0}
_COUNTED = ("vcpus", "gpus")


def schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas by name."""
    return {
        "message": _of_message(),
        "manifest": _of_dataclass(Manifest, "Everything durable about one job", manifest.SCHEMA),
        "record": _of_dataclass(Record, "The result of one item, a line of a part", None),
        "event": _of_dataclass(JobEvent, "How a job ended: `detail` of the event", event.SCHEMA),
    }


def text_of(name: str) -> str:
    """Return the file of a schema."""
    return json.dumps(schemas()[name], indent=1, sort_keys=True) + "\n"


def _of_message() -> Mapping[str, Any]:
    texts = {name: _text(pattern) for name, pattern, _ in message.TEXTS if name != "parent"}
    needs = {name: _COUNT if name in _COUNTED else _AMOUNT for name in message.NEEDS}
    needs["architectures"] = {
        "type": "array",
        "minItems": 1,
        "items": {"enum": list(message.ARCHITECTURES)},
    }
    return {
        "$schema": _DRAFT,
        "title": "A job, as it is sent to the queue",
        "type": "object",
        "additionalProperties": False,
        "oneOf": [{"required": [name]} for name in message.SOURCES],
        "properties": {
            **texts,
            "items": {"type": "array"},
            "params": {"type": "object"},
            "requirements": {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": needs,
            },
            "schema": {"const": message.SCHEMA},
        },
    }


def _text(pattern: re.Pattern[str]) -> Mapping[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}


def _of_dataclass(kind: type, title: str, version: int | None) -> Mapping[str, Any]:
    document = TypeAdapter(kind).json_schema(mode="serialization")
    document |= {"$schema": _DRAFT, "title": title}
    if version is not None:
        document["properties"]["schema"] = {"const": version}
    document.pop("description", None)
    return document


def main() -> int:
    """Write the files; return the exit status."""
    FOLDER.mkdir(exist_ok=True)
    for name in schemas():
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
