"""Fetch the files that items have left, each under the name that its code gave it.

A worker wrote those names, so each is checked: none leads out of its folder, none takes the place
of another file unless the caller says so, and none makes the folder a repository, whose settings
run programs as soon as a prompt or an editor asks for its status. Objects are streamed to the disk.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import category

from spindown.contract.codec import decode
from spindown.contract.job.result import OutputFile, parts_prefix
from spindown.contract.location import is_whole
from spindown.contract.pack import is_hidden
from spindown.error import BadInput, ContractError, NotFound
from spindown.port import ObjectStore

_FETCHES_AT_ONCE = 8
_RECORDS_AT_ONCE = 64
_REMEDY = "its name is no path below the folder of its item; read the object itself"
_HIDDEN = "its name has characters that do not show; read the object itself"
_REPOSITORY = "its name makes the folder a repository; read the object itself"
_UNSEEN = "its name is hidden, so it would not be seen here; read the object itself"
#: What some disk takes for one (verify_path in git's read-cache.c and is_ntfs_dotgit in its path.c
#: know of blanks, dots, streams and short names), or, without a folder of its own, its first file.
_OF_REPOSITORY = re.compile(
    r"(?:^|[/\\])(?:(?:\.(?:git|hg|sl|jj)|(?:git|hg|sl|jj)~1)[. ]*(?:[/\\:]|$)|head[. ]*(?::|$))",
    re.IGNORECASE,
)
_TAKEN = "another file has this place; fetch into an empty folder, or overwrite it"
_DAMAGED = "restore it: it is gone, or its bytes are not the committed ones"


def fetch_outputs(
    records: Iterable[tuple[Mapping[str, Any], Path]],
    store: ObjectStore,
    *,
    may_replace: bool = False,
    may_hide: bool = True,
) -> Iterator[tuple[Mapping[str, Any], Sequence[Path | BadInput]]]:
    """Download the files of records; yield each record with its files, or why one is missing.

    A file that is there already with the committed bytes is not downloaded again.

    Args:
        records: as they were read, each with the folder of its item.
        store: their workload's.
        may_replace: whether a file with other bytes may lose its place.
        may_hide: whether a name may be hidden: a folder of a person's own has settings there, which
            run programs.
    """
    rest = iter(records)
    with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
        while some := list(islice(rest, _RECORDS_AT_ONCE)):
            begun = [
                (
                    record,
                    [
                        pool.submit(
                            _fetch,
                            output,
                            folder,
                            store,
                            may_replace=may_replace,
                            may_hide=may_hide,
                        )
                        for output in _read_outputs(record)
                    ],
                )
                for record, folder in some
            ]
            for record, fetches in begun:
                yield record, [fetch.result() for fetch in fetches]


def _read_outputs(record: Mapping[str, Any]) -> Iterator[OutputFile | BadInput]:
    """Yield the files that a record names, each once, or what is wrong with one."""
    outputs = record.get("outputs")
    if not isinstance(outputs, list):
        return
    below, taken = parts_prefix(str(record.get("job_id"))), set[str]()
    for row in outputs:
        try:
            output = decode(OutputFile, row if isinstance(row, dict) else {})
        except ContractError as exc:
            yield exc
            continue
        if not output.key.startswith(below):
            yield ContractError("output", output.key, "it is not an object of its job")
        elif output.path in taken:
            yield ContractError("output", output.path, "its record names it twice")
        else:
            taken.add(output.path)
            yield output


def place_of(folder: Path, name: str, *, may_hide: bool = True) -> Path:
    """Return where a file of this name goes below a folder.

    Raises:
        BadInput: the name leads out of it, does not show as it is, is hidden though it must not be,
            or would make the folder a repository; or no disk can hold it.
    """
    parts = name.split("/")
    if not is_whole(name) or "\0" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise BadInput("output", name, _REMEDY)
    # Blanks of other scripts are no risk, and names of honest files have them.
    if not all(c.isprintable() or category(c) == "Zs" for c in name):
        raise BadInput("output", name, _HIDDEN)
    if _OF_REPOSITORY.search(name):
        raise BadInput("output", name, _REPOSITORY)
    # Some disks take a backslash for a slash.
    if not may_hide and is_hidden(PurePosixPath(name.replace("\\", "/"))):
        raise BadInput("output", name, _UNSEEN)
    path = folder.joinpath(*parts)
    # A person may have put a link there.
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise BadInput("output", name, _REMEDY)
    return path


def _fetch(
    output: OutputFile | BadInput,
    folder: Path,
    store: ObjectStore,
    *,
    may_replace: bool,
    may_hide: bool,
) -> Path | BadInput:
    if isinstance(output, BadInput):
        return output
    try:
        path = place_of(folder, output.path, may_hide=may_hide)
        return _put(output, path, store, may_replace=may_replace)
    except BadInput as exc:
        return exc
    except NotFound:
        return ContractError("output", output.key, _DAMAGED)
    except OSError as exc:
        return BadInput("output", output.path, f"it has no place here ({exc.strerror})")


def _put(output: OutputFile, path: Path, store: ObjectStore, *, may_replace: bool) -> Path:
    if os.path.lexists(path):
        if path.is_file() and not path.is_symlink() and digest_of(path) == output.sha256:
            return path
        if path.is_dir() or not may_replace:
            raise BadInput("output", str(path), _TAKEN)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".spindown-", dir=path.parent) as made:
        arrived = Path(made, "file")
        store.get_file(output.key, arrived)
        if digest_of(arrived) != output.sha256:
            raise ContractError("output", output.key, _DAMAGED)
        arrived.replace(path)
    return path


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
