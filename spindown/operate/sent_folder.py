"""Send a folder with its command, and find again what came of it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from spindown.contract.folder import (
    COMMAND_NAME,
    EXIT_STATUS,
    FOLDER_BYTES,
    encode_command,
    folder_key,
)
from spindown.contract.pack import Member, is_left_out, pack_members
from spindown.error import BadInput
from spindown.port import ObjectStore

_ANY_EXECUTE = 0o111
#: Where outputs are fetched to, and so no part of what is sent.
OUTPUTS = "outputs"
_SIZE = f"keep its files within {FOLDER_BYTES // 1024**2} MiB, or read large ones from S3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder as it is sent."""

    archive: bytes
    files: int
    #: Hidden files and what tools write, by their relative names.
    left_out: Sequence[str]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the archive."""
        return hashlib.sha256(self.archive).hexdigest()


def pack_folder(root: Path, command: Sequence[str]) -> Folder:
    """Pack the files of a folder with the command that is run in it; hidden ones are left out.

    Raises:
        BadInput: it is no folder, is too large, has a link that leads out of it, to no file or to
            one that is left out, or a file that cannot be read.
    """
    if not root.is_dir():
        raise BadInput("--folder", str(root), "name a folder")
    top = root.resolve()
    members = {COMMAND_NAME: Member(data=encode_command(list(command)))}
    left_out: list[str] = []
    size = 0
    for path in sorted(root.rglob("*")):
        name = PurePosixPath(path.relative_to(root).as_posix())
        if name.parts[0] == OUTPUTS or not (path.is_file() or path.is_symlink()):
            continue
        if is_left_out(name):
            left_out.append(str(name))
            continue
        target = path.resolve()
        if (
            not path.is_file()
            or not target.is_relative_to(top)
            or is_left_out(PurePosixPath(target.relative_to(top).as_posix()))
        ):
            raise BadInput("--folder", str(name), "replace this link by what it points at")
        size += path.stat().st_size
        if size > FOLDER_BYTES:
            raise BadInput("--folder", str(root), _SIZE)
        try:
            data = path.read_bytes()
        except OSError as exc:
            raise BadInput("--folder", str(name), f"make it readable ({exc.strerror})") from exc
        is_executable = bool(path.stat().st_mode & _ANY_EXECUTE)
        members[str(name)] = Member(data=data, is_executable=is_executable)
    return Folder(archive=pack_members(members), files=len(members) - 1, left_out=left_out)


def send_folder(folder: Folder, workload: str, bucket: str, objects: ObjectStore) -> str:
    """Store a folder where only such folders lie; return its address.

    One that was sent before is written again, since the bucket drops folders by age.
    """
    key = folder_key(workload, folder.digest)
    objects.put(key, folder.archive)
    return f"s3://{bucket}/{key}"


def exit_status(record: Mapping[str, Any]) -> int | None:
    """Return the exit status that a record tells; None: the command has none."""
    result = record.get("result")
    status = result.get(EXIT_STATUS) if isinstance(result, dict) else None
    return status if isinstance(status, int) and not isinstance(status, bool) else None
