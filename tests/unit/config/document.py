"""The smallest document that is a config, and changes of it."""

import copy
from collections.abc import Mapping
from typing import Any

SMALLEST: Mapping[str, Any] = {
    "deployment": {"name": "demo", "region": "us-east-1", "zones": ["us-east-1a"]},
    "workload": {"ocr": {"run": {"entrypoint": "ocr:run", "code": "code"}}},
}


def with_value(path: str, value: object) -> dict[str, Any]:
    document = copy.deepcopy(dict(SMALLEST))
    table = document
    *tables, key = path.split(".")
    for name in tables:
        table = table.setdefault(name, {})
    table[key] = value
    return document
