"""A rehearsal: the scaler has EC2 check launches with its own role, and none is made.

Whoever may invoke the function may ask for one, by an event of exactly this form. No message of a
queue leads to it. It names pools and nothing else: templates, subnets and tags are the scaler's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from spindown.contract.codec import decode, encode
from spindown.domain.offer import CapacityType, Pool
from spindown.error import ContractError

REHEARSAL = "spindown.rehearsal"
#: Pools in one rehearsal. EC2 makes up for two calls of RunInstances a second (Amazon EC2 Developer
#: Guide, "Request throttling"), so these take some 15 s.
POOLS_AT_MOST = 24

_FIELDS = frozenset({"source", "workload", "pools"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedPool:
    """A pool whose launch is to be checked."""

    region: str
    zone: str
    instance_type: str
    #: Whose launch template is meant.
    architecture: str
    capacity_type: CapacityType

    @property
    def pool(self) -> Pool:
        """Return it as what offers and refusals name."""
        return Pool(
            instance_type=self.instance_type, zone=self.zone, capacity_type=self.capacity_type
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRequest:
    """Which launches of a workload to check."""

    workload: str
    pools: tuple[RehearsedPool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedLaunch:
    """What EC2 said of one launch."""

    pool: RehearsedPool
    #: EC2's error code; "": it would launch.
    code: str = ""
    #: ``RefusalKind`` of the code.
    kind: str = ""
    #: EC2's message, after the call that was refused.
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What EC2 said of the launches, in the order in which they were asked for."""

    launches: tuple[RehearsedLaunch, ...] = ()
    #: Why the last pools were not asked about; "": all were.
    ended: str = ""
    #: Whether our own limit of a minute has ended it, as after two looks in a row.
    is_used_up: bool = False


def rehearsal_event(request: RehearsalRequest) -> dict[str, Any]:
    """Return the event that asks for a rehearsal."""
    return {"source": REHEARSAL, **encode(request)}


def is_rehearsal(event: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether an event asks for a rehearsal, well or badly."""
    return isinstance(event, Mapping) and event.get("source") == REHEARSAL


def parse_rehearsal(event: Mapping[str, Any]) -> RehearsalRequest:
    """Read an event that asks for a rehearsal.

    Raises:
        ContractError: a field is missing, malformed or unknown, or there are too many pools.
    """
    if unknown := sorted(map(str, event.keys() - _FIELDS)):
        raise ContractError("event", unknown[0], f"send {', '.join(sorted(_FIELDS))} alone")
    request = decode(RehearsalRequest, {k: v for k, v in event.items() if k != "source"})
    if not 1 <= len(request.pools) <= POOLS_AT_MOST:
        raise ContractError("event.pools", len(request.pools), f"name 1 to {POOLS_AT_MOST}")
    return request
