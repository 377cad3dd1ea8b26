"""The metadata service: tokens, trees, and botocore's own reader."""

import json
from datetime import timedelta

import pytest

from spindown.ec2sim import Ec2Instance, LaunchTemplate
from spindown.local.market import MetadataApp, RoleCredentials
from spindown.local.market.wire.asgi import Response, call
from tests.local.market.world import START, TEMPLATE_ID, World, a_world, asgi_scope, finished


def _role(instance: Ec2Instance) -> RoleCredentials:
    return RoleCredentials(
        role="worker",
        access_key=f"AKIA{instance.instance_id[2:8].upper()}",
        secret_key="secret",
        token="session",
        expires_at=START + timedelta(hours=6),
    )


class _Guest:
    """One instance's view of the service."""

    def __init__(self, world: World, instance_id: str, app: MetadataApp | None = None) -> None:
        self.app = app or MetadataApp(world.market, credentials=_role)
        self.root = f"http://127.0.0.1/{instance_id}/latest/"

    def token(self, ttl: str = "60") -> Response:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": ttl}
        scope = asgi_scope("PUT", f"{self.root}api/token", headers)
        return finished(call(self.app, scope, b""))

    def get(self, path: str, token: bytes | None = None) -> tuple[int, str]:
        token = self.token().body if token is None else token
        headers = {"X-aws-ec2-metadata-token": token} if token else {}
        answer = finished(call(self.app, asgi_scope("GET", self.root + path, headers), b""))
        return answer.status, answer.body.decode()


def test_nothing_is_told_without_a_valid_token() -> None:
    world = a_world()
    mine, other = world.launch(), world.launch()
    app = MetadataApp(world.market)
    guest = _Guest(world, mine, app)
    token = guest.token("30").body
    assert guest.get("meta-data/instance-id", token) == (200, mine)
    assert guest.get("meta-data/instance-id", b"")[0] == 401
    assert guest.get("meta-data/instance-id", b"forged")[0] == 401
    assert _Guest(world, other, app).get("meta-data/instance-id", token)[0] == 401
    world.wait(30)
    assert guest.get("meta-data/instance-id", token)[0] == 401


@pytest.mark.parametrize("ttl", ["0", "21601", "soon", ""])
def test_a_token_needs_a_lifetime_of_up_to_six_hours(ttl: str) -> None:
    world = a_world()
    assert _Guest(world, world.launch()).token(ttl).status == 400


def test_tells_what_the_instance_is_and_where() -> None:
    world = a_world()
    instance_id = world.launch()
    guest = _Guest(world, instance_id)
    expected = {
        "meta-data/instance-type": "g6.xlarge",
        "meta-data/placement/availability-zone": "us-east-1a",
        "meta-data/placement/region": "us-east-1",
        "meta-data/ami-id": "ami-0123",
        "meta-data/instance-life-cycle": "spot",
        "meta-data/tags/instance/project": "spindown",
        "meta-data/tags/instance/aws%3Aec2launchtemplate%3Aversion": "3",
        "user-data": "#!/bin/sh\n",
    }
    assert {path: guest.get(path)[1] for path in expected} == expected
    identity = json.loads(guest.get("dynamic/instance-identity/document")[1])
    assert (identity["instanceId"], identity["accountId"]) == (instance_id, "111111111111")


def test_folders_are_listed_and_the_rest_is_not_found() -> None:
    world = a_world()
    guest = _Guest(world, world.launch())
    assert guest.get("meta-data/tags/instance")[1].split("\n") == [
        "aws:ec2:fleet-id",
        "aws:ec2launchtemplate:id",
        "aws:ec2launchtemplate:version",
        "project",
        "tier",
    ]
    assert "placement/" in guest.get("meta-data/")[1].split("\n")
    assert guest.get("meta-data/iam/security-credentials/")[1] == "worker"
    assert guest.get("meta-data/public-keys")[0] == 404
    assert guest.get("meta-data/spot/instance-action")[0] == 404
    assert guest.get("placement")[0] == 404


def test_tags_are_in_metadata_only_where_the_template_says_so() -> None:
    template = LaunchTemplate(
        template_id=TEMPLATE_ID, version="3", image_id="ami-1", instance_tags={"k": "v"}
    )
    world = a_world(template=template)
    assert _Guest(world, world.launch()).get("meta-data/tags/instance/k")[0] == 404


def test_a_terminated_instance_hears_nothing_more() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(5)
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    assert _Guest(world, instance_id).get("meta-data/instance-id")[0] == 200
    world.wait(5)
    assert _Guest(world, instance_id).token().status == 404


def test_an_instance_without_a_profile_has_no_credentials() -> None:
    template = LaunchTemplate(template_id=TEMPLATE_ID, version="3", image_id="ami-1")
    world = a_world(template=template)
    assert _Guest(world, world.launch()).get("meta-data/iam/info")[0] == 404
