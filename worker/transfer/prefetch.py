"""Fetch the inputs of the next batch while the present one computes."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.error import AccessDenied, ContractError, NotFound
from spindown.port import InputSource
from spindown.user import Item
from spindown.worker.code_folder import make_own, remove_tree

_SCHEME = "s3://"
_UNSAFE = re.compile(r"[^\w.-]")
#: A file's name has 255 at most (Linux, limits.h, NAME_MAX).
_NAME_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBatch:
    """Items that are ready to be computed, and those whose input cannot be had."""

    items: tuple[Item, ...]
    #: Index -> why.
    failed: dict[int, str]
    #: Index -> bytes that came for it.
    sizes: Mapping[int, int]


class Prefetch:
    """Brings the inputs of one job's items to this machine, one batch ahead."""

    def __init__(
        self, values: Sequence[Any], *, inputs: InputSource, scratch: Path, executor: Executor
    ) -> None:
        self.values = values
        self._inputs = inputs
        self._scratch = scratch
        self._executor = executor
        self._has_remote = any(_is_remote(value) for value in values)
        self._coming: dict[range, Future[InputBatch]] = {}
        #: Nobody wants any of it any more.
        self._is_over = False

    def begin(self, indexes: range) -> None:
        """Start to fetch a batch, unless that was done."""
        if self._has_remote and indexes not in self._coming:
            if not self._scratch.exists():
                make_own(self._scratch)
            self._coming[indexes] = self._executor.submit(self._bring, indexes)

    def is_ready(self, indexes: range, timeout: timedelta) -> bool:
        """Tell whether a batch has come within ``timeout``."""
        if not self._has_remote:
            return True
        self.begin(indexes)
        return not wait([self._coming[indexes]], timeout.total_seconds()).not_done

    def take(self, indexes: range) -> InputBatch:
        """Return a batch, waiting for it.

        Raises:
            Unreachable: S3 gives no answer, which says nothing about the items.
        """
        if not self._has_remote:
            items = tuple(Item(index, self.values[index]) for index in indexes)
            return InputBatch(items=items, failed={}, sizes={})
        self.begin(indexes)
        return self._coming.pop(indexes).result()

    def clear(self, indexes: range) -> None:
        """Remove the local copies of a batch."""
        if self._has_remote:
            for index in indexes:
                remove_tree(self._scratch / str(index))

    def remove(self) -> None:
        """Remove all local copies; one that is still under way is removed when it has come."""
        self._is_over = True
        for coming in self._coming.values():
            coming.cancel()
        if self._has_remote:
            remove_tree(self._scratch)

    def _bring(self, indexes: range) -> InputBatch:
        try:
            return self._fetch(indexes)
        finally:
            if self._is_over:
                remove_tree(self._scratch)

    def _fetch(self, indexes: range) -> InputBatch:
        items, failed = [], {}
        for index in indexes:
            if self._is_over:
                break
            try:
                items.append(self._fetch_item(index))
            except NotFound:
                failed[index] = f"{self.values[index]} is not there"
            except (AccessDenied, ContractError) as exc:
                failed[index] = str(exc)
        sizes = {item.index: item.path.stat().st_size for item in items if item.path is not None}
        return InputBatch(items=tuple(items), failed=failed, sizes=sizes)

    def _fetch_item(self, index: int) -> Item:
        value = self.values[index]
        if not _is_remote(value):
            return Item(index, value)
        directory = self._scratch / str(index)
        if not directory.exists():
            make_own(directory)
        safe = _UNSAFE.sub("_", value.rpartition("/")[2]).encode(errors="replace")
        name = safe[-_NAME_BYTES:].decode(errors="ignore").lstrip(".")
        path = directory / (name or "input")
        self._inputs.fetch(value, path)
        return Item(index, value, path)


def _is_remote(value: object) -> bool:
    return isinstance(value, str) and value.startswith(_SCHEME)
