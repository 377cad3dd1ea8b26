"""The state of a local system held by moto, while MiniStack goes on running its functions.

Everything that a deployment keeps is in four services. The deploy makes them in MiniStack, whose
CloudFormation knows no other. `move` then writes them anew into moto, and from that moment on moto
answers all that functions, workers and people ask of them.

moto is called one request after the other, on the gateway's one thread, since it is not safe to
call from several; a long poll is waited for here instead of in there.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import urlunsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.base_backend import BackendDict
from moto.core.botocore_stubber import BotocoreStubber

from spindown.local import emulator
from spindown.local.environment import ACCOUNT
from spindown.local.market.app import service_of
from spindown.local.market.wire.asgi import (
    App,
    Receive,
    Scope,
    Send,
    credential_scope,
    header,
    read_body,
)

SERVICES = frozenset({"dynamodb", "s3", "sqs", "ssm"})
_POLL_SECONDS = 0.1
_REGION = "us-east-1"
#: What a queue may be made with.
_QUEUE_ATTRIBUTES = frozenset(
    {
        "DelaySeconds",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "ReceiveMessageWaitTimeSeconds",
        "RedriveAllowPolicy",
        "RedrivePolicy",
        "VisibilityTimeout",
    }
)
#: What a table may be made with.
_TABLE_FIELDS = ("TableName", "KeySchema", "AttributeDefinitions")
_INDEX_FIELDS = frozenset({"IndexName", "KeySchema", "Projection"})

Answer = tuple[int, dict[str, str], bytes]


class MotoState:
    """The ASGI app: MiniStack's, and moto for what has been moved to it."""

    def __init__(self, services: frozenset[str] = SERVICES) -> None:
        """Move these services."""
        #: (service, operation) -> how often moto has answered it.
        self.answered: Counter[tuple[str, str]] = Counter()
        self._services = services
        self._is_moved = False
        self._moto = BotocoreStubber()
        self._app: App

    def load(self, port: int) -> "MotoState":
        """Load MiniStack for a port, and moto without any state; return this app."""
        self._app = emulator.load(port)
        BackendDict.reset()
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        service = service_of(scope.get("headers", ()))
        if not self._is_moved or service not in self._services:
            await self._app(scope, receive, send)
            return
        status, headers, body = await self._answer(service, scope, await read_body(receive))
        told = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body})

    def move(self, client: Callable[[str], Any]) -> None:
        """Write all that MiniStack holds into moto, which answers for it from now on."""
        queues, tables = _read_queues(client("sqs")), _read_tables(client("dynamodb"))
        buckets, parameters = _read_buckets(client("s3")), _read_parameters(client("ssm"))
        self._is_moved = True
        for queue in queues:
            client("sqs").create_queue(**queue)
        for table, rows in tables:
            client("dynamodb").create_table(**table)
            for row in rows:
                client("dynamodb").put_item(TableName=table["TableName"], Item=row)
        for bucket, objects in buckets:
            client("s3").create_bucket(Bucket=bucket)
            client("s3").put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
            for key, data in objects:
                client("s3").put_object(Bucket=bucket, Key=key, Body=data)
        for parameter in parameters:
            client("ssm").put_parameter(**parameter)

    async def _answer(self, service: str, scope: Scope, body: bytes) -> Answer:
        operation = header(scope["headers"], b"x-amz-target").rpartition(".")[2]
        self.answered[service, operation or scope["method"]] += 1
        if operation == "ExecuteStatement":
            return self._select(scope, json.loads(body))
        if operation != "ReceiveMessage":
            return self._ask(service, scope, body)
        asked = json.loads(body)
        until = monotonic() + asked.pop("WaitTimeSeconds", 0)
        while True:
            found = self._ask(service, scope, json.dumps(asked | {"WaitTimeSeconds": 0}).encode())
            if b'"Messages"' in found[2] or found[0] != HTTPStatus.OK or monotonic() >= until:
                return found
            await asyncio.sleep(_POLL_SECONDS)

    def _ask(self, service: str, scope: Scope, body: bytes) -> Answer:
        """Have moto answer one request, as if it had been sent to AWS."""
        headers = HTTPHeaders()
        for name, value in scope["headers"]:
            headers[name.decode()] = value.decode()
        headers["x-moto-account-id"] = ACCOUNT
        path = scope.get("raw_path", scope["path"].encode()).decode().partition("?")[0]
        query = scope["query_string"].decode()
        region, _ = credential_scope(scope["headers"]) or (_REGION, service)
        host = f"{service}.{region}.amazonaws.com"
        url = urlunsplit(("https", host, path, query, ""))
        headers.replace_header("host", host)
        answer = self._moto.process_request(
            AWSPreparedRequest(scope["method"], url, headers, body, stream_output=False)
        )
        assert answer is not None, url
        status, told, said = answer
        body = said.encode() if isinstance(said, str) else said
        known = {name.lower(): str(value) for name, value in told.items()}
        if scope["method"] == "HEAD":
            # It tells the length of a body that it does not bring.
            return status, known, b""
        return status, known | {"content-length": str(len(body))}, body

    def _select(self, scope: Scope, asked: dict[str, Any]) -> Answer:
        """Answer the ledger's one statement, which moto cannot read, from its rows."""
        table = asked["Statement"].split('"')[1]
        rows: list[Any] = []
        for value in asked["Parameters"]:
            query = {
                "TableName": table,
                "KeyConditionExpression": "pk = :pk",
                "ExpressionAttributeValues": {":pk": value},
                "ConsistentRead": True,
            }
            target = (b"x-amz-target", b"DynamoDB_20120810.Query")
            rest = [one for one in scope["headers"] if one[0].lower() != target[0]]
            status, headers, body = self._ask(
                "dynamodb", {**scope, "headers": [*rest, target]}, json.dumps(query).encode()
            )
            if status != HTTPStatus.OK:
                return status, headers, body
            rows += json.loads(body)["Items"]
        text = json.dumps({"Items": rows}).encode()
        kind = "application/x-amz-json-1.0"
        return HTTPStatus.OK, {"content-type": kind, "content-length": str(len(text))}, text


