"""The user's code on this machine: fetched once, unpacked without leaving its directory."""

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from spindown.contract.run_spec import RUN_SPEC_NAME, RunSpec, decode_run_spec
from spindown.error import ContractError

_OWNER_EXECUTES = 0o100
_EXECUTABLE = 0o110


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Unpacked code: where it lies, how it is called, and which version it is."""

    root: Path
    spec: RunSpec
    digest: str


def fetch_code(uri: str, fetch: Callable[[str, Path], None], scratch: Path) -> Code:
    """Fetch and unpack the archive of a workload (raises NotFound, ContractError).

    Its name is the SHA-256 of its bytes: whoever can write to where it lies chooses no other code.
    """
    digest = PurePosixPath(uri).stem
    scratch.mkdir(parents=True, exist_ok=True)
    archive, root = scratch / "code.zip", scratch / "code"
    fetch(uri, archive)
    with archive.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != digest:
            raise ContractError("code", uri, "deploy again: its bytes are not those of its name")
    unpack(archive, root)
    spec_path = root / RUN_SPEC_NAME
    if not spec_path.is_file():
        raise ContractError("code", uri, f"deploy again: the archive has no {RUN_SPEC_NAME}")
    return Code(root=root, spec=decode_run_spec(spec_path.read_bytes()), digest=digest)


def has_code(code: Code) -> bool:
    """Tell whether the archive holds anything besides how to call it."""
    return any(path.name != RUN_SPEC_NAME for path in code.root.iterdir())


def unpack(archive: Path, root: Path) -> None:
    """Unpack a zip file below ``root``; refuse it whole if one name would leave it."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts or "\\" in name:
                    raise ContractError("code", name, "deploy again: it leaves the archive")
            for info in opened.infolist():
                made = Path(opened.extract(info, root))
                if not info.is_dir() and (info.external_attr >> 16) & _OWNER_EXECUTES:
                    made.chmod(made.stat().st_mode | _EXECUTABLE)
    except zipfile.BadZipFile as exc:
        raise ContractError("code", archive.name, "deploy again: it is not a zip file") from exc
