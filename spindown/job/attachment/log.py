"""What the code of one attempt printed, kept beside the job's results."""

from collections.abc import Iterator

from spindown.contract.job.result import log_key, log_prefix
from spindown.port import ObjectStore


def keep_log(job_id: str, epoch: int, text: bytes, objects: ObjectStore) -> None:
    """Keep the output of one attempt; no output is no object."""
    if text:
        objects.put(log_key(job_id, epoch), text)


def read_logs(job_id: str, objects: ObjectStore) -> Iterator[tuple[int, str]]:
    """Yield (epoch, output) of each attempt that printed anything, oldest first."""
    prefix = log_prefix(job_id)
    for found in objects.list(prefix):
        epoch = found.key[len(prefix) :].partition(".")[0]
        if epoch.isdecimal():
            yield int(epoch), objects.get(found.key).data.decode(errors="replace")
