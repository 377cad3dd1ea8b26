"""The instance metadata service, version 2 only: identity of the instance, and notices."""

import urllib.error
import urllib.request
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException

from spindown.contract.codec import from_json
from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import CapacityType
from spindown.error import ContractError, NotFound, Unreachable
from spindown.port import Clock, Identity

#: The link-local address of the service on every instance.
ENDPOINT = "http://169.254.169.254"

_TOKEN_SECONDS = 6 * 3600
_TIMEOUT_SECONDS = 2.0


class ImdsMetadata:
    """Metadata of the instance; ``endpoint`` replaces the usual one if given."""

    def __init__(self, clock: Clock, endpoint: str | None = None) -> None:
        self._clock = clock
        self._endpoint = (endpoint or ENDPOINT).rstrip("/")
        # The service is on the machine itself: never use a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token: str | None = None
        self._first_seen: datetime | None = None

    def identity(self) -> Identity:
        """Return the identity of this instance.

        Raises:
            NotFound: a part of it is missing, for example tags that the template keeps out of
                the metadata.
        """
        is_spot = self._require("instance-life-cycle") == CapacityType.SPOT
        return Identity(
            instance_id=self._require("instance-id"),
            instance_type=self._require("instance-type"),
            region=self._require("placement/region"),
            zone=self._require("placement/availability-zone"),
            capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
            tags={
                name: self._require(f"tags/instance/{name}")
                for name in self._require("tags/instance").splitlines()
            },
        )

    def interruption(self) -> datetime | None:
        """Return when EC2 reclaims the instance; None: no notice."""
        text = self._get("spot/instance-action")
        if text is None:
            return None
        announced = _instant(text, "time")
        if announced is not None:
            return announced
        # The notice counts even without a time: count from when it was first seen.
        self._first_seen = self._first_seen or self._clock.now()
        return self._first_seen + NOTICE

    def rebalance(self) -> datetime | None:
        """Return when a rebalance recommendation was given, if one was."""
        text = self._get("events/recommendations/rebalance")
        return None if text is None else _instant(text, "noticeTime") or self._clock.now()

    def _require(self, path: str) -> str:
        found = self._get(path)
        if found is None:
            raise NotFound(f"no {path} in the instance metadata")
        return found

    def _get(self, path: str) -> str | None:
        """Return a value of the metadata, None if there is none; renew an expired token."""
        status, text = self._read(path)
        if status == HTTPStatus.UNAUTHORIZED:
            self._token = None
            status, text = self._read(path)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise Unreachable(f"instance metadata answered {status} for {path}")
        return text

    def _read(self, path: str) -> tuple[int, str]:
        if self._token is None:
            wanted = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
            status, token = self._request("PUT", "api/token", wanted)
            if status != HTTPStatus.OK:
                raise Unreachable(f"instance metadata gave no token: {status}")
            self._token = token
        return self._request("GET", f"meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        request = urllib.request.Request(  # noqa: S310 - the scheme is ours
            f"{self._endpoint}/latest/{path}", method=method, headers=headers
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except (OSError, HTTPException) as error:
            raise Unreachable(f"no instance metadata at {self._endpoint}: {error}") from error


def _instant(text: str, field: str) -> datetime | None:
    """Return the time in a notice; None if it cannot be read."""
    try:
        at = datetime.fromisoformat(from_json("notice", text)[field])
    except (ContractError, ValueError, KeyError, TypeError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
