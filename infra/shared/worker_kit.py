"""What instances make workers of: a wheel of the worker's part of Spindown, locks, scripts, units.

Made of the files of this installation, be it a wheel or a checkout. Equal files give equal bytes.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import spindown
from spindown import __version__
from spindown.contract.pack import Member, pack_members

#: The installed package, which is also in a checkout the one tree that holds all that is deployed.
PACKAGE = Path(spindown.__file__).parent

#: What the worker imports, and what the code of users does (``user.py``, ``client/function.py``).
WORKER_PARTS = (
    "__init__.py",
    "aws",
    "client/__init__.py",
    "client/function.py",
    "client/item.py",
    "client/mapper.py",
    "client/option.py",
    "client/progress.py",
    "client/stream.py",
    "contract",
    "domain",
    "error.py",
    "job",
    "ledger",
    "port.py",
    "user.py",
    "reason_text.py",
    "worker",
)
#: What the instance installs, with hashes.
_LOCKS = ("bootstrap.txt", "worker.txt")

_INFO = f"spindown-{__version__}.dist-info"
_METADATA = f"Metadata-Version: 2.1\nName: spindown\nVersion: {__version__}\n"
_TAG = "Wheel-Version: 1.0\nGenerator: spindown\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def files_of(parts: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of these parts of the package in a fixed order; each must exist."""
    for part in parts:
        path = PACKAGE / part
        if not path.is_dir():
            yield path
            continue
        found = sorted(path.rglob("*"))
        yield from (one for one in found if one.is_file() and "__pycache__" not in one.parts)


def kit_members() -> Mapping[str, Member]:
    """Return the files of the kit, by their names in it."""
    found = {f"system/{path.name}": path for path in files_of(("worker/system",))}
    found |= {f"locks/{name}": PACKAGE / "locks" / name for name in _LOCKS}
    members = {name: Member(data=path.read_bytes()) for name, path in found.items()}
    wheel = f"wheels/spindown-{__version__}-py3-none-any.whl"
    return {**members, wheel: Member(data=worker_wheel())}


def pack_kit() -> bytes:
    """Return the archive of the kit."""
    return pack_members(kit_members())


def worker_wheel() -> bytes:
    """Return the worker's part of Spindown as a wheel (PyPA, "Binary distribution format")."""
    root = PACKAGE.parent
    files = {str(path.relative_to(root)): path.read_bytes() for path in files_of(WORKER_PARTS)}
    files[f"{_INFO}/METADATA"] = _METADATA.encode()
    files[f"{_INFO}/WHEEL"] = _TAG.encode()
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{_INFO}/RECORD"] = f"{record}{_INFO}/RECORD,,\n".encode()
    return pack_members({name: Member(data=data) for name, data in files.items()})


def _digest(data: bytes) -> str:
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={found.decode().rstrip('=')}"
