"""Take files from a directory that the user's code writes, and only files that lie in it.

The code may change the directory at any moment, also to make the worker, which may read more than
the code does, take a file of somebody else's. So a path is walked step by step without following
a link, and what it ends at is linked into a directory of the worker's own before it is read.
"""

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: S3 takes keys of 1,024 bytes (Amazon S3 User Guide, "Object key names"); before the name come
#: workload, job, part and item, 217 bytes at the most.
NAME_BYTES_MAX = 800

_OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)

#: What tells a file from what it was: inode, bytes, nanoseconds of its last change.
Stamp = tuple[int, int, int]


def list_files(root: Path) -> list[str]:
    """Return the files below a directory, relative and sorted; links are left out."""
    found = []
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                found.append(path.relative_to(root).as_posix())
    return sorted(found)


def find_fault(name: str) -> str | None:
    """Return why no object can be named after a file, in words for a person; None: one can."""
    try:
        data = name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        return f"the name of its file {shown} is not UTF-8"
    if b"\0" in data:
        return f"the name of its file {name[:60]!r} has a null character"
    if len(data) > NAME_BYTES_MAX:
        return f"the name of its file {name[:60]}... is longer than {NAME_BYTES_MAX} bytes"
    return None


def stamp_files(root: Path) -> Mapping[str, Stamp]:
    """Return the files below a directory, relative, with what tells a change; links left out."""
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[path.relative_to(root).as_posix()] = stamp_of(status)
    return found


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what tells a file from what it was."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def take_file(root: Path, name: str, into: Path, *, below: Path) -> os.stat_result | None:
    """Bring a file of ``root`` to the path ``into``, which must not be there.

    ``root`` lies ``below`` a directory of the worker's own; what is in that one, the code may have
    replaced. Returns None, and leaves nothing behind, if the name leads out of ``root``, through a
    link, or to anything but a regular file.

    Raises:
        OSError: the machine has no room, memory or descriptors, which says nothing of the file.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        return None
    try:
        folder = _open_folder(below, (*root.relative_to(below).parts, *path.parts[:-1]))
    except OSError as exc:
        _raise_fault(exc)
        return None
    try:
        _bring(folder, path.name, into)
        status = into.lstat()
    except OSError as exc:
        _raise_fault(exc)
        return None
    finally:
        os.close(folder)
    if not stat.S_ISREG(status.st_mode):
        into.unlink()
        return None
    return status


def remove_folder(root: Path, *, below: Path) -> None:
    """Remove a directory as far as that can be done, and nothing that a link leads to."""
    with suppress(OSError):
        folder = _open_folder(below, root.parent.relative_to(below).parts)
        try:
            shutil.rmtree(root.name, ignore_errors=True, dir_fd=folder)
        finally:
            os.close(folder)


def _raise_fault(error: OSError) -> None:
    if error.errno in _OF_THE_MACHINE:
        raise error


def _open_folder(root: Path, parts: tuple[str, ...]) -> int:
    folder = os.open(root, _DIRECTORY)
    for part in parts:
        try:
            below = os.open(part, _DIRECTORY, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def _bring(folder: int, name: str, into: Path) -> None:
    """Link a file, or copy it where the system forbids links to files of others."""
    try:
        os.link(name, into, src_dir_fd=folder, follow_symlinks=False)
    except PermissionError:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(source, "rb") as opened:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise
            with into.open("xb") as copy:
                shutil.copyfileobj(opened, copy)
