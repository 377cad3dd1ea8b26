"""Turn frozen dataclasses into JSON-like rows and back, without a schema library.

Instants become ISO 8601 in UTC with six digits, so that text order is time order and a
conditional write can compare them; durations become seconds. Unknown fields are ignored on
reading: a row is changed field by field, so what a later version wrote stays in place.
"""

import json
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

from spindown.domain.value_range import ValueRange
from spindown.error import ContractError

T = TypeVar("T")

Row = dict[str, Any]

#: Turns a JSON value into one of a type.
_Reader = Callable[[Any], Any]
#: A field's name, the types of values that are good as they are if they lie between two bounds
#: (None: whatever they are), what reads others, and whether it must be there.
_Step = tuple[str, frozenset[Any], float | None, float, _Reader, bool]

#: What a reader raises of a value that is not of its type.
_MISFITS = (TypeError, ValueError, KeyError, AttributeError, OverflowError)

#: Levels of lists and objects within each other; more would break writers on the way.
DEPTH_MAX = 64
#: What holds values of its own; one tuple is looked at faster than a union of types.
_NESTS = (dict, list, tuple)


#: Made once: ``json.dumps`` makes one for every call that is not plain.
_WRITER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _make_writer() -> Callable[[Any], str]:
    """Return what writes a value, which also ``_WRITER`` would make anew for each."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _WRITER.encode
    # As ``JSONEncoder.iterencode`` calls it; a value that holds itself ends in RecursionError.
    text = json.encoder.encode_basestring_ascii
    write = make(None, _WRITER.default, text, None, ":", ",", False, False, False)  # noqa: FBT003
    return lambda value: "".join(write(value, 0))


_write = _make_writer()


def to_json(value: Any) -> str:
    """Return a JSON value as text in its shortest form.

    Raises:
        ValueError, TypeError, RecursionError: it is none.
    """
    return _write(value)


def why_not_json(value: Any) -> str:
    """Say in a few words why a value is no JSON: where in it, of which type, and the mend."""
    left: list[tuple[str, Any, int]] = [("", value, 0)]
    while left:
        where, found, depth = left.pop()
        if depth > DEPTH_MAX:
            return f"it nests deeper than {DEPTH_MAX} levels, or in a circle; flatten it"
        if fault := _why_no_value(found):
            return f"{where or 'it'} is {fault}"
        if isinstance(found, Mapping):
            for key, inner in found.items():
                if not isinstance(key, str | int | float | None):
                    kind = _name_type(key)
                    return f"{where or 'it'} has a key of type {kind}; make each key a text"
                left.append((f"{where}[{key!r}]", inner, depth + 1))
        elif isinstance(found, list | tuple):
            left += ((f"{where}[{n}]", inner, depth + 1) for n, inner in enumerate(found))
    return "it is no JSON"


def _why_no_value(value: Any) -> str:
    """Say why a value, whatever is in it, is no JSON; "": it may be."""
    kind = _name_type(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{float(value)} (of type {kind}), which JSON lacks; give None or a text"
    if isinstance(value, dict | list | tuple | str | int | float | None):
        return ""
    if callable(getattr(value, "tolist", None)):
        return f"of type {kind}; give its .tolist()"
    return f"of type {kind}; give text, numbers, booleans, None, or lists and dicts of these"


def _name_type(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def is_too_deep(value: Any, levels: int = DEPTH_MAX) -> bool:
    """Tell whether a JSON value nests deeper than so many levels."""
    level = [value]
    for _ in range(levels):
        below: list[Any] = []
        for found in level:
            if isinstance(found, _NESTS):
                below += found.values() if isinstance(found, dict) else found
        if not below:
            return False
        level = below
    return True


def count_values(data: bytes) -> int:
    """Return about how many values a JSON text has, unparsed; commas within texts count too."""
    return sum(map(data.count, (b",", b"[", b"{")))


def from_json(what: str, data: str | bytes, remedy: str = "write JSON") -> Any:
    """Return the JSON value of a text from outside.

    Args:
        what: what the text is, for whoever reads the error.
        data: the text.
        remedy: what to do about one that is no JSON.

    Raises:
        ContractError: it is no JSON, or nests deeper than ``DEPTH_MAX``, or has a number that is
            not finite, which ``to_json`` writes no more than this reads it.
    """
    try:
        return load_strict(data)
    except NotFinite as exc:
        raise ContractError(what, data[:100], f"{remedy}: {exc}") from exc
    except TooDeep as exc:
        raise ContractError(what, data[:100], f"nest no deeper than {DEPTH_MAX} levels") from exc
    except (ValueError, RecursionError) as exc:
        raise ContractError(what, data[:100], remedy) from exc


class NotFinite(ValueError):
    """A text has a number that JSON lacks: NaN, Infinity, or one beyond the largest."""


class TooDeep(RecursionError):
    """A value nests too deeply."""


def load_strict(data: str | bytes, levels: int = DEPTH_MAX) -> Any:
    """Parse JSON, and only what can be written as JSON again wherever it goes.

    Raises:
        ValueError, RecursionError: it is none; among them NotFinite and TooDeep.
    """
    value = load_finite(data)
    if is_too_deep(value, levels):
        raise TooDeep
    return value


def load_finite(data: str | bytes | bytearray) -> Any:
    """Parse JSON whose numbers are finite, however deeply it nests.

    Raises:
        ValueError, RecursionError: it is none; among them NotFinite.
    """
    return json.loads(data, parse_constant=_refuse_number, parse_float=_finite)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise NotFinite(f"{text[:20]} is no finite number")


@lru_cache(maxsize=1024)
def encode_instant(at: datetime) -> str:
    """Return an aware datetime as fixed-width UTC text."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


