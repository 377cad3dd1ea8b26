"""What is learned of the sizes of jobs: one object a workload, which the hourly function writes.

``sizes/{workload}.json``. Sizes are decided in ``domain.rightsizing.type_size``. No worker can
write it; ``intake`` reads it if the policy applies it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from spindown.contract.codec import decode, encode, from_json, to_json
from spindown.domain.rightsizing.type_size import TypeHistory, TypeSize
from spindown.error import ContractError

PREFIX = "sizes/"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedSizes:
    """What was decided for each type of a workload, and what it was decided from."""

    #: Records that were written before this instant are counted; None: none was looked for.
    read_to: datetime | None = None
    #: And at this instant those of keys up to this one: an hour had more than are read at once.
    read_key: str = ""
    sizes: Mapping[str, TypeSize] = field(default_factory=dict)
    histories: Mapping[str, TypeHistory] = field(default_factory=dict)
    schema: int = SCHEMA


def sizes_key(workload: str) -> str:
    """Return the key of a workload's object."""
    return f"{PREFIX}{workload}.json"


def encode_sizes(learned: LearnedSizes) -> bytes:
    """Return the object."""
    return to_json(encode(learned)).encode()


def decode_sizes(data: bytes) -> LearnedSizes:
    """Read the object (raises ContractError)."""
    learned = decode(LearnedSizes, from_json(PREFIX, data))
    if learned.schema != SCHEMA:
        raise ContractError("LearnedSizes.schema", learned.schema, f"this version reads {SCHEMA}")
    return learned
