"""The instance metadata service (IMDSv2 only), one tree for every instance under its id.

The real service tells instances apart by their link; here the first part of the path does:
`/i-0123/latest/meta-data/...`. Only the token of the same instance opens it.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import unquote

from spindown.ec2sim import Ec2Instance
from spindown.local.market.market import LocalMarket
from spindown.local.market.wire.asgi import (
    Headers,
    Receive,
    Response,
    Scope,
    Send,
    header,
    read_body,
    respond,
)

_LONGEST_TOKEN = timedelta(hours=6)
_NOT_FOUND = Response(404, b"404 - Not Found")
_UNAUTHORIZED = Response(401, b"401 - Unauthorized")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCredentials:
    """Temporary credentials of an instance's role."""

    role: str
    access_key: str
    secret_key: str
    token: str
    expires_at: datetime


def no_role(instance: Ec2Instance) -> RoleCredentials | None:
    """Give no credentials."""
    del instance
    return None


class MetadataApp:
    """Serves `/{instance_id}/latest/...` to the guests."""

    def __init__(
        self,
        market: LocalMarket,
        *,
        credentials: Callable[[Ec2Instance], RoleCredentials | None] = no_role,
    ) -> None:
        """Serve the metadata of `market`; `credentials` gives an instance those of its role."""
        self._market = market
        self._credentials = credentials
        self._tokens: dict[str, tuple[str, datetime]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await read_body(receive)
        self._market.run_due()
        await respond(send, self._answer(scope["method"], scope["path"], scope["headers"]))

    def _answer(self, method: str, path: str, headers: Headers) -> Response:
        instance_id, _, rest = path.lstrip("/").partition("/")
        instance = self._market.find(instance_id)
        if instance is None or instance.terminated_at is not None:
            return _NOT_FOUND
        if rest == "latest/api/token":
            return self._token(method, instance_id, headers)
        if method != "GET":
            return Response(405, b"405 - Method Not Allowed")
        owner, expires_at = self._tokens.get(
            header(headers, b"x-aws-ec2-metadata-token"), ("", self._market.now())
        )
        if owner != instance_id or expires_at <= self._market.now():
            return _UNAUTHORIZED
        return self._read(instance, unquote(rest).removeprefix("latest/").rstrip("/"))

    def _token(self, method: str, instance_id: str, headers: Headers) -> Response:
        if method != "PUT":
            return Response(405, b"405 - Method Not Allowed")
        seconds = header(headers, b"x-aws-ec2-metadata-token-ttl-seconds")
        if not seconds.isdigit() or not 1 <= int(seconds) <= _LONGEST_TOKEN.total_seconds():
            return Response(400, b"400 - Bad Request")
        now = self._market.now()
        self._tokens = {token: entry for token, entry in self._tokens.items() if entry[1] > now}
        token = secrets.token_urlsafe(42)
        self._tokens[token] = (instance_id, now + timedelta(seconds=int(seconds)))
        return Response(200, token.encode())

    def _read(self, instance: Ec2Instance, path: str) -> Response:
        if path == "user-data":
            data = instance.order.user_data
            return Response(200, data, "application/octet-stream") if data else _NOT_FOUND
        if path == "dynamic/instance-identity/document":
            return Response(200, self._identity(instance).encode())
        tree = self._meta_data(instance)
        name = path.removeprefix("meta-data").removeprefix("/")
        if name in tree:
            return Response(200, tree[name].encode())
        folder = f"{name}/" if name else ""
        below = sorted({_entry(leaf, folder) for leaf in tree if leaf.startswith(folder)})
        is_listing = path.startswith("meta-data") and below
        return Response(200, "\n".join(below).encode()) if is_listing else _NOT_FOUND

    def _meta_data(self, instance: Ec2Instance) -> Mapping[str, str]:
        """Return every leaf below meta-data that exists for the instance now."""
        order = instance.order
        leaves = {
            "ami-id": order.image_id,
            "instance-id": instance.instance_id,
            "instance-life-cycle": "spot" if instance.is_spot else "on-demand",
            "instance-type": instance.instance_type,
            "local-ipv4": instance.private_ip,
            "placement/availability-zone": instance.zone,
            "placement/region": instance.region,
            "reservation-id": instance.reservation_id,
        }
        if order.template.metadata_tags:
            leaves |= {f"tags/instance/{key}": value for key, value in instance.tags.items()}
        if instance.rebalance_at is not None:
            notice = json.dumps({"noticeTime": _iso(instance.rebalance_at)})
            leaves["events/recommendations/rebalance"] = notice
        if instance.notice is not None:
            due_at = _iso(instance.notice.due_at)
            leaves["spot/instance-action"] = json.dumps({"action": "terminate", "time": due_at})
            leaves["spot/termination-time"] = due_at
        return leaves | self._role(instance)

    def _role(self, instance: Ec2Instance) -> dict[str, str]:
        profile_arn = instance.order.template.profile_arn
        granted = self._credentials(instance) if profile_arn else None
        if granted is None:
            return {}
        updated_at = _iso(self._market.now())
        profile = {
            "Code": "Success",
            "LastUpdated": updated_at,
            "InstanceProfileArn": profile_arn,
            "InstanceProfileId": "AIPA000000000LOCAL00",
        }
        keys = {
            "Code": "Success",
            "LastUpdated": updated_at,
            "Type": "AWS-HMAC",
            "AccessKeyId": granted.access_key,
            "SecretAccessKey": granted.secret_key,
            "Token": granted.token,
            "Expiration": _iso(granted.expires_at),
        }
        return {
            "iam/info": json.dumps(profile),
            f"iam/security-credentials/{granted.role}": json.dumps(keys),
        }

    def _identity(self, instance: Ec2Instance) -> str:
        return json.dumps(
            {
                "accountId": self._market.account,
                "architecture": instance.hardware.architecture,
                "availabilityZone": instance.zone,
                "imageId": instance.order.image_id,
                "instanceId": instance.instance_id,
                "instanceType": instance.instance_type,
                "pendingTime": _iso(instance.launched_at),
                "privateIp": instance.private_ip,
                "region": instance.region,
                "version": "2017-09-30",
            }
        )


def _entry(leaf: str, folder: str) -> str:
    """Return a leaf's name in the listing of a folder; folders end with a slash."""
    first, slash, _ = leaf.removeprefix(folder).partition("/")
    return first + slash


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
