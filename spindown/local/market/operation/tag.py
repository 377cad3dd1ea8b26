"""Tags of instances; those of everything else live in the emulator behind the market."""

from typing import Any

from spindown.local.market.operation.call import (
    Answer,
    Call,
    NotOwnedError,
    Operation,
    refuse_reserved,
)
from spindown.local.market.operation.filter import Readers, page, passes
from spindown.local.market.wire.error import ApiError

_MOST_TAGS = 50


def _instances(call: Call) -> list[str]:
    resources: list[str] = call.parameters["Resources"]
    ours = [one for one in resources if one.startswith("i-")]
    if not ours:
        raise NotOwnedError
    if len(ours) < len(resources):
        message = "The local market tags instances and other resources in separate calls only."
        raise ApiError("UnsupportedOperation", message)
    return ours


def create_tags(call: Call) -> Answer:
    """Add tags to instances, or replace their values."""
    added = {tag["Key"]: tag.get("Value", "") for tag in call.parameters["Tags"]}
    with call.market.held():
        instances = call.existing(_instances(call))
        refuse_reserved(added)
        call.refuse_dry_run()
        tagged = {one.instance_id: {**one.tags, **added} for one in instances}
        for tags in tagged.values():
            if sum(not key.startswith("aws:") for key in tags) > _MOST_TAGS:
                raise ApiError("TagLimitExceeded", "Number of tags exceeds the limit.")
        for instance_id, tags in tagged.items():
            call.market.tag(instance_id, tags)
    return {}


def delete_tags(call: Call) -> Answer:
    """Remove tags from instances: the named ones, or all when none is named."""
    with call.market.held():
        instances = call.existing(_instances(call))
        call.refuse_dry_run()
        named = {tag["Key"]: tag.get("Value") for tag in call.parameters.get("Tags", [])}
        refuse_reserved(dict.fromkeys(named, ""))
        for one in instances:
            kept = {
                key: value
                for key, value in one.tags.items()
                if key.startswith("aws:")
                or (named and not (key in named and named[key] in {None, value}))
            }
            call.market.tag(one.instance_id, kept)
    return {}


_ROWS: Readers[dict[str, str]] = {
    "resource-id": lambda row: [row["ResourceId"]],
    "resource-type": lambda row: [row["ResourceType"]],
    "key": lambda row: [row["Key"]],
    "value": lambda row: [row["Value"]],
}


def describe_tags(call: Call) -> Answer:
    """List tags, when the filters speak of instances."""
    filters: list[dict[str, Any]] = call.parameters.get("Filters", [])
    is_ours = any(
        (one["Name"] == "resource-type" and one["Values"] == ["instance"])
        or (one["Name"] == "resource-id" and all(id_.startswith("i-") for id_ in one["Values"]))
        for one in filters
    )
    if not is_ours:
        raise NotOwnedError
    call.refuse_dry_run()
    listed = [
        {"Key": key, "ResourceId": one.instance_id, "ResourceType": "instance", "Value": value}
        for one in call.market.visible(call.region).values()
        for key, value in sorted(one.tags.items())
    ]
    chosen = [row for row in listed if passes(row, filters, _ROWS)]
    rows, token = page(chosen, call.parameters, largest=1000)
    return {"Tags": list(rows), "NextToken": token}


OPERATIONS: dict[str, Operation] = {
    "CreateTags": create_tags,
    "DeleteTags": delete_tags,
    "DescribeTags": describe_tags,
}
