"""The spot advisor: what AWS publishes about how often spot instances are reclaimed.

An undocumented file that AWS keeps for its own web page (aws.amazon.com/ec2/spot/
instance-advisor), read by one plain GET without credentials. It may change or vanish, so every
value is checked, and nothing depends on it: without it a pool keeps its prior.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from http.client import HTTPException
from itertools import pairwise
from typing import Any

from spindown.contract.codec import from_json
from spindown.error import ContractError, Unreachable
from spindown.port import Clock

URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"

#: Bytes; the file of 2025 has two million.
LARGEST = 16 * 1024 * 1024
_CHUNK = 256 * 1024
#: Of one network operation, and of all of them.
_TIMEOUT_SECONDS = 5.0
_PATIENCE = timedelta(seconds=20)
#: Several regions are asked for one after the other.
_KEPT_FOR = timedelta(minutes=5)
#: The worst bucket has no upper limit ("more than 20 %"); its share is taken to be 1.5 times
#: its lower limit.
_OPEN_BUCKET = 1.5

_REMEDY = "check whether AWS has changed the file; until then the last good shares are used"


class SpotAdvisor:
    """Advisor on the file behind AWS's web page.

    Args:
        clock: says when the file was read.
        url: where it is.
    """

    def __init__(self, clock: Clock, url: str = URL) -> None:
        self._clock = clock
        self._url = url
        self._kept: tuple[datetime, Any] | None = None

    def reclaim_shares(self, *, region: str) -> Mapping[str, float]:
        """Return type -> share of its spot instances that EC2 reclaims in a month.

        A bucket is taken at its upper limit.

        Raises:
            Unreachable: no whole answer in time, or one that is too large.
            ContractError: it says nothing of the region, or makes no sense.
        """
        return parse_advice(self._document(), region)

    def _document(self) -> Any:
        now = self._clock.now()
        if self._kept is None or not timedelta(0) <= now - self._kept[0] < _KEPT_FOR:
            document = from_json("spot advisor", self._download(now + _PATIENCE), _REMEDY)
            self._kept = (now, document)
        return self._kept[1]

    def _download(self, give_up_at: datetime) -> bytes:
        import urllib.request  # noqa: PLC0415 - only the refresh of every hour needs it

        request = urllib.request.Request(self._url)  # noqa: S310 - the address is the deployer's
        parts: list[bytes] = []
        left = LARGEST
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
                if answer.status != HTTPStatus.OK:
                    raise Unreachable(f"spot advisor: HTTP {answer.status}")
                while part := answer.read(_CHUNK):
                    parts.append(part)
                    left -= len(part)
                    if left < 0:
                        raise Unreachable(f"spot advisor: more than {LARGEST} bytes")
                    if self._clock.now() > give_up_at:
                        raise Unreachable(f"spot advisor: not whole after {_PATIENCE}")
        except (OSError, HTTPException) as exc:
            raise Unreachable(f"spot advisor: {exc}") from exc
        return b"".join(parts)


def parse_advice(document: Any, region: str) -> Mapping[str, float]:
    """Return type -> monthly share (0 to 1) of a region's Linux spot instances.

    ``ranges`` says what the bucket numbers mean, ``spot_advisor[region].Linux[type].r`` which
    bucket a type is in; a type whose bucket is not among them is left out.

    Raises:
        ContractError: the document has no ranges, or nothing usable of the region.
    """
    try:
        shares = dict(_bucket_shares(document["ranges"]))
        listed = document["spot_advisor"][region]["Linux"]
        found = {
            str(name): shares[entry["r"]]
            for name, entry in listed.items()
            if isinstance(entry, dict) and entry.get("r") in shares
        }
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ContractError("spot advisor", region, _REMEDY) from exc
    if not found:
        raise ContractError("spot advisor", region, _REMEDY)
    return found


def _bucket_shares(ranges: Any) -> Iterator[tuple[int, float]]:
    """Yield number and share of each bucket; a limit is in per cent, the last bucket is open."""
    limits = {int(entry["index"]): float(entry["max"]) for entry in ranges}
    ordered = sorted(limits)
    upper = [limits[index] for index in ordered]
    is_rising = all(low < high for low, high in pairwise(upper))
    if not upper or not is_rising or not upper[0] > 0.0 or not math.isfinite(upper[-1]):
        raise KeyError("ranges")
    for index, limit in zip(ordered[:-1], upper[:-1], strict=True):
        yield index, min(limit / 100.0, 1.0)
    begins = upper[-2] if len(upper) > 1 else upper[-1]
    yield ordered[-1], min(begins * _OPEN_BUCKET / 100.0, 1.0)