def _read_queues(sqs: Any) -> list[dict[str, Any]]:
    """Return what makes each queue anew; those that others name come first."""
    made = []
    for url in sqs.list_queues().get("QueueUrls", []):
        known = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        tags = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
        attributes = {name: known[name] for name in _QUEUE_ATTRIBUTES & known.keys()}
        name = url.rpartition("/")[2]
        made.append({"QueueName": name, "Attributes": attributes, "tags": tags})
    return sorted(made, key=lambda one: "RedrivePolicy" in one["Attributes"])


def _read_tables(dynamodb: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    found = []
    for name in dynamodb.list_tables()["TableNames"]:
        known = dynamodb.describe_table(TableName=name)["Table"]
        made = {field: known[field] for field in _TABLE_FIELDS} | {"BillingMode": "PAY_PER_REQUEST"}
        if indexes := known.get("GlobalSecondaryIndexes"):
            made["GlobalSecondaryIndexes"] = [
                {field: one[field] for field in _INDEX_FIELDS} for one in indexes
            ]
        pages = dynamodb.get_paginator("scan").paginate(TableName=name)
        found.append((made, [row for page in pages for row in page["Items"]]))
    return found


def _read_buckets(s3: Any) -> list[tuple[str, list[tuple[str, bytes]]]]:
    found = []
    for bucket in (one["Name"] for one in s3.list_buckets()["Buckets"]):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
        found.append(
            (bucket, [(k, s3.get_object(Bucket=bucket, Key=k)["Body"].read()) for k in keys])
        )
    return found


def _read_parameters(ssm: Any) -> list[dict[str, Any]]:
    pages = ssm.get_paginator("describe_parameters").paginate()
    names = [one["Name"] for page in pages for one in page["Parameters"]]
    known = [ssm.get_parameter(Name=name)["Parameter"] for name in names]
    return [
        {"Name": one["Name"], "Type": one["Type"], "Value": one["Value"], "Tier": "Advanced"}
        for one in known
        if not one["Name"].startswith("/aws/")
    ]
