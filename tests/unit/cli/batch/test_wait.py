"""Who waits for jobs is told how far they are, and waits through silence of AWS."""

import pytest

from spindown.cli.render.bar import open_lines
from spindown.cli.wait import is_well, wait_for
from spindown.contract.job.manifest import JobState, Manifest, Part, encode_manifest, manifest_key
from spindown.ec2sim import MemoryClock
from spindown.error import Unreachable
from spindown.memory.store import MemoryObjectStore
from spindown.port import StoredObject


class Store(MemoryObjectStore):
    """A store whose next answer may be missing."""

    is_silent = False

    def get(
        self, key: str, *, version: str | None = None, at_most_bytes: int | None = None
    ) -> StoredObject:
        """Read an object, or say nothing once."""
        if self.is_silent:
            self.is_silent = False
            raise Unreachable("no answer")
        return super().get(key, version=version, at_most_bytes=at_most_bytes)


def test_waits_until_all_jobs_are_over(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(MemoryClock())
    looks = 0

    def leave(job_id: str, state: JobState, failed: int = 0) -> None:
        part = Part(key="k", first=0, last=3, bytes=1, sha256="", failed=failed)
        manifest = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=state, items=4)
        done = Manifest(**{**vars(manifest), "parts": (part,)})
        store.put(manifest_key(job_id), encode_manifest(done))

    def pause() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            store.is_silent = True
        leave("b", JobState.COMPLETED if looks > 2 else JobState.RUNNING, failed=looks)

    leave("a", JobState.COMPLETED)
    ends = wait_for(["a", "b"], store, pause=pause)

    assert looks == 3
    assert {name: end.items_failed for name, end in ends.items()} == {"a": 0, "b": 3}
    assert (is_well({"a": ends["a"]}), is_well(ends)) == (True, False)
    assert "3 items failed" in capsys.readouterr().err


def test_a_file_is_told_now_and_then_also_of_nothing_new(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter([0.0, 1.0, 70.0, 90.0, 101.0])
    with open_lines(lambda: next(seconds)) as show:
        for words in ("at once", "none", "none", "none"):
            show(words, 0, None)

    assert capsys.readouterr().err.splitlines() == [
        "spindown:  70 s  none",
        "spindown: 101 s  none",
    ]
