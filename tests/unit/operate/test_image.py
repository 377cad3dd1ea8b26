"""What doctor says of images, subnets and inputs."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.image import image_parameter
from spindown.error import AccessDenied, NotFound, SpindownError
from spindown.operate.doctor.finding import Severity
from tests.unit.operate.examined import IMAGE, REGION, ZONES, Examined, a_config

IMAGE_LINE = "image of classify in us-west-2, x86_64"
BAKED = {"mode": "bake", "parameters": {"x86_64": "/aws/service/base"}}


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        pytest.param({"state": "pending"}, "an image that is available", id="pending"),
        pytest.param({"architecture": "arm64"}, "one for x86_64", id="architecture"),
        pytest.param({"root_gib": 101}, "a root of 100 GiB at most", id="root too large"),
        pytest.param(
            {"root_device": "/dev/xvda"}, "a root device /dev/sda1", id="root under another name"
        ),
    ],
)
def test_an_image_that_cannot_be_started_blocks(change: dict[str, object], needed: str) -> None:
    world = Examined()
    world.set_image(**change)

    finding = world.finding(IMAGE_LINE)

    assert (finding.needed, finding.severity) == (needed, Severity.BLOCKED)


def test_a_root_that_is_just_large_enough_will_do() -> None:
    world = Examined()
    world.set_image(root_gib=100)

    assert world.severity(IMAGE_LINE) is Severity.GOOD


@pytest.mark.parametrize("gone", ["parameters", "images"])
def test_an_image_that_is_not_there_blocks(gone: str) -> None:
    world = Examined()
    getattr(world.account, gone).clear()

    finding = world.finding(IMAGE_LINE)

    assert finding.severity is Severity.BLOCKED
    assert IMAGE in finding.found


def test_an_image_that_may_not_be_seen_only_warns() -> None:
    world = Examined()
    world.account.faults["image"] = AccessDenied("DescribeImages: UnauthorizedOperation: no")

    assert world.severity(IMAGE_LINE) is Severity.WARNING


def test_once_deployed_the_baked_image_must_be_there_too() -> None:
    world = Examined(config=a_config(image=BAKED))
    world.account.parameters[REGION, "/aws/service/base"] = "ami-1"

    base, baked = (f for f in world.report().findings if f.what == IMAGE_LINE)

    assert base.severity is Severity.GOOD
    assert baked.severity is Severity.BLOCKED
    assert image_parameter("demo", "classify", "x86_64") in baked.found
    assert "start-image-pipeline-execution" in baked.remedy


@pytest.mark.parametrize(
    ("free", "severity"), [(0, Severity.WARNING), (3, Severity.WARNING), (4, Severity.GOOD)]
)
def test_a_subnet_has_room_for_max_workers(free: int, severity: Severity) -> None:
    world = Examined()
    world.set_subnet(ZONES[0], free_addresses=free)

    finding = world.finding("subnet subnet-a")

    assert finding.severity is severity
    assert finding.found.split()[0] == f"{free}"
    assert finding.found.endswith("us-west-2a")
    assert world.report().can_launch


def test_no_subnet_with_room_blocks() -> None:
    world = Examined()
    for zone in ZONES:
        world.set_subnet(zone, free_addresses=0)

    assert world.severity("subnet subnet-a") is Severity.BLOCKED
    assert world.severity("subnet subnet-b") is Severity.BLOCKED


def test_a_subnet_in_another_zone_than_said_is_found() -> None:
    world = Examined()
    world.set_subnet(ZONES[0], free_addresses=250, really_in=ZONES[1])

    assert world.finding("subnet subnet-a").found.endswith("us-west-2b")
    assert world.severity("subnet subnet-a") is Severity.WARNING


def test_a_subnet_that_is_not_there_is_found() -> None:
    world = Examined()
    del world.account.networks[REGION, "subnet-a"]

    assert world.finding("subnet subnet-a").found == "missing"


def test_subnets_that_a_deploy_will_make_are_not_asked_about() -> None:
    findings = Examined(is_deployed=False).report().findings

    assert not any(finding.what.startswith("subnet") for finding in findings)


def test_an_existing_network_is_examined_before_the_deploy() -> None:
    config = a_config()
    config["deployment"]["network"] = {
        "vpc_id": "vpc-1",
        "subnets": {ZONES[0]: "subnet-a", ZONES[1]: "subnet-f"},
    }
    world = Examined(config=config, is_deployed=False)

    assert world.severity("subnet subnet-a") is Severity.GOOD
    assert world.severity("subnet subnet-f") is Severity.WARNING


def test_an_unreadable_input_is_said_and_blocks_nothing() -> None:
    world = Examined()
    world.account.unreadable = {"s3://documents/scans/": AccessDenied("ListObjectsV2: 403")}

    finding = world.finding("input s3://documents/scans/")

    assert (finding.found, finding.severity) == ("ListObjectsV2: 403", Severity.WARNING)
    assert world.report().can_launch


KEY = "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def with_reading() -> Examined:
    """Return a workload that reads secrets and models, by a key of its own."""
    run = {
        "entrypoint": "job:run",
        "code": ".",
        "secrets": {"TOKEN": "hub/token"},
        "metadata_access": True,
    }
    return Examined(config=a_config(run=run, models=["s3://weights/ocr/"], kms_keys=[KEY]))


def test_what_a_workload_reads_besides_is_looked_at() -> None:
    world = with_reading()

    for line in ("input s3://weights/ocr/", "secret hub/token", f"key {KEY}"):
        assert world.severity(line) is Severity.GOOD


@pytest.mark.parametrize(
    ("line", "error", "severity"),
    [
        pytest.param("secret hub/token", NotFound("gone"), Severity.BLOCKED, id="no such secret"),
        pytest.param(
            "secret hub/token", AccessDenied("no"), Severity.WARNING, id="not ours to see"
        ),
        pytest.param(f"key {KEY}", NotFound("gone"), Severity.WARNING, id="no such key"),
        pytest.param("input s3://weights/ocr/", NotFound("gone"), Severity.WARNING, id="no bucket"),
    ],
)
def test_what_cannot_be_read_is_said(line: str, error: SpindownError, severity: Severity) -> None:
    world = with_reading()
    world.account.unreadable = {line.partition(" ")[2]: error}

    finding = world.finding(line)

    assert (finding.found, finding.severity) == (str(error), severity)
    assert finding.remedy
    assert world.report().can_launch is (severity is not Severity.BLOCKED)


def a_sourced_world() -> Examined:
    source = {"bucket": "documents", "prefix": "scans/"}
    return Examined(config=a_config(sources=[source, {**source, "suffix": ".png"}]))


def test_a_source_whose_bucket_tells_of_objects_is_good() -> None:
    world = a_sourced_world()
    world.account.telling_buckets.add("documents")

    # However many sources it has.
    assert world.severity("source s3://documents") is Severity.GOOD


def test_a_source_whose_bucket_is_silent_is_said_with_a_mend() -> None:
    world = a_sourced_world()

    finding = world.finding("source s3://documents")

    assert finding.severity is Severity.WARNING
    assert "--bucket documents" in finding.remedy
    assert "EventBridgeConfiguration" in finding.remedy
    # Other work starts without it.
    assert world.report().can_launch


def test_a_source_that_is_the_own_bucket_is_warned_of() -> None:
    own = {"bucket": "demo-bucket", "prefix": "workloads/"}
    config = a_config(sources=[own], inputs=["s3://demo-bucket/workloads/"])
    world = Examined(config=config)
    world.account.telling_buckets.add("demo-bucket")

    found = [one for one in world.report().findings if one.what == "source s3://demo-bucket"]

    assert [one.severity for one in found] == [Severity.WARNING, Severity.GOOD]


@pytest.mark.parametrize("is_heard", [True, False])
def test_texts_have_come_through_only_where_the_alarm_knows_it(is_heard: bool) -> None:
    config = a_config()
    config["deployment"]["alarm_webhook"] = "hook"
    world = Examined(config=config, is_webhook_heard=is_heard)
    (finding,) = [one for one in world.report().findings if one.what == "webhook hook"]

    assert finding.severity is Severity.GOOD
    assert ("hour" in finding.found) is is_heard


@pytest.mark.parametrize("is_deployed", [True, False], ids=["after a deploy", "before a deploy"])
def test_a_webhook_s_secret_must_be_read_by_its_function(is_deployed: bool) -> None:
    config = a_config()
    config["deployment"]["alarm_webhook"] = "hook"
    world = Examined(config=config, is_deployed=is_deployed)
    assert world.severity("webhook hook") is Severity.GOOD

    # Whoever asks may not see the secret, and after a deploy need not.
    world.account.unreadable = {"hook": AccessDenied("no")}
    asked = Severity.GOOD if is_deployed else Severity.WARNING
    assert world.severity("webhook hook") is asked
    world.unread_webhook = AccessDenied("kms:Decrypt")

    assert world.severity("webhook hook") is Severity.WARNING
    assert world.report().can_launch


def test_a_source_that_nobody_may_look_at_is_said_with_why() -> None:
    world = a_sourced_world()
    world.account.unreadable = {"documents": AccessDenied("no")}

    assert world.finding("source s3://documents").found == "no"


AWAY = "eu-west-1"


def a_spread_config() -> dict[str, Any]:
    config = a_config()
    config["deployment"]["outpost"] = {AWAY: {"zones": [f"{AWAY}a"]}}
    return config


def test_before_a_deploy_every_region_is_examined() -> None:
    world = Examined(config=a_spread_config(), is_deployed=False)

    assert world.severity(f"CDK in {AWAY}") is Severity.WARNING
    assert world.severity(f"image of classify in {AWAY}") is Severity.WARNING
    assert world.severity(f"image of classify in {REGION}") is Severity.GOOD


def test_an_outpost_not_deployed_is_said_and_stops_nothing() -> None:
    world = Examined(config=a_spread_config())

    finding = world.finding(f"outpost in {AWAY}")

    assert finding.severity is Severity.WARNING
    assert finding.found.startswith("classify: ")
    assert "spindown deploy" in finding.remedy
    assert world.report().can_launch


def test_an_outpost_that_cannot_be_read_says_why() -> None:
    world = Examined(config=a_spread_config())
    settings, _ = world.settings.workload("classify")
    world.settings.deploy(replace(settings, outposts=(AWAY,), unread={AWAY: "no answer"}))

    assert world.finding(f"outpost in {AWAY}").found == "classify: no answer"
