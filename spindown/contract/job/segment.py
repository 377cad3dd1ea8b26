"""A segment: the list of some parts of a job, in an immutable object of its own.

A manifest lists the newest parts itself. When they are many, who commits next seals them: the
list goes into a segment, which names the one before it, and the manifest names the last of them.
So a commit costs the same however many there were before it.
"""

import json
from dataclasses import dataclass

from spindown.contract.codec import decode, encode, to_json
from spindown.contract.job.manifest import Part, Segment
from spindown.contract.job.result import part_stem
from spindown.error import ContractError

#: Parts that a manifest lists before they are sealed: 20 KB, which S3 takes as quickly as less.
PARTS_LISTED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PartList:
    """What a segment holds."""

    parts: tuple[Part, ...]
    #: None: these are the first.
    before: Segment | None = None


def segment_key(job_id: str, epoch: int, first: int, last: int) -> str:
    """Return the S3 key of a segment over items ``first`` to ``last``, both included.

    It holds the epoch that sealed it, as that of a part does.
    """
    return f"{part_stem(job_id, epoch, first, last)}.segment.json"


def encode_segment(listed: PartList) -> bytes:
    """Return the object's bytes, the same for the same list."""
    return to_json(encode(listed)).encode()


def decode_segment(data: bytes) -> PartList:
    """Read the object (raises ContractError)."""
    try:
        row = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ContractError("segment", data[:100], "it is not JSON") from exc
    return decode(PartList, row)
