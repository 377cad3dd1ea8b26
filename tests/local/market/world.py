"""A market moved by hand, with real boto3 clients talking to it inside this process."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ClientError

from spindown.ec2sim import LaunchTemplate, Subnet
from spindown.local.market import LocalMarket, MarketApp
from spindown.local.market.scenario import Ec2Delays, Scenario, parse_scenario
from spindown.local.market.wire.asgi import App, Message, Receive, Response, Scope, Send, call
from spindown.local.market.wire.protocol import ApiError

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TEMPLATE_ID = "lt-0123456789abcdef0"

PLAIN = """
regions = ["us-east-1"]
quota = { "L-3819A6DF" = 400, "L-DB2E81BA" = 400, "L-C4BD4855" = 400 }
[delay]
pending = "1s"
boot = "3s"
ending = "2s"
[type."g4dn.xlarge"]
on_demand = 0.526
spot = { us-east-1a = 0.20, us-east-1b = 0.21 }
[type."g5.xlarge"]
on_demand = 1.006
spot = { us-east-1a = 0.45, us-east-1b = 0.43 }
[type."g6.xlarge"]
on_demand = 0.8048
speed = 0.5
spot = { us-east-1a = 0.32, us-east-1b = 0.34 }
[type."g7e.2xlarge"]
on_demand = 3.363
spot = { us-east-1a = 1.60 }
"""


@dataclass
class Network:
    """What a deployment would have made: one template, a subnet in each of two zones."""

    template: LaunchTemplate
    known: Mapping[str, Subnet] = field(
        default_factory=lambda: {
            f"subnet-{letter}": Subnet(
                subnet_id=f"subnet-{letter}", vpc_id="vpc-1", zone=f"us-east-1{letter[0]}"
            )
            for letter in ("a", "b", "a2")
        }
    )

    async def launch_template(
        self, *, region: str, template_id: str | None, name: str | None, version: str
    ) -> LaunchTemplate:
        if template_id != self.template.template_id and name != "workers":
            raise ApiError("InvalidLaunchTemplateId.NotFound", "no such template")
        return self.template

    async def launch_templates(self, *, region: str) -> Sequence[LaunchTemplate]:
        return [self.template]

    async def subnets(self, *, region: str, subnet_ids: Sequence[str]) -> Mapping[str, Subnet]:
        if missing := set(subnet_ids) - set(self.known):
            raise ApiError("InvalidSubnetID.NotFound", f"{missing} does not exist")
        return {one: self.known[one] for one in subnet_ids or ("subnet-a", "subnet-b")}


@dataclass
class Guests:
    """A driver that only takes note."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    #: Instance -> speed.
    started: dict[str, float] = field(default_factory=dict)

    def start(self, instance_id: str, *, speed: float) -> None:
        self.calls.append(("start", instance_id))
        self.started[instance_id] = speed

    def stop(self, instance_id: str) -> None:
        self.calls.append(("stop", instance_id))

    def console(self, instance_id: str) -> str:
        return f"guest of {instance_id} says hello\n"


@dataclass
class Events:
    """Every event that the market put on the bus."""

    seen: list[dict[str, Any]] = field(default_factory=list)

    def __call__(
        self, *, source: str, detail_type: str, detail: Mapping[str, str], resources: list[str]
    ) -> None:
        self.seen.append(
            {
                "source": source,
                "detail-type": detail_type,
                "detail": dict(detail),
                "resources": resources,
            }
        )

    def of(self, detail_type: str) -> list[dict[str, str]]:
        return [event["detail"] for event in self.seen if event["detail-type"] == detail_type]


class _Raw(io.BytesIO):
    def stream(self, _amount: int = 0, **_options: object) -> Iterator[bytes]:
        yield self.read()


def finished(response: Any) -> Response:
    """Run a coroutine that never waits for anything."""
    try:
        response.send(None)
    except StopIteration as end:
        value: Response = end.value
        return value
    raise AssertionError("the app waited for something")


