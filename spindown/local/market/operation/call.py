"""What every operation is given, and the two ways in which it may decline."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from spindown.local.market.fleet import Fleets
from spindown.local.market.instance import MarketInstance
from spindown.local.market.market import Market
from spindown.local.market.wire.error import ApiError
from spindown.local.market.wire.upstream import DeployedNetwork

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, parsed, with what it acts on."""

    market: Market
    fleets: Fleets
    network: DeployedNetwork
    region: str
    parameters: dict[str, Any]

    def refuse_dry_run(self) -> None:
        """Raise what EC2 answers to a DryRun that would have succeeded."""
        if self.parameters.get("DryRun"):
            message = "Request would have succeeded, but DryRun flag is set."
            raise ApiError("DryRunOperation", message, status=412)

    def instance(self, instance_id: str) -> MarketInstance:
        """Return a visible instance of the region; raise `ApiError` when there is none."""
        return self.existing([instance_id])[0]

    def existing(self, instance_ids: list[str]) -> list[MarketInstance]:
        """Return visible instances; one unknown id fails the call, as on EC2."""
        malformed = [one for one in instance_ids if not one.startswith("i-")]
        if malformed:
            raise ApiError("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
        visible = self.market.visible(self.region)
        missing = [one for one in instance_ids if one not in visible]
        if missing:
            noun = "instance ID" if len(missing) == 1 else "instance IDs"
            verb = "does" if len(missing) == 1 else "do"
            message = f"The {noun} '{', '.join(missing)}' {verb} not exist"
            raise ApiError("InvalidInstanceID.NotFound", message)
        return [visible[one] for one in instance_ids]


class NotOwnedError(Exception):
    """The request speaks of things that live in the emulator behind the market."""


Operation = Callable[[Call], Answer | Awaitable[Answer]]


def require_modelled(parameters: dict[str, Any], modelled: set[str], *, where: str) -> None:
    """Refuse what the market does not model: to ignore it would be to play another game."""
    for name, value in parameters.items():
        if name not in modelled and value not in (None, False, [], {}):
            message = f"The local market does not model {where}.{name}."
            raise ApiError("UnsupportedOperation", message)


def tags_of(specifications: list[dict[str, Any]], resource_type: str) -> dict[str, str]:
    """Return the tags for one resource type out of TagSpecifications."""
    tags = {
        tag["Key"]: tag.get("Value", "")
        for specification in specifications
        if specification["ResourceType"] == resource_type
        for tag in specification.get("Tags", [])
    }
    refuse_reserved(tags)
    return tags


def refuse_reserved(tags: dict[str, str]) -> None:
    """Raise what EC2 answers to a tag key that is AWS's own."""
    for key in tags:
        if key.lower().startswith("aws:"):
            message = "Tag keys starting with 'aws:' are reserved for internal use"
            raise ApiError("InvalidParameterValue", message)


def tag_list(tags: Any) -> list[dict[str, str]]:
    """Return tags as the list of Key and Value that AWS speaks."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