@lru_cache(maxsize=1024)
def decode_instant(text: str) -> datetime:
    """Return the datetime that ``encode_instant`` wrote, in UTC.

    Raises:
        ValueError: it has no time zone, or lies so far away that no sum with it can be trusted.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError
    if at.tzinfo is not UTC:
        try:
            at = at.astimezone(UTC)
        except OverflowError as exc:
            # Within a day of the first year's begin, or of the last one's end.
            raise ValueError from exc
    if not _YEAR_LEAST <= at.year <= _YEAR_MOST:
        raise ValueError
    return at


#: Years between which all that happens lies.
_YEAR_LEAST, _YEAR_MOST = 1970, 2200
#: No span is longer; an instant of those years plus or minus it is one still.
_SPAN_MOST = timedelta(days=100 * 365)


_ATOMS = frozenset({str, int, float, bool, type(None)})


def encode(value: Any) -> Any:
    """Return ``value`` as str, int, float, bool, None, list and dict only."""
    kind: Any = type(value)
    return value if kind in _ATOMS else _writer(kind)(value)


@cache
def _writer(kind: Any) -> Callable[[Any], Any]:
    """Return what writes a type: looked into once, since rows are written by the million."""
    for known, write in (
        (Enum, attrgetter("_value_")),
        (datetime, encode_instant),
        (timedelta, timedelta.total_seconds),
        (Mapping, _write_mapping),
        ((frozenset, set), lambda value: sorted(map(encode, value))),
    ):
        if issubclass(kind, known):
            return write
    return _write_fields if is_dataclass(kind) else lambda value: [encode(v) for v in value]


#: Plain ``type``, whose results the type checker would not take for keys of a cache.
_type: Callable[[Any], Any] = type


def _write_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        k if type(k) is str else str(k): v if (kind := _type(v)) in _ATOMS else _writer(kind)(v)
        for k, v in value.items()
    }


def _write_fields(value: Any) -> dict[str, Any]:
    return {
        name: v if (kind := _type(v := getattr(value, name))) in _ATOMS else _writer(kind)(v)
        for name in _names(_type(value))
    }


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def encode_short(value: Any) -> Any:
    """Return what ``encode`` does, without fields of None or of nothing whose default it is.

    Reading fills them in. Other defaults stay: a later version may have others.
    """
    if is_dataclass(value):
        given = {f: getattr(value, f.name) for f in fields(value)}
        short = {f: encode_short(one) for f, one in given.items()}
        return {
            f.name: one
            for f, one in short.items()
            if one not in _EMPTY or given[f] != _default_of(f)
        }
    if isinstance(value, Mapping):
        return {str(key): encode_short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [encode_short(one) for one in value]
    return encode(value)


_EMPTY: tuple[Any, ...] = (None, [], {})


def _default_of(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


class KeptRow(Row):
    """A row that nobody changes any more: it is read once, however often it is asked for."""

    #: What it, or an earlier version of it, was read as; None: not yet.
    read_as: Any = None
    #: The fields that may differ from that.
    stale: frozenset[str] = frozenset()
    #: Whether it was found to lie where what it was read as belongs.
    is_placed = False

    def follow(self, earlier: Row, changed: Iterable[str]) -> None:
        """Be read as an earlier version was, except for what has changed."""
        if type(earlier) is KeptRow and earlier.read_as is not None:
            self.read_as, self.stale = earlier.read_as, earlier.stale.union(changed)


def decode(cls: type[T], row: Mapping[str, Any]) -> T:
    """Build a dataclass from a row; raise ContractError naming the field that does not fit."""
    if type(row) is not KeptRow:
        return _read(cls, row)
    kind: Any = cls
    if type(row.read_as) is not cls:
        row.read_as = _read(cls, row)
    elif row.stale:
        plan = _plan(kind)
        steps = [plan[name] for name in row.stale if name in plan]
        row.read_as = replace_fields(row.read_as, _read_fields(cls, row, steps))
    row.stale = _NOTHING
    read_as: T = row.read_as
    return read_as


_NOTHING = frozenset[str]()


def replace_fields(value: T, changes: Mapping[str, Any]) -> T:
    """Return a frozen dataclass with some fields changed, as ``dataclasses.replace`` does.

    Several times as fast for the many fields of a row, since no arguments are matched; fastest
    for a class without slots, which is why the rows that change most often have none.
    """
    kind: Any = type(value)
    names, slots = _way_to_vary(kind)
    if not changes or not changes.keys() <= names:
        plain: Any = value
        return replace(plain, **changes)  # type: ignore[no-any-return]
    copy: T = object.__new__(kind)
    if slots is None:
        # A row has no cached properties, which would be copied with the fields.
        fields_of = value.__dict__.copy()
        fields_of.update(changes)
        object.__setattr__(copy, "__dict__", fields_of)
        return copy
    for write, kept in zip(slots.writers.values(), slots.take(value)):  # noqa: B905 - of one length
        write(copy, kept)
    for name, changed in changes.items():
        slots.writers[name](copy, changed)
    return copy


@dataclass(frozen=True, slots=True)
class _Slots:
    """What writes each field of a class, and what reads all at once."""

    writers: dict[str, Callable[[Any, Any], None]]
    take: Callable[[Any], tuple[Any, ...]]


@cache
def _is_plain(cls: Any) -> bool:
    """Tell whether a class checks nothing and keeps its fields in a dict."""
    names, slots = _way_to_vary(cls)
    return bool(names) and slots is None


@cache
def _way_to_vary(cls: Any) -> tuple[frozenset[str], _Slots | None]:
    """Return the fields that can be varied at once, none if a class checks them; its slots."""
    names = _names(cls)
    if len(names) == 1 or hasattr(cls, "__post_init__"):
        return frozenset(), None
    if "__slots__" not in vars(cls):
        return frozenset(names), None
    writers = {name: vars(cls)[name].__set__ for name in names}
    return frozenset(names), _Slots(writers, attrgetter(*names))


def _read(cls: type[T], row: Mapping[str, Any]) -> T:
    if not isinstance(row, _OBJECTS):
        raise ContractError(cls.__name__, row, "write an object")
    kind: Any = cls
    plan = _plan(kind)
    values = _read_fields(cls, row, plan.values())
    if len(values) < len(plan) or not _is_plain(kind):
        return cls(**values)
    # As its own __init__ does, which sets one field after the other.
    made: T = object.__new__(cls)
    object.__setattr__(made, "__dict__", values)
    return made


def _read_fields(cls: type[Any], row: Mapping[str, Any], steps: Iterable[_Step]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, kept, least, most, read, required in steps:
        if name in row:
            value = row[name]
            if type(value) in kept and (least is None or value is None or least <= value <= most):
                values[name] = value
                continue
            try:
                values[name] = read(value)
            except _MISFITS as exc:
                raise _misfit(cls, name, value) from exc
        elif required:
            raise ContractError(f"{cls.__name__}.{name}", None, "write this field")
    return values


#: A dict is told from others at once; only then is the abstract class asked.
_OBJECTS = (dict, Mapping)


def _misfit(cls: type[Any], name: str, value: Any) -> ContractError:
    kind: Any = cls
    hint = typing.get_type_hints(kind)[name]
    wanted = getattr(hint, "__name__", str(hint))
    least, most = _bounds(typing.get_type_hints(kind, include_extras=True)[name])
    is_bounded = least is not None and most not in {sys.float_info.max, _INT_MOST}
    bounds = f" from {least:g} to {most:g}" if is_bounded else ""
    return ContractError(f"{cls.__name__}.{name}", value, f"write a {wanted}{bounds}")


@cache
def _plan(cls: Any) -> dict[str, _Step]:
    """Return by name how each field is read."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        f.name: (
            f.name,
            _kept(hints[f.name]),
            *_bounds(hints[f.name]),
            _reader(hints[f.name]),
            f.default is MISSING and f.default_factory is MISSING,
        )
        for f in fields(cls)
    }


