"""The directory that holds what a local system leaves on the disk, for one system at a time."""

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spindown.error import BadInput

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class StateDirectory:
    """Logs, the AWS profile, guests' directories, and the word of who runs here."""

    def __init__(self, path: Path) -> None:
        """Use `path`, which is made when it is first held."""
        self.path = path.resolve()
        self.pid = os.getpid()

    @property
    def profile_path(self) -> Path:
        """The AWS config file for the local system."""
        return self.path / "aws-config"

    def log_path(self, name: str) -> Path:
        """Return the path of a log."""
        return self.path / f"{name}.log"

    @property
    def _lock_path(self) -> Path:
        return self.path / "system.json"

    def make(self) -> None:
        """Make the directory; raise `BadInput` when that is not possible or it takes no file."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                return
        except OSError as exc:
            remedy = f"give a directory that can be written ({exc.strerror})"
            raise BadInput("state directory", str(self.path), remedy) from exc

    @property
    def size(self) -> int:
        """Return the bytes of all files in it."""
        return sum(each.lstat().st_size for each in self.path.rglob("*") if each.is_file())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory; raise `BadInput` when it cannot be, or another local system does.

        The lock is the kernel's, so it ends with the process, however that ends.
        """
        self.make()
        handle = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _locked(handle):
                raise BadInput(
                    "state directory",
                    str(self.path),
                    "a local system runs there already: run `spindown local down` first",
                )
            os.truncate(handle, 0)
            with self._log():
                yield
        finally:
            os.close(handle)

    def tell(self, **facts: str) -> None:
        """Write down where the system that holds the directory is found."""
        self._lock_path.write_text(json.dumps({**facts, "pid": self.pid}), encoding="utf-8")

    def holder(self) -> dict[str, Any] | None:
        """Return what the system that holds the directory told, None when none does.

        A system that is still starting has told nothing: an empty dictionary.
        """
        try:
            handle = os.open(self._lock_path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            if _locked(handle):
                return None
            text = os.read(handle, 64 * 1024)
            holder: dict[str, Any] = json.loads(text) if text else {}
            return holder
        finally:
            os.close(handle)

    @contextmanager
    def _log(self) -> Iterator[None]:
        handler = logging.FileHandler(self.log_path("system"), mode="w", encoding="utf-8")
        handler.setFormatter(logging.Formatter(_FORMAT))
        root, own = logging.getLogger(), logging.getLogger("spindown.local")
        root.addHandler(handler)
        own.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.removeHandler(handler)
            handler.close()


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
