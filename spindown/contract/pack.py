"""Zip archives whose bytes follow from their content alone.

The same files give the same archive on every machine: names are sorted, times and owners fixed,
and nothing is compressed, since what compressing gives depends on the library (zlib-ng gives other
bytes than zlib, and Pythons have either).
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

#: The earliest time that a zip archive can hold.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
#: The system that made the archive: it tells readers how to read the file modes.
_UNIX = 3
_REGULAR_FILE = 0o100644 << 16
_EXECUTABLE_FILE = 0o100755 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of an archive."""

    data: bytes
    is_executable: bool = False

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of its content and of whether it can be executed."""
        return hashlib.sha256(bytes([self.is_executable]) + self.data).digest()


def pack_members(members: Mapping[str, Member]) -> bytes:
    """Return the archive of these files; the keys are their names in it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, member in sorted(members.items()):
            info = zipfile.ZipInfo(name, date_time=_NO_TIME)
            info.create_system = _UNIX
            info.external_attr = _EXECUTABLE_FILE if member.is_executable else _REGULAR_FILE
            info.compress_type = zipfile.ZIP_STORED
            made.writestr(info, member.data)
    return archive.getvalue()


#: What tools write beside code. Hidden files and folders are left out as well.
_LEFT_OUT = frozenset({"__pycache__", "cdk.out", "node_modules"})


def is_hidden(name: PurePosixPath) -> bool:
    """Tell whether a file of a folder is hidden, or in a hidden folder, by its relative name."""
    return any(part.startswith(".") for part in name.parts)


def is_left_out(name: PurePosixPath) -> bool:
    """Tell whether a file of a folder of code is none of the code, by its relative name."""
    return is_hidden(name) or any(
        part in _LEFT_OUT or part.endswith((".pyc", ".egg-info")) for part in name.parts
    )