def _kept(hint: Any) -> frozenset[Any]:
    """Return the types of the JSON values that a type takes as they are."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return _kept(args[0])
    if origin not in {Union, types.UnionType}:
        return frozenset({hint} & _SCALARS)
    if _PLAIN.issuperset(args):
        return frozenset()
    return _kept(_of_union(args)) | frozenset({_NONE} & set(args))


def _of_union(args: tuple[Any, ...]) -> Any:
    """Return the type that a union with None has besides."""
    return next(a for a in args if a is not _NONE)


def _bounds(hint: Any) -> tuple[float | None, float]:
    """Return the least and the greatest value of a number; None: it is no number."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return next((x.least, x.most) for x in args if isinstance(x, ValueRange))
    if origin in {Union, types.UnionType} and not _PLAIN.issuperset(args):
        return _bounds(_of_union(args))
    return _UNBOUNDED.get(hint, (None, 0.0))


#: What a number is between of which nothing else is said: DynamoDB knows no other integers, and
#: no sum has infinity or NaN in it.
_INT_MOST = 2**63 - 1
_UNBOUNDED: Mapping[Any, tuple[float, float]] = {
    float: (-sys.float_info.max, sys.float_info.max),
    int: (-_INT_MOST, _INT_MOST),
}


@cache
def _reader(hint: Any) -> _Reader:  # noqa: PLR0911 - one return per kind of type
    """Return what reads a type: looked into once, since rows are read by the million."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _union_reader(args)
    if origin in {tuple, frozenset, list}:
        return _items_reader(origin, args[0])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(_reader(args[1]))
    if hint is datetime:
        return decode_instant
    if hint is timedelta:
        return _read_span
    if isinstance(hint, type) and issubclass(hint, Enum):
        # What looking up a member by its value comes to, without the calls.
        return {member.value: member for member in hint}.__getitem__
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_read, hint)
    if hint in _SCALARS:
        return _scalar_reader(hint, *_bounds(hint))
    if origin is typing.Annotated:
        return _scalar_reader(args[0], *_bounds(hint))
    return lambda value: value


def _union_reader(args: tuple[Any, ...]) -> _Reader:
    if _PLAIN.issuperset(args):
        return _plain_reader(args)
    read, is_optional = _reader(_of_union(args)), _NONE in args

    def read_union(value: Any) -> Any:
        if value is not None:
            return read(value)
        if is_optional:
            return None
        raise TypeError

    return read_union


_NONE = type(None)
_PLAIN = frozenset({str, int, float})
_SCALARS = _PLAIN | {bool}


def _plain_reader(kinds: tuple[type, ...]) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError
        if type(value) is float and not math.isfinite(value):
            raise ValueError
        return value

    return read


def _read_span(value: Any) -> timedelta:
    span = timedelta(seconds=float(value))
    if abs(span) > _SPAN_MOST:
        raise ValueError
    return span


def _items_reader(kind: Any, hint: Any) -> _Reader:
    read, (least, most) = _reader(hint), _bounds(hint)
    # The many samples of what is learned.
    is_plain = _kept(hint) == _FLOATS

    def read_items(value: Any) -> Any:
        if type(value) is str or type(value) is dict:
            raise TypeError
        if is_plain and value and _FLOATS.issuperset(map(type, value)):
            # A NaN makes the sum one, wherever it stands.
            if least <= min(value) and max(value) <= most and sum(value) < math.inf:
                return kind(value)
            raise ValueError
        return kind(map(read, value))

    return read_items


_FLOATS = frozenset({float})


def _mapping_reader(read: _Reader) -> _Reader:
    return lambda value: {k: read(v) for k, v in value.items()}


def _scalar_reader(hint: Any, least: float | None, most: float) -> _Reader:
    def read(value: Any) -> Any:
        if least is None and type(value) is hint:
            return value
        if isinstance(value, bool) != (hint is bool) or isinstance(value, str) != (hint is str):
            raise TypeError
        found = hint(value)
        if hint is int and found != value:
            raise ValueError
        if least is not None and not least <= found <= most:
            raise ValueError
        return found

    return read
