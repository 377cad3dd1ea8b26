"""Write which actions CloudFormation needs for each type of resource of our templates.

Source: the registry of CloudFormation (each type's ``handlers``), as cfn-lint brings it. A type
that comes new is named as an argument.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

FILE = Path(__file__).resolve().parent.parent / "spindown" / "operate" / "resource_rights.json"
#: The registry names some actions that are none.
_ACTION = re.compile(r"[a-z0-9-]+:[A-Z][A-Za-z]+[*]?")
_NEEDED = ("create", "read", "update", "delete")


def rights_of(kind: str) -> list[str]:
    """Return the actions by which a type is made, read, changed and deleted."""
    handlers = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema["handlers"]
    asked = {one for name in _NEEDED for one in handlers.get(name, {}).get("permissions", [])}
    return sorted(one for one in asked if _ACTION.fullmatch(one) and ":REST" not in one)


def text_of(kinds: Sequence[str]) -> str:
    """Return the file for these types."""
    known: Mapping[str, Sequence[str]] = {kind: rights_of(kind) for kind in sorted(kinds)}
    return json.dumps(known, indent=1) + "\n"


def main() -> int:
    """Write the file; return the exit status."""
    kinds = {*(json.loads(FILE.read_bytes()) if FILE.exists() else {}), *sys.argv[1:]}
    FILE.write_text(text_of(sorted(kinds)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
