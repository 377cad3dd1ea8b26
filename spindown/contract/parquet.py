"""Flat tables as Parquet, written and read again with nothing but the standard library.

The least that the format asks for (github.com/apache/parquet-format: README.md, Encodings.md,
parquet.thrift): one row group; for each column one data page of version 1 with PLAIN values,
compressed by gzip; every column optional, so that None is null. Any reader of Parquet reads it.
Here only such files are read.

The metadata are structs of Thrift's compact protocol (github.com/apache/thrift,
doc/specs/thrift-compact-protocol.md). Here a struct is a dict from field number to value.
"""

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from spindown.error import ContractError

_MAGIC = b"PAR1"
#: Values of Parquet's enums.
_OPTIONAL, _DATA_PAGE, _PLAIN, _RLE, _GZIP = 1, 0, 0, 3, 2
#: zlib's own code for the gzip container.
_GZIP_BITS = 31
_VERSION = 1
_MAKER = b"spindown"
#: No column of an honest file is larger.
_PAGE_BYTES_MAX = 1 << 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Value = str | int | float | datetime | None


@dataclass(frozen=True, slots=True)
class _Kind:
    """Physical type, converted type (None: none) and how one value is packed."""

    physical: int
    converted: int | None


class Column(Enum):
    """What a column holds; the names are those of Athena and Hive."""

    STRING = _Kind(6, 0)
    BIGINT = _Kind(2, None)
    DOUBLE = _Kind(5, None)
    #: An instant in UTC, to the microsecond.
    TIMESTAMP = _Kind(2, 10)


def write_parquet(columns: Mapping[str, Column], rows: Sequence[Mapping[str, Value]]) -> bytes:
    """Return a file of rows; what a row does not name is null."""
    made = bytearray(_MAGIC)
    chunks: list[dict[int, Any]] = []
    for name, column in columns.items():
        offset = len(made)
        values = [row.get(name) for row in rows]
        page = _levels(values) + _pack(column, [value for value in values if value is not None])
        packed = _gzip(page)
        header = {
            1: _Int(_DATA_PAGE),
            2: _Int(len(page)),
            3: _Int(len(packed)),
            5: {1: _Int(len(values)), 2: _Int(_PLAIN), 3: _Int(_RLE), 4: _Int(_RLE)},
        }
        head = _struct(header)
        made += head + packed
        meta: dict[int, Any] = {
            1: _Int(column.value.physical),
            2: [_Int(_PLAIN), _Int(_RLE)],
            3: [name.encode()],
            4: _Int(_GZIP),
            5: _Long(len(values)),
            6: _Long(len(head) + len(page)),
            7: _Long(len(head) + len(packed)),
            9: _Long(offset),
        }
        chunks.append({2: _Long(offset), 3: meta})
    size = sum(chunk[3][6] for chunk in chunks)
    footer = _struct(
        {
            1: _Int(_VERSION),
            2: [_root(columns), *(_leaf(name, column) for name, column in columns.items())],
            3: _Long(len(rows)),
            4: [{1: chunks, 2: _Long(size), 3: _Long(len(rows))}],
            6: _MAKER,
        }
    )
    return bytes(made + footer + struct.pack("<I", len(footer)) + _MAGIC)


def read_parquet(
    data: bytes, columns: Mapping[str, Column], *, wanted: Collection[str] | None = None
) -> list[dict[str, Value]]:
    """Return the rows of a file that ``write_parquet`` has written.

    Args:
        data: the file.
        columns: as it was written with; one that the file does not have is null.
        wanted: names of the columns to read; None: all.

    Raises:
        ContractError: it is none, or of another maker.
    """
    try:
        count, found = _read_columns(data, columns, wanted)
    except (ValueError, KeyError, IndexError, TypeError, struct.error, zlib.error) as exc:
        raise ContractError("parquet", data[:8], "write it by Spindown itself") from exc
    return [{name: values[number] for name, values in found.items()} for number in range(count)]


def _read_columns(
    data: bytes, columns: Mapping[str, Column], wanted: Collection[str] | None
) -> tuple[int, dict[str, list[Value]]]:
    if data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise ValueError
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    footer = _Reader(data, len(data) - 8 - length).read_struct()
    count = footer[3]
    (group,) = footer[4]
    found: dict[str, list[Value]] = {}
    for chunk in group[1]:
        meta = chunk[3]
        name = meta[3][0].decode()
        if name not in columns or (wanted is not None and name not in wanted):
            continue
        if columns[name].value.physical != meta[1] or meta[4] != _GZIP:
            raise ValueError
        reader = _Reader(data, meta[9])
        header = reader.read_struct()
        packed = data[reader.at : reader.at + header[3]]
        unpack = zlib.decompressobj(_GZIP_BITS)
        page = unpack.decompress(packed, min(header[2], _PAGE_BYTES_MAX))
        found[name] = _unpack(columns[name], page, count)
    for name in columns:
        if wanted is None or name in wanted:
            found.setdefault(name, [None] * count)
    return count, found


