"""What every operation is given, how it may decline, and what describe calls share."""

import base64
import re
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from spindown.ec2sim import Ec2Instance
from spindown.local.market.market import LocalMarket
from spindown.local.market.wire.protocol import ApiError
from spindown.local.market.wire.upstream import DeployedNetwork

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request, parsed, with what it acts on."""

    market: LocalMarket
    network: DeployedNetwork
    region: str
    parameters: dict[str, Any]

    def refuse_dry_run(self) -> None:
        """Raise what EC2 answers to a DryRun that would have succeeded."""
        if self.parameters.get("DryRun"):
            message = "Request would have succeeded, but DryRun flag is set."
            raise ApiError("DryRunOperation", message, status=412)

    def instance(self, instance_id: str) -> Ec2Instance:
        """Return a visible instance of the region; raise `ApiError` when there is none."""
        return self.existing([instance_id])[0]

    def existing(self, instance_ids: list[str]) -> list[Ec2Instance]:
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


Operation = Callable[[ApiCall], Answer | Awaitable[Answer]]


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


Subject = TypeVar("Subject")
#: Filter name to the values of a subject that it is compared with.
Readers = Mapping[str, Callable[[Subject], Iterable[str]]]


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return EC2's wildcards as an expression: * any text, ? one character."""
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def passes(
    subject: Subject,
    filters: Sequence[Mapping[str, Any]],
    readers: Readers[Subject],
    *,
    tags: Callable[[Subject], Mapping[str, str]] | None = None,
) -> bool:
    """Tell whether a subject passes every filter; a filter passes with any of its values.

    `tags` adds tag:KEY and tag-key. An unknown filter name raises `ApiError`.
    """
    return all(
        any(
            _pattern(wanted).fullmatch(found)
            for found in _values(subject, one["Name"], readers, tags)
            for wanted in one.get("Values", [])
        )
        for one in filters
    )


def _values(
    subject: Subject,
    name: str,
    readers: Readers[Subject],
    tags: Callable[[Subject], Mapping[str, str]] | None,
) -> Iterable[str]:
    if tags is not None and name == "tag-key":
        return tags(subject)
    if tags is not None and name.startswith("tag:"):
        value = tags(subject).get(name.removeprefix("tag:"))
        return [] if value is None else [value]
    if name not in readers:
        raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return readers[name](subject)


def page(
    rows: Sequence[Subject], parameters: Mapping[str, Any], *, largest: int
) -> tuple[Sequence[Subject], str | None]:
    """Return one page of rows and the token of the next one, None after the last."""
    start = _offset(parameters["NextToken"]) if parameters.get("NextToken") else 0
    size = min(parameters.get("MaxResults") or largest, largest)
    end = start + size
    token = base64.urlsafe_b64encode(f"from={end}".encode()).decode() if end < len(rows) else None
    return rows[start:end], token


def _offset(token: str) -> int:
    try:
        text = base64.urlsafe_b64decode(token).decode()
        return int(text.removeprefix("from="))
    except (Base64Error, ValueError) as error:
        message = "The pagination token is not one of this operation's."
        raise ApiError("InvalidPaginationToken", message) from error
