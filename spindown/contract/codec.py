"""Turn frozen dataclasses into JSON-like rows and back, without a schema library.

Instants become ISO 8601 in UTC with six digits, so that text order is time order and a
conditional write can compare them; durations become seconds. Unknown fields are ignored on
reading: a row is changed field by field, so what a later version wrote stays in place.
"""

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from spindown.error import ContractError

T = TypeVar("T")

Value = str | int | float | bool | list[Any] | dict[str, Any] | None
Row = dict[str, Any]


#: Levels of lists and objects within each other; more would break writers on the way.
DEPTH_MAX = 64


#: Made once: ``json.dumps`` makes one for every call that is not plain.
_WRITER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_json(value: Any) -> str:
    """Return a JSON value as text in its shortest form (ValueError, TypeError: it is none)."""
    return _WRITER.encode(value)


def is_too_deep(value: Any) -> bool:
    """Tell whether a JSON value nests deeper than ``DEPTH_MAX``."""
    level = [value]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for found in level:
            if isinstance(found, dict):
                below += found.values()
            elif isinstance(found, list | tuple):
                below += found
        if not below:
            return False
        level = below
    return True


def encode_instant(at: datetime) -> str:
    """Return an aware datetime as fixed-width UTC text."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def decode_instant(text: str) -> datetime:
    """Return the aware datetime that ``encode_instant`` wrote."""
    return datetime.fromisoformat(text)


_ATOMS = frozenset({str, int, float, bool, type(None)})


def encode(value: Any) -> Any:  # noqa: PLR0911 - one return per kind of value
    """Return ``value`` as str, int, float, bool, None, list and dict only."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return encode_instant(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: inner if type(inner := getattr(value, name)) in _ATOMS else encode(inner)
            for name in _names(type(value))
        }
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(encode(v) for v in value)
    return [encode(v) for v in value]


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def decode(cls: type[T], row: Mapping[str, Any]) -> T:
    """Build a dataclass from a row; raise ContractError naming the field that does not fit."""
    values: dict[str, Any] = {}
    for name, (hint, required) in _plan(cast("Any", cls)).items():
        if name not in row:
            if required:
                raise ContractError(f"{cls.__name__}.{name}", None, "write this field")
            continue
        try:
            values[name] = _decode(hint, row[name])
        except ContractError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError) as exc:
            wanted = getattr(hint, "__name__", str(hint))
            raise ContractError(f"{cls.__name__}.{name}", row[name], f"write a {wanted}") from exc
    return cls(**values)


@cache
def _plan(cls: Any) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(cls)
    return {
        f.name: (hints[f.name], f.default is MISSING and f.default_factory is MISSING)
        for f in fields(cls)
    }


def _decode(hint: Any, value: Any) -> Any:  # noqa: PLR0911 - one return per kind of type
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _decode_union(args, value)
    if origin in {tuple, frozenset, list}:
        return origin(_decode(args[0], v) for v in value)
    if origin is not None and issubclass(origin, Mapping):
        return {k: _decode(args[1], v) for k, v in value.items()}
    if hint is datetime:
        return decode_instant(value)
    if hint is timedelta:
        return timedelta(seconds=float(value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return decode(hint, value)
    if hint in {int, float, str, bool}:
        return _decode_scalar(hint, value)
    return value


def _decode_union(args: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        if type(None) in args:
            return None
        raise TypeError
    return _decode(next(a for a in args if a is not type(None)), value)


def _decode_scalar(hint: Any, value: Any) -> Any:
    if isinstance(value, bool) != (hint is bool) or isinstance(value, str) != (hint is str):
        raise TypeError
    return hint(value)
