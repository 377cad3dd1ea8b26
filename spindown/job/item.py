"""Settle what the items of a job are, once and for good.

Results are known by the index of their item, so a listing or an object that changes between
two attempts must not move the items: the first claimer stores what it has read.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from spindown.contract.job.message import (
    ITEMS_MAX,
    JobMessage,
    encode_items,
    items_key,
    parse_items,
)
from spindown.error import (
    AccessDenied,
    ContractError,
    NotFound,
    PreconditionFailed,
    Unreadable,
)
from spindown.job.manifest_store import write_patiently
from spindown.port import Absent, WorkPorts

#: A million items of 250 bytes; what a worker can hold in memory beside the user's code.
LIST_BYTES_MAX = 256 * 1024 * 1024


def settle_items(
    job: JobMessage, ports: WorkPorts, *, at_most_bytes: int = LIST_BYTES_MAX
) -> tuple[Any, ...]:
    """Return the items of a claimed job, the same at every attempt.

    Only its claimer may call this: another message of the same id may name other items.
    ``at_most_bytes`` bounds its list, or what a prefix lists.

    Raises:
        ContractError: the list is not there, not declared, too large or not JSON lines.
    """
    if job.items is not None:
        return job.items
    key = items_key(job.job_id or "")
    with suppress(NotFound):
        return parse_items(ports.objects.get(key).data, key)
    items = _read_source(job, ports, at_most_bytes)
    if store_items(key, items, ports):
        return items
    return parse_items(ports.objects.get(key).data, key)


def look_at_items(job: JobMessage, ports: WorkPorts) -> tuple[Any, ...]:
    """Return the items that a message names now; nothing is settled.

    Raises:
        ContractError: as ``settle_items`` does.
    """
    return _read_source(job, ports, LIST_BYTES_MAX) if job.items is None else job.items


def store_items(key: str, items: Sequence[Any], ports: WorkPorts) -> bool:
    """Store a list unless one lies there already; tell whether it is this one.

    Raises:
        Unreachable: others have written the object at every try, or S3 gives no answer.
    """
    data = encode_items(items)
    try:
        write_patiently(lambda: ports.objects.put(key, data, condition=Absent()), ports)
    except PreconditionFailed:
        return False
    return True


def _read_source(job: JobMessage, ports: WorkPorts, at_most_bytes: int) -> tuple[Any, ...]:
    name, uri = (
        ("items_uri", job.items_uri) if job.items_uri else ("prefix_uri", job.prefix_uri or "")
    )
    try:
        if job.items_uri:
            return parse_items(ports.inputs.read(uri, at_most_bytes=at_most_bytes), uri)
        return tuple(_list(uri, ports, at_most_bytes))
    except NotFound:
        raise ContractError(name, uri, "put the object there, then redrive the job") from None
    except Unreadable:
        remedy = "restore it from the archive or enable its key, then redrive the job"
        raise ContractError(name, uri, remedy) from None
    except AccessDenied:
        remedy = "declare its prefix under the workload's inputs, deploy, then redrive the job"
        raise ContractError(name, uri, remedy) from None


def _list(uri: str, ports: WorkPorts, at_most_bytes: int) -> Iterator[str]:
    size = count = 0
    for found in ports.inputs.list(uri):
        # Consoles create empty objects whose key ends in a slash, to show a folder.
        if found.endswith("/"):
            continue
        size, count = size + len(found), count + 1
        if size > at_most_bytes or count > ITEMS_MAX:
            most = f"{at_most_bytes} bytes and {ITEMS_MAX} in number"
            raise ContractError("prefix_uri", uri, f"name prefixes with keys of at most {most}")
        yield found
