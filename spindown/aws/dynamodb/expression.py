"""DynamoDB's words: attribute values, conditions and updates, built from ours.

Every name and value goes through a placeholder, since any attribute may be a reserved word.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spindown.app.port import When, Write
from spindown.contract.codec import Row
from spindown.error import ContractError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

PARTITION = "pk"
SORT = "sk"

#: Decimals of what is added to a number. DynamoDB refuses a sum that its 38 digits cannot hold
#: exactly (scylladb/scylladb, test/alternator/test_number.py, whose tests are run on DynamoDB), and
#: a float brings up to 17 digits wherever they begin: what rounding leaves of a difference, 8.7e-19
#: say, would give a row 34 decimals for good, and a sum in the thousands no more room.
ADDED_DECIMALS = 12


def to_attribute(name: str, value: Any) -> "AttributeValueTypeDef":
    """Return a JSON-like value as DynamoDB stores it, floats by their shortest exact text.

    Raises:
        ContractError: it is of another kind.
    """
    if isinstance(value, str):
        return {"S": str(value)}
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return {"N": repr(value)}
    if isinstance(value, list | tuple):
        return {"L": [to_attribute(name, inner) for inner in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"M": {str(key): to_attribute(name, inner) for key, inner in value.items()}}
    raise ContractError(name, value, "store text, a finite number, true, false, null, list or map")


def _addend(number: float) -> float:
    """Return a number as it is added; nothing is not taken away from."""
    return round(number, ADDED_DECIMALS) + 0.0 if isinstance(number, float) else number


def from_attribute(attribute: "Mapping[str, Any]") -> Any:
    """Return what ``to_attribute`` was given; a whole number comes back as int."""
    ((kind, value),) = attribute.items()
    if kind == "NULL":
        return None
    if kind == "N":
        return int(value) if value.lstrip("-").isdigit() else float(value)
    if kind == "L":
        return [from_attribute(inner) for inner in value]
    if kind == "M":
        return {name: from_attribute(inner) for name, inner in value.items()}
    return value


def from_item(item: "Mapping[str, Any]") -> Row:
    """Return a stored item as a row, without its key."""
    return {name: from_attribute(a) for name, a in item.items() if name not in {PARTITION, SORT}}


class Expression:
    """One request's expressions, with the names and values that they refer to."""

    def __init__(self) -> None:
        #: Name -> placeholder.
        self._names: dict[str, str] = {}
        self._values: dict[str, AttributeValueTypeDef] = {}

    def condition(self, when: When, *, is_required: bool = False) -> str:
        """Return a condition expression; "" if it always holds and none is required."""
        parts = []
        if when.exists is not None:
            verb = "attribute_exists" if when.exists else "attribute_not_exists"
            parts.append(f"{verb}({self._name(PARTITION)})")
        parts += [self._is(name, value) for name, value in when.equals.items()]
        parts += [f"NOT {self._is(name, value)}" for name, value in when.differs.items()]
        parts += [
            f"({self._is_null(name)} OR {self._name(name)} <= {self._value(name, value)})"
            for name, value in when.at_most.items()
        ]
        parts += [self._is_null(name) for name in sorted(when.absent)]
        if not parts and is_required:
            key = self._name(PARTITION)
            parts.append(f"(attribute_exists({key}) OR attribute_not_exists({key}))")
        return " AND ".join(parts)

    def update(self, write: Write) -> str:
        """Return the update expression of a write."""
        sets = [f"{self._name(n)} = {self._value(n, v)}" for n, v in write.set.items()]
        adds = [f"{self._name(n)} {self._value(n, _addend(v))}" for n, v in write.add.items()]
        clauses = (("SET", sets), ("ADD", adds))
        return " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses if parts)

    def arguments(self) -> dict[str, Any]:
        """Return the names and values as request arguments; an empty one must not be sent."""
        found: dict[str, Any] = {}
        if self._names:
            found["ExpressionAttributeNames"] = {p: name for name, p in self._names.items()}
        if self._values:
            found["ExpressionAttributeValues"] = self._values
        return found

    def _is(self, name: str, value: Any) -> str:
        if value is None:
            return self._is_null(name)
        # A comparison with a missing attribute is left undefined, so existence is asked first.
        placeholder = self._name(name)
        return f"(attribute_exists({placeholder}) AND {placeholder} = {self._value(name, value)})"

    def _is_null(self, name: str) -> str:
        placeholder = self._name(name)
        self._values[":null"] = {"S": "NULL"}
        return f"(attribute_not_exists({placeholder}) OR attribute_type({placeholder}, :null))"

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"#n{len(self._names)}")

    def _value(self, name: str, value: Any) -> str:
        placeholder = f":v{len(self._values)}"
        self._values[placeholder] = to_attribute(name, value)
        return placeholder
