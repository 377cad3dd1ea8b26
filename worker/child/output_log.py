"""The output of one attempt, kept for its job: the beginning and the end, never all of a flood."""

import threading
from collections import deque

#: What is kept of the beginning and of the end, bytes.
HEAD_BYTES = 256 * 1024
TAIL_BYTES = 768 * 1024


class OutputLog:
    """Keeps what is printed, within bounds. The output's thread writes, the slot's reads."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left_out = 0

    def add(self, line: str) -> None:
        """Keep a line."""
        data = f"{line}\n".encode(errors="replace")
        with self._lock:
            if not self._tail and len(self._head) + len(data) <= self._head_bytes:
                self._head += data
                return
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size > self._tail_bytes:
                gone = self._tail.popleft()
                self._tail_size -= len(gone)
                self._left_out += len(gone)

    def read(self) -> bytes:
        """Return what was kept; a gap says how long it is."""
        with self._lock:
            gap = f"[{self._left_out} bytes left out]\n".encode() if self._left_out else b""
            return bytes(self._head) + gap + b"".join(self._tail)
