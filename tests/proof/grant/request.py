"""What AWS asks IAM of a request, where MiniStack asks less, something else, or not at all.

Sources: the Service Authorization Reference of each service (actions, resources, condition keys);
Amazon SQS Developer Guide, "API permissions"; Amazon S3 API Reference, "GetObject", on what a
caller without s3:ListBucket is told of a key that is not there.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spindown.local.environment import ACCOUNT

#: One grant serves a call and its batch.
_BATCH = "Batch"
#: In a key condition, the partition comes first: "#pk = :partition AND ...".
_PARTITION = re.compile(r"=\s*(:\w+)")
_PARTITION_ATTRIBUTE = "pk"
_TABLE = re.compile(r'FROM "([^"]+)"')


@dataclass(frozen=True)
class Ask:
    """One thing that IAM is asked."""

    action: str
    resource: str
    context: Mapping[str, Any] = field(default_factory=dict, compare=False)


def asked_by_aws(
    ask: Ask, body: bytes, region: str, has_object: Callable[[str, str], bool]
) -> list[Ask]:
    """Return what AWS asks of a request.

    Args:
        ask: what MiniStack asks.
        body: of the request.
        region: that it was sent to.
        has_object: tells whether a bucket holds a key.
    """
    service = ask.action.partition(":")[0]
    if ask.action in _OF_ACTION:
        return list(_OF_ACTION[ask.action](ask, body, region))
    if ask.action == "s3:GetObject":
        bucket, _, key = ask.resource.rpartition(":")[2].partition("/")
        listing = Ask("s3:ListBucket", f"arn:aws:s3:::{bucket}")
        return [ask] if has_object(bucket, key) else [ask, listing]
    if ask.action == "dynamodb:ExecuteStatement":
        return [replace(ask, action="dynamodb:PartiQLSelect", resource=_table_of(body, region))]
    if service == "dynamodb":
        keys = list(_leading_keys(ask.action, body))
        return [replace(ask, context={**ask.context, "dynamodb:LeadingKeys": keys})]
    if service == "sqs":
        return [replace(ask, action=ask.action.removesuffix(_BATCH))]
    return [ask]


def _of_parameters(ask: Ask, body: bytes, region: str) -> Iterator[Ask]:
    """Yield an ask for each parameter; those below /aws/ belong to no account."""
    for name in json.loads(body)["Names"]:
        owner = "" if name.startswith("/aws/") else ACCOUNT
        arn = f"arn:aws:ssm:{region}:{owner}:parameter/{name.removeprefix('/')}"
        yield replace(ask, resource=arn)


def _of_events(ask: Ask, body: bytes, _: str) -> Iterator[Ask]:
    """Yield one ask for all events together: both keys are lists."""
    entries = json.loads(body)["Entries"]
    known = {
        "events:source": [entry["Source"] for entry in entries],
        "events:detail-type": [entry["DetailType"] for entry in entries],
    }
    yield replace(ask, context=known)


def _of_rule(ask: Ask, body: bytes, region: str) -> Iterator[Ask]:
    """Yield the ask for a rule of the default bus, whose name its ARN leaves out."""
    name = json.loads(body)["Name"]
    yield replace(ask, resource=f"arn:aws:events:{region}:{ACCOUNT}:rule/{name}")


def _of_stream(ask: Ask, _body: bytes, _region: str) -> Iterator[Ask]:
    """Yield the ask for a stream of the group."""
    yield replace(ask, resource=f"{ask.resource.removesuffix(':*')}:log-stream:any")


_OF_ACTION: Mapping[str, Callable[[Ask, bytes, str], Iterator[Ask]]] = {
    "ssm:GetParameters": _of_parameters,
    "events:DescribeRule": _of_rule,
    "events:PutEvents": _of_events,
    "logs:CreateLogStream": _of_stream,
    "logs:PutLogEvents": _of_stream,
}


def _table_of(body: bytes, region: str) -> str:
    """Return the table of a statement."""
    (name,) = _TABLE.findall(json.loads(body)["Statement"])
    return f"arn:aws:dynamodb:{region}:{ACCOUNT}:table/{name}"


def _leading_keys(action: str, body: bytes) -> Iterator[str]:
    """Yield the partition of each row that a request names."""
    request = json.loads(body)
    if "Key" in request:
        yield request["Key"][_PARTITION_ATTRIBUTE]["S"]
    if "KeyConditionExpression" in request:
        (found,) = _PARTITION.findall(request["KeyConditionExpression"])[:1]
        yield request["ExpressionAttributeValues"][found]["S"]
    for asked in request.get("RequestItems", {}).values():
        yield from (key[_PARTITION_ATTRIBUTE]["S"] for key in asked["Keys"])
    for item in request.get("TransactItems", []):
        for kind, part in item.items():
            # Each item of a transaction is asked for as the call that it would be by itself.
            if kind in action:
                yield part["Key"][_PARTITION_ATTRIBUTE]["S"]
