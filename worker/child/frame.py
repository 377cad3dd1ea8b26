"""Messages between worker and child: JSON behind its length, on pipes of their own.

The user's prints go elsewhere. But the user's code runs in the child and may write to its pipe:
what the worker reads may be anything.
"""

import json
import os
import re
import select
import struct
import time
from typing import Any, BinaryIO

from spindown.contract.codec import load_finite, to_json

_LENGTH = struct.Struct(">I")
#: What a pipe holds.
_CHUNK = 65536

Frame = dict[str, Any]

#: Of one frame of answers, and so of one result: the worker must have room for all of its slots.
ANSWERS_BYTES_MAX = 16 * 1024 * 1024
#: What such a frame may take in memory: of 12 MB of empty lists it would be 300.
ANSWERS_MEMORY_MAX = 64 * 1024 * 1024
#: What a text of JSON takes beside its own bytes, once it is read, by its signs: sizes of CPython
#: 3.11 (``sys.getsizeof``) for a list, a dictionary, half a text, and a number with its place.
_WEIGHTS = {b"[": 88, b"{": 184, b'"': 25, b",": 40}
#: A character beyond the first 65,536, as it is or escaped.
_WIDEST = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")


def encode_frame(frame: Frame) -> bytes:
    """Return a frame's bytes (ValueError or TypeError: it is not JSON)."""
    return pack_frame(to_json(frame).encode())


def pack_frame(data: bytes) -> bytes:
    """Return the bytes of a frame that is JSON already."""
    return _LENGTH.pack(len(data)) + data


def read_frame(stream: BinaryIO) -> Frame | None:
    """Read one frame; None at the end of the stream, also in mid-frame."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        return None
    frame: Frame = json.loads(data)
    return frame


def weigh(data: bytes | bytearray) -> int:
    """Return about how many bytes a text of JSON takes once it is read; rather more than less.

    Signs within texts are counted too: to tell them apart would take more memory than is saved.
    Worked: a million lists of nothing are 3 MB of text, which take 64 MB and count as 131.
    """
    # A text has as many bytes for each of its characters as the widest takes (PEP 393).
    width = 4 if _WIDEST.search(data) else 1 if data.isascii() and b"\\u" not in data else 2
    return width * len(data) + sum(weight * data.count(sign) for sign, weight in _WEIGHTS.items())


def write_within(fd: int, data: bytes, seconds: float) -> bool:
    """Write to a non-blocking pipe; False if its reader is gone or does not read in time."""
    give_up_at = time.monotonic() + seconds
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest[:_CHUNK]) :]
        except BlockingIOError:
            left = give_up_at - time.monotonic()
            if left <= 0 or not select.select([], [fd], [], left)[1]:
                return False
        except OSError:
            return False
    return True


def _load(data: bytearray) -> Frame:
    try:
        frame = load_finite(data)
    except (ValueError, RecursionError) as exc:
        raise EOFError from exc
    if not isinstance(frame, dict) or "type" not in frame:
        raise EOFError
    return frame


class FrameReader:
    """Reads frames from a pipe, waiting no longer than it is told."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        #: What the last frame that was read takes in memory.
        self.frame_bytes = 0

    def next(self, seconds: float) -> Frame | None:
        """Return the next frame, None if it does not come in time.

        Raises:
            EOFError: none will, since the line has ended, or what came on it is no frame.
        """
        give_up_at = time.monotonic() + seconds
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            left = max(give_up_at - time.monotonic(), 0.0)
            if not select.select([self._fd], [], [], left)[0]:
                return None
            data = os.read(self._fd, _CHUNK)
            if not data:
                raise EOFError
            self._buffer += data

    def _take(self) -> Frame | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > ANSWERS_BYTES_MAX:
            raise EOFError
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        data = self._buffer[_LENGTH.size : end]
        del self._buffer[:end]
        self.frame_bytes = weigh(data)
        if self.frame_bytes > ANSWERS_MEMORY_MAX:
            raise EOFError
        return _load(data)
