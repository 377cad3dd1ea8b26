"""Make a small picture of each PNG file: an example whose results are files.

An item is the path of a PNG, or the ``s3://`` address of one: 8 bits a channel, grey or colour,
with or without transparency, not interlaced. The job's parameter ``width`` is the width of the
small picture in pixels, 64 by default. Needs nothing but Python.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spindown.user import Context, Item, Result

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: PNG's colour type -> channels.
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
#: Bits a channel that this reads, and PNG's number of the Paeth filter.
_DEPTH = 8
_PAETH = 4
_NAME = "thumbnail.png"


@dataclass(frozen=True)
class Picture:
    """Pixels row by row, one byte a channel."""

    width: int
    height: int
    colour_type: int
    rows: Sequence[bytes]


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Leave a thumbnail in each item's output directory; return its size."""
    width = int(ctx.params.get("width", 64))
    for item in batch:
        path = item.path or Path(str(item.value))
        small = shrink(decode_png(path.read_bytes()), width)
        (ctx.output_dir(item) / _NAME).write_bytes(encode_png(small))
        yield Result(item, {"file": _NAME, "width": small.width, "height": small.height})


def shrink(picture: Picture, width: int) -> Picture:
    """Return the picture at most ``width`` wide, each pixel the mean of those it stands for."""
    width = min(max(width, 1), picture.width)
    height = max(picture.height * width // picture.width, 1)
    channels = _CHANNELS[picture.colour_type]
    rows = []
    for y in range(height):
        above = _share(y, height, picture.height)
        row = bytearray()
        for x in range(width):
            across = _share(x, width, picture.width)
            count = len(above) * len(across)
            for channel in range(channels):
                total = sum(picture.rows[v][u * channels + channel] for v in above for u in across)
                row.append(total // count)
        rows.append(bytes(row))
    return Picture(width, height, picture.colour_type, rows)


def _share(place: int, places: int, size: int) -> range:
    first = place * size // places
    return range(first, max((place + 1) * size // places, first + 1))


def decode_png(data: bytes) -> Picture:
    """Read a PNG (ValueError: it is none, or of a kind that this example does not read)."""
    if not data.startswith(_SIGNATURE):
        raise ValueError("not a PNG file")
    header, pixels, place = b"", b"", len(_SIGNATURE)
    while place + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        header = body if kind == b"IHDR" else header
        pixels += body if kind == b"IDAT" else b""
        place += length + 12
    width, height, depth, colour_type, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != _DEPTH or colour_type not in _CHANNELS or interlaced:
        raise ValueError("only PNG files of 8 bits a channel, not interlaced, without a palette")
    rows = _unfilter(zlib.decompress(pixels), width * _CHANNELS[colour_type], colour_type)
    if len(rows) != height:
        raise ValueError("the PNG file is cut short")
    return Picture(width, height, colour_type, rows)


def _unfilter(data: bytes, stride: int, colour_type: int) -> list[bytes]:
    """Undo the filter of each row, which says how its bytes differ from their neighbours."""
    step = _CHANNELS[colour_type]
    rows: list[bytes] = []
    above = bytes(stride)
    for start in range(0, len(data) - stride, stride + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            row[i] = (row[i] + _predict(kind, left, above[i], corner)) & 0xFF
        above = bytes(row)
        rows.append(above)
    return rows


def _predict(kind: int, left: int, above: int, corner: int) -> int:
    if kind == _PAETH:
        guess = left + above - corner
        return min((left, above, corner), key=lambda value: abs(guess - value))
    return (0, left, above, (left + above) // 2)[kind]


def encode_png(picture: Picture) -> bytes:
    """Return the picture as a PNG file."""
    kind = picture.colour_type
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, kind, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in picture.rows))
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
