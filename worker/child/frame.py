"""Messages between worker and child: JSON behind its length, on pipes of their own.

The user's prints go elsewhere, so nothing that the user's code does can break a frame.
"""

import json
import os
import select
import struct
import time
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">I")
_CHUNK = 65536

Frame = dict[str, Any]


def encode_frame(frame: Frame) -> bytes:
    """Return a frame's bytes (ValueError or TypeError: it is not JSON)."""
    data = json.dumps(frame, allow_nan=False, separators=(",", ":")).encode()
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


def write_within(fd: int, data: bytes, seconds: float) -> bool:
    """Write to a non-blocking pipe; False if its reader is gone or does not read in time."""
    give_up_at = time.monotonic() + seconds
    rest = memoryview(data)
    while rest:
        left = give_up_at - time.monotonic()
        if left <= 0 or not select.select([], [fd], [], left)[1]:
            return False
        try:
            rest = rest[os.write(fd, rest[:_CHUNK]) :]
        except BlockingIOError:
            continue
        except OSError:
            return False
    return True
