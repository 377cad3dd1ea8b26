"""The AWS account, as far as a launch depends on it: what doctor asks before a launch has to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from spindown.port.compute import LaunchRequest, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    account: str
    arn: str


class AccountPlan(StrEnum):
    """How AWS lets an account use what costs money."""

    #: Limited to what is eligible for it, which no GPU type is.
    FREE = "free"
    PAID = "paid"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """A machine image as EC2 describes it."""

    image_id: str
    #: "x86_64" or "arm64".
    architecture: str
    #: "available" once instances can be launched from it.
    state: str
    #: Size of the snapshot that its root volume is made from; no root volume can be smaller.
    root_gib: int
    #: What its root volume is called, such as "/dev/sda1".
    root_device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetView:
    """A subnet as EC2 describes it."""

    subnet_id: str
    zone: str
    free_addresses: int


class Account(Protocol):
    """What the account is, has and allows. Nothing here changes anything."""

    def caller(self) -> Caller:
        """Return whose credentials these are (raises AccessDenied: nobody's that are valid)."""
        ...

    def plan(self) -> AccountPlan | None:
        """Return the account's plan; None: it has none, as accounts from before there were any."""
        ...

    def has_spot_role(self) -> bool:
        """Tell whether EC2's service-linked role for spot requests is there."""
        ...

    def concurrency(self, *, region: str) -> int:
        """Return how many executions Lambda runs at once for the whole account."""
        ...

    def parameter(self, name: str, *, region: str) -> str:
        """Return the value of an SSM parameter (raises NotFound)."""
        ...

    def image(self, image_id: str, *, region: str) -> ImageView:
        """Return an image (raises NotFound: it is gone, or not ours to use)."""
        ...

    def subnets(self, subnet_ids: Sequence[str], *, region: str) -> Sequence[SubnetView]:
        """Return those of the subnets that exist."""
        ...

    def try_input(self, uri_prefix: str) -> None:
        """List a prefix and look at its first object (raises NotFound, AccessDenied)."""
        ...

    def try_secret(self, name: str, *, region: str) -> None:
        """See that a secret is there, unread (raises NotFound, AccessDenied)."""
        ...

    def try_key(self, arn: str) -> None:
        """See that a KMS key is there and enabled (raises NotFound, AccessDenied)."""
        ...

    def dry_run(self, request: LaunchRequest) -> Refusal | None:
        """Have EC2 check a launch without making it; None: it would have been tried."""
        ...
