"""Directories that the user's code may write: what the worker makes, reads and removes in them.

The code may change such a directory at any moment, to make the worker, which may do more than the
code, read, write or remove something of somebody else's. So

- the directories around them belong to the worker alone: the code can read them (``make_own``),
  and can put nothing in the place of what lies in them, now or beforehand,
- in a directory that the code may write (``make_shared``) no path is followed: it is opened step
  by step without following a link, and what it ends at is linked into a directory of the worker's
  own before it is read,
- however deep the code nests and however many files it makes, a look ends, and takes no more file
  descriptors than ``_DEPTH_MAX``.
"""

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path, PurePosixPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: S3 takes keys of 1,024 bytes (Amazon S3 User Guide, "Object key names"); before the name come
#: workload, job, part and item, 217 bytes at the most.
NAME_BYTES_MAX = 800
#: Files and directories, together, that an item or a checkpoint may consist of. Each file is a
#: request to S3, and a line in the record or the manifest that lists it.
ENTRIES_MAX = 20_000
#: Directories in one another. Names of ``NAME_BYTES_MAX`` bytes could hold more.
_DEPTH_MAX = 64
#: Entries that are removed between two readings of a directory, and readings at most: who makes
#: files faster than they are removed does not keep the worker.
_REMOVED_AT_ONCE, _READINGS_MAX = 10_000, 1000

#: What the worker needs to end a job in order: inputs lie there already, results are links.
_BYTES_RESERVED, _FILES_RESERVED = 32 * 1024**2, 500

_OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)

#: What tells a file from what it was: inode, bytes, nanoseconds of its last change.
Stamp = tuple[int, int, int]

_TOO_MANY = f"the code has left more than {ENTRIES_MAX} files"
_TOO_DEEP = f"the code has left directories nested deeper than {_DEPTH_MAX}"
_TOO_LARGE = "the code has left files that claim more bytes than the disk holds"


class DiskFull(Exception):
    """The disk has no room for what the worker itself must write; one sentence says so."""


class TooMuch(Exception):
    """The code has left more than may be taken; one sentence says of what."""


def make_own(path: Path) -> None:
    """Make a directory that the code may read and the worker alone may change.

    From the directory around it comes the group, which is the code's.
    """
    # Not by pathlib, which takes longer: each job has some.
    os.mkdir(path, 0o750)  # noqa: PTH102 - as said


def make_shared(path: Path) -> None:
    """Make a directory that the code may write; what is made in it belongs to the same group."""
    make_own(path)
    open_to_code(path)


def open_to_code(path: Path) -> None:
    """Let the code write a directory that lies in one of the worker's own."""
    path.chmod(0o2770)


def make_shared_in(folder: Path, name: str) -> None:
    """See to it that a directory of this name is in a directory that the code may write."""
    with _closing(os.open(folder, _DIRECTORY)) as opened:
        try:
            os.mkdir(name, 0o750, dir_fd=opened)
        except FileExistsError:
            # The code's own. What it ends at, should it be a link, is nothing that we make.
            return
        with _closing(os.open(name, _DIRECTORY, dir_fd=opened)) as made:
            os.fchmod(made, 0o2770)


def check_amount(sizes: Collection[int], folder: Path) -> None:
    """Check that files of these sizes may be taken to a directory (raises TooMuch).

    More than its file system holds cannot lie there, so files that claim more are sparse ones, or
    one file by many names: of a byte of disk they would make a terabyte in S3.
    """
    if len(sizes) > ENTRIES_MAX:
        raise TooMuch(_TOO_MANY)
    system = os.statvfs(folder)
    if sum(sizes) > system.f_blocks * system.f_frsize:
        raise TooMuch(_TOO_LARGE)


def check_room(folder: Path) -> None:
    """Check that the worker itself can still write (raises DiskFull)."""
    system = os.statvfs(folder)
    bytes_left = system.f_bavail * system.f_frsize
    # A file system without a fixed number of files has none of them.
    files_left = system.f_favail if system.f_files else _FILES_RESERVED
    if bytes_left < _BYTES_RESERVED or files_left < _FILES_RESERVED:
        raise DiskFull(
            f"the disk is full: {bytes_left // 1024**2} MiB and {files_left} files are left of it"
        )


def list_files(root: Path) -> list[str]:
    """Return the files below a directory, relative and sorted; links are left out.

    ``root`` may itself be the code's, and lies in a directory that is not. Raises TooMuch.
    """
    return sorted(path for path, _ in _walk(root))