def _gzip(page: bytes) -> bytes:
    maker = zlib.compressobj(wbits=_GZIP_BITS)
    return maker.compress(page) + maker.flush()


def _levels(values: Sequence[Value]) -> bytes:
    """Return which values are there: one run of bits, the lowest first (Encodings.md, RLE)."""
    bits = bytearray(-(-len(values) // 8))
    for number, value in enumerate(values):
        if value is not None:
            bits[number // 8] |= 1 << number % 8
    run = _varint(len(bits) << 1 | 1) + bytes(bits)
    return struct.pack("<I", len(run)) + run


def _pack(column: Column, values: Sequence[Any]) -> bytes:
    match column:
        case Column.STRING:
            # A lone surrogate has no UTF-8.
            texts = [value.encode("utf-8", "replace") for value in values]
            return b"".join(struct.pack("<I", len(text)) + text for text in texts)
        case Column.DOUBLE:
            return struct.pack(f"<{len(values)}d", *values)
        case Column.TIMESTAMP:
            values = [(value - _EPOCH) // _MICROSECOND for value in values]
    return struct.pack(f"<{len(values)}q", *values)


def _unpack(column: Column, page: bytes, count: int) -> list[Value]:
    (length,) = struct.unpack_from("<I", page)
    reader = _Reader(page, 4)
    if reader.read_varint() != -(-count // 8) << 1 | 1:
        raise ValueError
    bits, at = page[reader.at : 4 + length], 4 + length
    are_there = [bool(bits[number // 8] >> number % 8 & 1) for number in range(count)]
    values = _unpack_values(column, page, at, sum(are_there))
    return [next(values) if is_there else None for is_there in are_there]


def _unpack_values(column: Column, page: bytes, at: int, count: int) -> Iterator[Value]:
    match column:
        case Column.STRING:
            for _ in range(count):
                (length,) = struct.unpack_from("<I", page, at)
                yield page[at + 4 : at + 4 + length].decode()
                at += 4 + length
        case Column.DOUBLE:
            yield from struct.unpack_from(f"<{count}d", page, at)
        case Column.TIMESTAMP:
            for number in struct.unpack_from(f"<{count}q", page, at):
                yield _EPOCH + number * _MICROSECOND
        case Column.BIGINT:
            yield from struct.unpack_from(f"<{count}q", page, at)


def _root(columns: Mapping[str, Column]) -> dict[int, Any]:
    return {4: b"schema", 5: _Int(len(columns))}


def _leaf(name: str, column: Column) -> dict[int, Any]:
    kind = column.value
    leaf = {1: _Int(kind.physical), 3: _Int(_OPTIONAL), 4: name.encode()}
    return leaf if kind.converted is None else {**leaf, 6: _Int(kind.converted)}


# Thrift's compact protocol.


class _Int(int):
    """A 32-bit number."""


class _Long(int):
    """A 64-bit number."""


_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
#: In the head of a list: its length does not fit there.
_LONG_LIST = 15


def _struct(values: Mapping[int, Any]) -> bytes:
    made, before = bytearray(), 0
    for number, value in sorted(values.items()):
        made.append((number - before) << 4 | _code(value))
        made += _value(value)
        before = number
    return bytes(made) + b"\0"


def _code(value: Any) -> int:
    kinds = {_Int: _I32, _Long: _I64, bytes: _BINARY, list: _LIST, dict: _STRUCT}
    return kinds[type(value)]


def _value(value: Any) -> bytes:
    if isinstance(value, int):
        return _varint(value << 1)
    if isinstance(value, bytes):
        return _varint(len(value)) + value
    if isinstance(value, dict):
        return _struct(value)
    size, code = len(value), _code(value[0])
    is_short = size < _LONG_LIST
    head = bytes([(size if is_short else _LONG_LIST) << 4 | code])
    return head + (b"" if is_short else _varint(size)) + b"".join(map(_value, value))


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >> 7:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


class _Reader:
    """Reads structs from a place on."""

    def __init__(self, data: bytes, at: int) -> None:
        if at < 0:
            raise ValueError
        self._data = data
        self.at = at

    def read_struct(self) -> dict[int, Any]:
        """Return a struct of the types that are written here (ValueError: another one)."""
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number += head >> 4
            found[number] = self._read(head & 0xF)
        return found

    def read_varint(self) -> int:
        """Return a number without a sign."""
        number, shift = 0, 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift

    def _read(self, code: int) -> Any:
        if code in {_I32, _I64}:
            return self.read_varint() >> 1
        if code == _BINARY:
            length = self.read_varint()
            self.at += length
            return self._data[self.at - length : self.at]
        if code == _STRUCT:
            return self.read_struct()
        if code != _LIST:
            raise ValueError
        head = self._byte()
        size = self.read_varint() if head >> 4 == _LONG_LIST else head >> 4
        return [self._read(head & 0xF) for _ in range(size)]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]