def asgi_scope(method: str, url: str, headers: Mapping[str, str | bytes]) -> Scope:
    parts = urlsplit(url)
    return {
        "type": "http",
        "method": method,
        "path": parts.path or "/",
        "query_string": parts.query.encode(),
        "headers": [
            (name.lower().encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in headers.items()
        ],
    }


def bridged(client: Any, app: App) -> Any:
    """Let a boto3 client talk to an ASGI app without a socket."""

    def send(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        assert isinstance(body, bytes)
        scope = asgi_scope(request.method, request.url, dict(request.headers.items()))
        response = finished(call(app, scope, body))
        headers = HTTPHeaders.from_dict({"content-type": response.content_type})
        return AWSResponse(request.url, response.status, headers, _Raw(response.body))

    client.meta.events.register_first("before-send", send)
    return client


async def nobody_upstream(scope: Scope, receive: Receive, send: Send) -> None:
    """Stand for the emulator behind the market: say that it was asked."""
    message: Message = await receive()
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


class World:
    """A market, its clock, its guests, its events, and clients."""

    def __init__(self, scenario: Scenario, *, template: LaunchTemplate | None = None) -> None:
        self.now = START
        self.guests = Guests()
        self.events = Events()
        self.market = LocalMarket(
            scenario, clock=lambda: self.now, driver=self.guests, emit=self.events, account="1" * 12
        )
        self.network = Network(
            template
            or LaunchTemplate(
                template_id=TEMPLATE_ID,
                version="3",
                image_id="ami-0123",
                user_data=b"#!/bin/sh\n",
                profile_arn="arn:aws:iam::111111111111:instance-profile/worker",
                security_groups=("sg-1",),
                shutdown_behaviour="terminate",
                metadata_tags=True,
                instance_tags={"project": "spindown", "tier": "template"},
            )
        )
        self.app = MarketApp(self.market, nobody_upstream, network=self.network)
        self.ec2 = self.client("ec2")

    def client(self, service: str, region: str = "us-east-1") -> Any:
        create: Any = boto3.client
        client = create(
            service,
            region_name=region,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )
        return bridged(client, self.app)

    def wait(self, seconds: float) -> None:
        """Let time pass in the small steps of the local system, so nothing is skipped."""
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            self.now = min(self.now + timedelta(seconds=1), until)
            self.market.run_due()

    def fleet(self, *overrides: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """Ask for an instant spot fleet of one instance."""
        request: dict[str, Any] = {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": TEMPLATE_ID,
                        "Version": "3",
                    },
                    "Overrides": list(overrides or [an_override()]),
                }
            ],
            "SpotOptions": {"AllocationStrategy": "capacity-optimized-prioritized"},
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": changes.pop("target", 1),
                "DefaultTargetCapacityType": changes.pop("capacity_type", "spot"),
            },
            **changes,
        }
        answer: dict[str, Any] = self.ec2.create_fleet(**request)
        return answer

    def launch(self, *overrides: Mapping[str, Any], **changes: Any) -> str:
        """Launch one instance by a fleet and return its id."""
        instance_id: str = self.fleet(*overrides, **changes)["Instances"][0]["InstanceIds"][0]
        return instance_id

    def state(self, instance_id: str) -> str:
        instance = self.market.find(instance_id)
        assert instance is not None
        return instance.state.value


def a_world(
    extra: str = "",
    *,
    regions: Sequence[str] | None = None,
    quota: Mapping[str, float] | None = None,
    delay: Ec2Delays | None = None,
    template: LaunchTemplate | None = None,
) -> World:
    """Return a world of the plain scenario with more TOML after its types."""
    scenario = parse_scenario(PLAIN + extra, origin="test")
    if regions is not None:
        scenario = scenario.model_copy(update={"regions": tuple(regions)})
    if quota is not None:
        scenario = scenario.model_copy(update={"quota": quota})
    if delay is not None:
        scenario = scenario.model_copy(update={"delay": delay})
    return World(scenario, template=template)


def an_override(
    instance_type: str = "g6.xlarge", zone: str = "a", **changes: Any
) -> dict[str, Any]:
    return {"InstanceType": instance_type, "SubnetId": f"subnet-{zone}", **changes}


@contextmanager
def refused(code: str) -> Iterator[None]:
    """Expect an AWS error code."""
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code