def stamp_files(root: Path) -> Mapping[str, Stamp]:
    """Return the files below a directory, relative, with what tells a change (raises TooMuch)."""
    return {path: stamp_of(status) for path, status in _walk(root)}


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below a directory, in no order (raises TooMuch)."""
    try:
        top = os.open(root, _DIRECTORY)
    except OSError as exc:
        _raise_fault(exc)
        return
    entries = 0
    pending: list[tuple[str, ...]] = [()]
    with _closing(top):
        while pending:
            parts = pending.pop()
            try:
                folder = _open_below(top, parts)
            except OSError as exc:
                _raise_fault(exc)
                continue
            with _closing(folder), os.scandir(folder) as found:
                for entry in found:
                    entries += 1
                    if entries > ENTRIES_MAX:
                        raise TooMuch(_TOO_MANY)
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            yield "/".join((*parts, entry.name)), status
                        elif stat.S_ISDIR(status.st_mode) and len(parts) < _DEPTH_MAX:
                            pending.append((*parts, entry.name))
                        elif stat.S_ISDIR(status.st_mode):
                            raise TooMuch(_TOO_DEEP)


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
    parts = (*root.relative_to(below).parts, *path.parts[:-1])
    try:
        with _closing(_open_folder(below, parts)) as folder:
            _bring(folder, path.name, into)
            status = into.lstat()
    except OSError as exc:
        _raise_fault(exc)
        return None
    if not stat.S_ISREG(status.st_mode):
        into.unlink()
        return None
    return status


def remove_entries(root: Path, names: Iterable[str]) -> None:
    """Remove what has these names in a directory, as far as that can be done.

    ``root`` may be the code's, and lies in a directory that is not. Nothing that a link leads to
    is removed. One listing tells what is there at all, unless the directory holds more than it may.
    """
    with suppress(OSError), _closing(os.open(root, _DIRECTORY)) as folder:
        with os.scandir(folder) as found:
            there = {entry.name for entry in islice(found, ENTRIES_MAX)}
        for name in names:
            if name in there or len(there) == ENTRIES_MAX:
                _remove(folder, name)


def remove_tree(path: Path) -> None:
    """Remove what is at a path in a directory of the worker's own, as far as that can be done."""
    with suppress(OSError), _closing(os.open(path.parent, _DIRECTORY)) as folder:
        _remove(folder, path.name)


def _remove(folder: int, name: str) -> None:
    """Remove an entry of a directory; what is nested too deep is moved up first."""
    pending, numbers = [name], count()
    while pending:
        one = pending.pop()
        if _remove_empty(one, folder):
            continue
        try:
            opened = os.open(one, _DIRECTORY, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError:
            with suppress(OSError):
                os.unlink(one, dir_fd=folder)
            continue
        with _closing(opened):
            pending += _clear(opened, folder, name, numbers, depth=1)
        with suppress(OSError):
            os.rmdir(one, dir_fd=folder)


def _remove_empty(name: str, folder: int) -> bool:
    """Remove a directory if it is empty, as most are; tell whether that was done."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _clear(folder: int, aside: int, name: str, numbers: Iterator[int], *, depth: int) -> list[str]:
    """Remove the entries of a directory; return the names of what was moved to ``aside``."""
    moved: list[str] = []
    for _ in range(_READINGS_MAX):
        with os.scandir(folder) as found:
            entries = list(islice(found, _REMOVED_AT_ONCE))
        gone = 0
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                elif depth == _DEPTH_MAX:
                    up = f"{name[:64]}.deep-{os.getpid()}-{next(numbers)}"
                    os.rename(entry.name, up, src_dir_fd=folder, dst_dir_fd=aside)
                    moved.append(up)
                elif not _remove_empty(entry.name, folder):
                    with _closing(os.open(entry.name, _DIRECTORY, dir_fd=folder)) as opened:
                        moved += _clear(opened, aside, name, numbers, depth=depth + 1)
                    os.rmdir(entry.name, dir_fd=folder)
                gone += 1
        if not gone:
            break
    return moved


def _raise_fault(error: OSError) -> None:
    if error.errno in _OF_THE_MACHINE:
        raise error


def _open_folder(root: Path, parts: tuple[str, ...]) -> int:
    with _closing(os.open(root, _DIRECTORY)) as folder:
        return _open_below(folder, parts)


def _open_below(folder: int, parts: tuple[str, ...]) -> int:
    """Open a directory below an open one, step by step without following a link."""
    opened = os.dup(folder)
    for part in parts:
        with _closing(opened):
            opened = os.open(part, _DIRECTORY, dir_fd=opened)
    return opened


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    """Close an open file at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
