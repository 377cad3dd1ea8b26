"""The records of a part, as whoever reads the bucket finds them."""

import json

from spindown.contract.codec import decode
from spindown.contract.job.result import Record


def decode_part(data: bytes) -> tuple[Record, ...]:
    """Return the records of a part, in its order."""
    return tuple(decode(Record, json.loads(line)) for line in data.splitlines())
