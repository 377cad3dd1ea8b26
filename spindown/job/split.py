"""Split a job that is too large into children with ids of their own.

Every step is repeatable: the children's number is pinned in the parent's manifest before the
first child exists, so whoever goes on after a crash makes the very same ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import (
    JobMessage,
    child_id,
    encode_job,
    encode_stored,
    stored_key,
)
from spindown.domain.policy import Policy
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit_as
from spindown.job.manifest_store import write_patiently
from spindown.job.message import carried
from spindown.port import Outgoing, WorkPorts


def is_too_large(held: ClaimedJob, items: Sequence[Any], policy: Policy) -> bool:
    """Tell whether a job must be split; one whose split was begun must be split on."""
    return bool(held.manifest.children) or (
        held.manifest.next_item == 0 and len(items) > policy.max_items_per_job
    )


def split(
    held: ClaimedJob, items: Sequence[Any], *, ports: WorkPorts, policy: Policy
) -> ClaimedJob:
    """Make the children, send their messages, then close the parent (raises LeaseLost).

    The parent's message is deleted afterwards, as that of any job that is over.
    """
    held = _pin(held, len(items), policy, ports)
    children = held.manifest.children
    messages = []
    for number, child in enumerate(children):
        share = items[_bound(number, items, children) : _bound(number + 1, items, children)]
        messages.append(_store_child(held, child, tuple(share), ports))
    ports.queue.send(messages)
    closed = replace(
        held.manifest, state=JobState.SPLIT, released=True, finished_at=ports.clock.now()
    )
    return commit_as(closed, held, ports)


def _pin(held: ClaimedJob, count: int, policy: Policy, ports: WorkPorts) -> ClaimedJob:
    """Write down how many children there are, unless an earlier attempt has."""
    if held.manifest.children:
        return held
    number = -(-count // policy.max_items_per_job)
    children = tuple(child_id(held.job_id, n) for n in range(number))
    return commit_as(replace(held.manifest, items=count, children=children), held, ports)


def _bound(number: int, items: Sequence[Any], children: Sequence[str]) -> int:
    """Return where the share of a child begins: shares differ by one item at most."""
    return number * len(items) // len(children)


def _store_child(
    held: ClaimedJob, child: str, share: tuple[Any, ...], ports: WorkPorts
) -> Outgoing:
    """Store what a child is asked for, the same at every attempt; return its message."""
    body = JobMessage(
        items=share,
        job_id=child,
        batch_id=held.job.batch_id,
        tenant=held.job.tenant,
        parent=held.job_id,
        params=held.job.params,
        type=held.job.type,
        requirements=held.job.requirements,
    )
    data, job = encode_stored(body)
    key = stored_key(child, job.stored or "")
    write_patiently(lambda: ports.objects.put(key, data), ports)
    return Outgoing(
        body=encode_job(job),
        tenant=held.job.tenant or held.message.tenant,
        # It goes to its parent's queue, which is that of this size.
        attributes=carried(held.message),
    )
