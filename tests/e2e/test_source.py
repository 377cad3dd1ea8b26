"""Objects in a bucket that tells EventBridge of them: each write is one job with one result."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from spindown.contract.job.message import parse_job
from tests.e2e.world import World, deployed, found, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.proof

BUCKET = "scans"
_SOURCES = f"""
[workload.count]
inputs = ["s3://{BUCKET}/in/"]

[[workload.count.sources]]
bucket = "{BUCKET}"
prefix = "in/"
suffix = ".png"

[[workload.count.sources]]
bucket = "{BUCKET}"
prefix = "in/all/"
"""
_READ = """
from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        yield Result(item, {"read": item.path.read_text(), "of": item.value})
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = write_deployment(tmp_path_factory.mktemp("sources"), "count")
    (path.parent / "count" / "count.py").write_text(_READ, encoding="utf-8")
    head, workload = path.read_text(encoding="utf-8").split("\n[workload.count.run]")
    path.write_text(f"{head}{_SOURCES}\n[workload.count.run]{workload}", encoding="utf-8")
    with deployed(path) as world:
        world.client("s3").create_bucket(Bucket=BUCKET)
        yield world


def of_source(world: World) -> dict[str, Any]:
    """Return what doctor finds of the bucket."""
    report = world.spindown_json("doctor")
    (finding,) = [one for one in report["findings"] if one["what"] == f"source s3://{BUCKET}"]
    return dict(finding)


def all_events(world: World) -> str:
    """Let a queue hear of every object of any bucket; return its URL."""
    events, sqs = world.client("events"), world.client("sqs")
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    events.put_rule(Name="all", EventPattern=json.dumps({"source": ["aws.s3"]}))
    target = {"Id": "all", "Arn": asked["Attributes"]["QueueArn"]}
    events.put_targets(Rule="all", Targets=[target])
    return str(url)


def told(world: World, url: str, bodies: list[str]) -> list[str]:
    """Take what events have come beside those that are known; return all."""
    sqs = world.client("sqs")
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            bodies.append(message["Body"])
    return bodies


def test_each_write_of_an_object_gives_exactly_one_result(world: World) -> None:
    silent = of_source(world)
    s3 = world.client("s3")
    on: dict[str, Any] = {"EventBridgeConfiguration": {}}
    s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration=on)
    heard = of_source(world)
    inbox = all_events(world)
    puts = [
        ("in/a b+é.png", "one"),
        # The same key again, and once more with the same bytes.
        ("in/a b+é.png", "two"),
        ("in/a b+é.png", "two"),
        ("in/b.png", "three"),
        # Two sources tell of this one.
        ("in/all/c.png", "four"),
        # A folder, and what no source names.
        ("in/all/", ""),
        ("in/d.txt", "no"),
        ("out/e.png", "no"),
        ("inside.png", "no"),
    ]
    for key, text in puts:
        s3.put_object(Bucket=BUCKET, Key=key, Body=text.encode())
    s3.delete_object(Bucket=BUCKET, Key="in/d.txt")
    bodies: list[str] = []
    found(lambda: len(told(world, inbox, bodies)) > len(puts))

    written = Counter(key for key, _ in puts[:5])
    jobs = {}
    for body in bodies:
        event = json.loads(body)
        about = event["detail"]["object"]
        if event["detail-type"] == "Object Created" and about["key"] in written:
            jobs[parse_job(body).job_id or ""] = about["key"]
            # S3 may send it twice.
            world.send("count", body)
    assert Counter(jobs.values()) == written
    for job_id in jobs:
        assert world.finished(job_id).state == "completed"
    found(lambda: is_quiet(world.session.status("count")))

    for job_id, key in jobs.items():
        (record,) = world.records(job_id)
        address = f"s3://{BUCKET}/{key}"
        # As it is when the job runs: an early job of a key that is written again may read either.
        assert record["result"]["of"] == address
        assert record["result"]["read"] in {text for name, text in puts if name == key}
    manifests = {
        one.key.split("/")[1]
        for one in world.session.work_store("count").list("jobs/")
        if one.key.endswith("/manifest.json")
    }
    assert jobs.keys() <= manifests
    # Nothing else was read: folders have no items.
    others = [record for job_id in manifests - jobs.keys() for record in world.records(job_id)]
    assert [record for record in others if record["status"] != "failed"] == []
    assert (silent["severity"], heard["severity"]) == ("warning", "ok")
    assert "EventBridge" in silent["needed"]


def test_an_event_of_what_inputs_do_not_cover_reads_nothing(world: World) -> None:
    s3 = world.client("s3")
    s3.put_object(Bucket=BUCKET, Key="out/wages.png", Body=b"wages")
    event = {
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": BUCKET}, "object": {"key": "out/wages.png", "etag": "e"}},
    }
    world.send("count", event)
    job_id = parse_job(json.dumps(event)).job_id or ""

    progress = world.finished(job_id)

    assert (progress.items_done, progress.items_failed) == (0, 1)
    (record,) = world.records(job_id)
    assert record["result"] is None
