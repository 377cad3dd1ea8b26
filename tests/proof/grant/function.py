"""What each statement of a function's role is needed for, as something that the function does.

A deed prepares what the function finds, runs the deployed function, and tells whether it came to
what it is there for. A function that fails raises FunctionFailed.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from spindown.contract.codec import encode
from spindown.contract.job.batch import Batch, batch_key, open_key, submitted_key
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.contract.job.message import MESSAGE_BYTES_MAX
from spindown.contract.row import (
    BACKLOG,
    BOOT_PHASE,
    BacklogRow,
    RateRow,
    ShapeRow,
    SpendRow,
    alert_sort_key,
    image_sort_key,
    launch_sort_key,
    lease_sort_key,
    machine_sort_key,
    shape_sort_key,
    worker_sort_key,
)
from spindown.domain.alert import AlertState
from spindown.domain.bake_or_bootstrap import ImageHistory
from spindown.domain.boot import BootPhase
from spindown.domain.fleet import Lease, WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.job.result import read_progress
from spindown.local.environment import ACCOUNT
from spindown.port import Absent
from spindown.reason_text import say
from tests.day import day_rows
from tests.local.waiting import until
from tests.proof.grant.image_builder import IMAGE, REGION
from tests.proof.grant.world import INTAKE, INTERRUPTION, OFFERS, SCALER, TEARDOWN, World
from tests.work import a_worker

Deed = Callable[[World], bool]
Prompt = Callable[[World], Mapping[str, Any]]

CATALOGUE = "offers/catalogue.json"
GONE = "i-0123456789abcdef0"
#: What a function remembers for minutes is seen to be missing only when it starts afresh.
REMEMBERED = frozenset({"ReadSettings", "SeeMissingObjects", "KeepOffers", "SeeOffers"})
#: Seconds within which what was woken has run.
_SOON = 10
#: Receives after which a message is replaced by a copy.
WORN = 50


def prompt_scaler(world: World) -> Mapping[str, Any]:
    """Tick."""
    return world.tick()


def prompt_interruption(world: World) -> Mapping[str, Any]:
    """Tell of the end of an instance that held a job, which is followed by a tick."""
    hold_job(world)
    return world.invoke("interruption", end_of(GONE, region=world.system.region))


def prompt_offers(world: World) -> Mapping[str, Any]:
    """Do what is done every hour."""
    return world.invoke("offers", {"source": "spindown.tick"})


def end_of(instance_id: str, *, region: str) -> Mapping[str, Any]:
    """Return EC2's event about an instance that is gone."""
    return {
        "source": "aws.ec2",
        "detail-type": "EC2 Instance State-change Notification",
        "region": region,
        "time": datetime.now(UTC).isoformat(),
        "detail": {"instance-id": instance_id, "state": "terminated"},
    }


def leaving_out(workload: str, *, region: str, answer_to: str) -> Mapping[str, Any]:
    """Return CloudFormation's request when a deploy leaves a workload out."""
    properties = {
        "Deployment": "iam",
        "Home": region,
        "Regions": [region],
        "Table": "iam--ledger",
        "Workloads": ["count", "other"],
    }
    before = {**properties, "Workloads": ["count", "other", workload]}
    return {
        "RequestType": "Update",
        "RequestId": "1",
        "StackId": "stack",
        "LogicalResourceId": "Fleet",
        "ResponseURL": answer_to,
        "ResourceProperties": properties,
        "OldResourceProperties": before,
    }


def hold_job(world: World) -> None:
    """Leave a job in the hands of an instance that is no more."""
    now, ledger = datetime.now(UTC), world.session.ledger("count")
    world.send({"items": ["a"]})
    url = world.session.workload("count").queue_url
    (message,) = world.client("sqs").receive_message(QueueUrl=url)["Messages"]
    worker = a_worker(
        GONE,
        state=WorkerState.BUSY,
        launched_at=now - timedelta(hours=1),
        checked_in_at=now - timedelta(hours=1),
        heartbeat_at=now,
        busy_slots=1,
        version=3,
    )
    lease = Lease(
        instance_id=GONE,
        slot=0,
        job_id="held",
        epoch=1,
        receipt_handle=message["ReceiptHandle"],
        deadline=now + timedelta(minutes=5),
        not_after=now + timedelta(hours=1),
        claimed_at=now,
        sent_at=now,
    )
    ledger.write(ledger.put(machine_sort_key(GONE), worker))
    ledger.write(ledger.put(worker_sort_key(GONE), worker))
    ledger.write(ledger.put(lease_sort_key(GONE, 0), lease))


def answers(prompt: Prompt) -> Deed:
    """Return the deed of not failing."""
    return lambda world: bool(prompt(world))


def ranks(prompt: Prompt) -> Deed:
    """Return the deed of finding out what is on sale."""

    def deed(world: World) -> bool:
        world.send({"items": ["a"]})
        unread = say(Reason(ReasonCode.PRICES_UNREAD, {"said": ""}))
        return unread not in prompt(world)["summary"]

    return deed


def makes_catalogue(prompt: Prompt) -> Deed:
    """Return the deed of writing a catalogue where none is."""

    def deed(world: World) -> bool:
        world.send({"items": ["a"]})
        bucket = world.session.bucket
        s3 = world.client("s3")
        kept = s3.get_object(Bucket=bucket, Key=CATALOGUE)["Body"].read()
        s3.delete_object(Bucket=bucket, Key=CATALOGUE)
        try:
            prompt(world)
            return bool(s3.list_objects_v2(Bucket=bucket, Prefix=CATALOGUE)["KeyCount"])
        finally:
            s3.put_object(Bucket=bucket, Key=CATALOGUE, Body=kept)

    return deed


def keeps_decision(prompt: Prompt) -> Deed:
    """Return the deed of writing the decision down."""

    def deed(world: World) -> bool:
        prefix = "decisions/count/"
        for found in world.session.store.list(prefix):
            world.client("s3").delete_object(Bucket=world.session.bucket, Key=found.key)
        prompt(world)
        return bool(list(world.session.store.list(prefix)))

    return deed


def requeues(prompt: Prompt) -> Deed:
    """Return the deed of giving a job back that nobody works on any more."""

    def deed(world: World) -> bool:
        prompt(world)
        return world.session.queue("count").backlog().visible == 1

    return deed


def requeue_by_scaler(world: World) -> bool:
    """Give a job back whose instance EC2 does not know any more."""
    hold_job(world)
    return requeues(prompt_scaler)(world)


def tells(prompt: Prompt) -> Deed:
    """Return the deed of telling people of what only they can fix."""

    def deed(world: World) -> bool:
        ledger, now = world.session.ledger("count"), datetime.now(UTC)
        ledger.write(ledger.change(launch_sort_key("bad"), {"state": "no such state"}))
        seen = AlertState(since=now - timedelta(hours=1), seen_at=now)
        ledger.write(ledger.put(alert_sort_key("bad-rows"), seen))
        prompt(world)
        return bool(world.heard())

    return deed


def judges(world: World) -> bool:
    """Judge what an item costs, and count lost jobs."""
    said = prompt_offers(world)
    return not said["not_judged"] and not said["not_lost"]


def tells_what_is_dear(world: World) -> bool:
    """Tell people that an item became dear."""
    ledger, now = world.session.ledger("count"), datetime.now(UTC)
    for days, items in (*((day, 10) for day in range(7)), *((day, 1000) for day in range(7, 21))):
        spent = SpendRow(
            dollars=1.0, busy_seconds=3600.0, boot_seconds=60.0, items=items, launches=1
        )
        for sort, row in day_rows(now - timedelta(days=days), spent).items():
            ledger.write(ledger.change(sort, row))
    prompt_offers(world)
    return bool(world.heard())


def starts_build(world: World) -> bool:
    """Have an image baked, since installs have cost more than one does."""
    ledger, now = world.session.ledger("count"), datetime.now(UTC)
    dear = SpendRow(dollars=1000.0, boot_seconds=360_000.0, instances=1000)
    for sort, row in day_rows(now - timedelta(days=1), dear).items():
        ledger.write(ledger.change(sort, row))
    ledger.write(ledger.put(f"{BOOT_PHASE}{BootPhase.INSTALL}", RateRow(samples=(360.0,))))
    prompt_offers(world)
    known = ledger.read().images.get("x86_64")
    return known is not None and bool(known.build)


def sees_image(world: World) -> bool:
    """Note which image a build has made."""
    ledger, now = world.session.ledger("count"), datetime.now(UTC)
    build = f"arn:aws:imagebuilder:{REGION}:{ACCOUNT}:image/iam--count--x86-64/1.0.0/1"
    begun = ImageHistory(build=build, begun_at=now, builds=1)
    ledger.write(ledger.put(image_sort_key("x86_64"), begun))
    prompt_offers(world)
    return ledger.read().images["x86_64"].images == {REGION: IMAGE}


def looks_at_age(world: World) -> bool:
    """See that no message can be old."""
    return not prompt_offers(world)["not_resent"]


def renews(body: Mapping[str, Any]) -> Deed:
    """Return the deed of replacing a message, which has been received often, by a copy."""

    def deed(world: World) -> bool:
        world.send(body)
        sqs, url = world.client("sqs"), world.session.workload("count").queue_url
        for _ in range(WORN):
            assert sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
        ledger = world.session.ledger("count")
        filled = BacklogRow(filled_since=datetime.now(UTC) - timedelta(days=9))
        ledger.write(ledger.put(BACKLOG, filled))
        return bool(prompt_offers(world)["resent"].get("count"))

    return deed


def stops_launches(world: World) -> bool:
    """Keep the scaler out and end what a deploy has left out, as CloudFormation asks."""
    # It goes on trying for as long as it may run, less half a minute to answer in.
    world.client("lambda").update_function_configuration(FunctionName="iam--teardown", Timeout=37)
    with heard_by_cloudformation() as (url, told):
        world.invoke("teardown", leaving_out("gone", region=world.system.region, answer_to=url))
    (answer,) = told
    return bool(answer["Status"] == "SUCCESS")


@contextmanager
def heard_by_cloudformation() -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield where a custom resource may answer, and its answers."""
    told: list[Mapping[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", told
        finally:
            server.shutdown()
            thread.join()


def wakes_intake(world: World) -> bool:
    """Have a message routed that the tick sees."""
    world.send({"items": ["a"], "type": "small"}, "typed")
    world.tick("typed")
    try:
        until(lambda: in_shape(world, "c0m4") == 1, seconds=_SOON)
    except AssertionError:
        return False
    return True


def in_shape(world: World, shape: str) -> int:
    """Return how many messages wait in the queue of a shape of the workload with types."""
    name = f"--typed--{shape}"
    queues = [url for url in world.shape_queues("typed") if url.endswith(name)]
    return sum(world.session.aws.queue(url).backlog().visible for url in queues)


def routes(body: Mapping[str, Any]) -> Deed:
    """Return the deed of moving a message to the queue of its shape, which is made for it."""

    def deed(world: World) -> bool:
        world.send(body, "typed")
        route(world)
        return in_shape(world, "c0m4") == 1

    return deed


def refuses(body: Mapping[str, Any]) -> Deed:
    """Return the deed of making a message a dead letter."""

    def deed(world: World) -> bool:
        world.send(body, "typed")
        route(world)
        return world.buried("typed") == 1

    return deed


def refuses_size(world: World) -> bool:
    """Give up a job of a size that nobody sells."""
    prompt_offers(world)
    return refuses({"items": ["a"], "type": "huge"})(world)


def fails_job(world: World) -> bool:
    """Say in its manifest that a job of a type that is not declared has failed."""
    job_id = f"a{datetime.now(UTC):%H%M%S%f}"
    world.send({"items": ["a"], "type": "large", "job_id": job_id}, "typed")
    route(world)
    return read_progress(job_id, world.session.work_store("typed")).state is JobState.FAILED


def fails_lost_job(world: World) -> bool:
    """Say so of a job whose worker is gone."""
    job_id = f"b{datetime.now(UTC):%H%M%S%f}"
    owned = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=JobState.RUNNING)
    store = world.session.work_store("typed")
    store.put(manifest_key(job_id), encode_manifest(owned))
    world.send({"items": ["a"], "type": "large", "job_id": job_id}, "typed")
    route(world)
    return read_progress(job_id, store).state is JobState.FAILED


def route(world: World) -> Mapping[str, Any]:
    """Route what waits."""
    return world.invoke("intake", {"source": "spindown.nudge", "workload": "typed"})


def a_left_queue(world: World, workload: str) -> None:
    """Leave the queue of a shape that is just being removed."""
    name, at = f"iam--{workload}--c0m8", datetime.now(UTC) - timedelta(days=40)
    url = world.client("sqs").create_queue(QueueName=name)["QueueUrl"]
    row = ShapeRow(shape="c0m8", url=url, used_at=at, closing_at=at, removing_at=at)
    ledger = world.session.ledger(workload)
    ledger.write(ledger.put(shape_sort_key("c0m8"), row))


def removes_queue(world: World) -> bool:
    """Remove a queue that nobody uses."""
    a_left_queue(world, "count")
    prompt_offers(world)
    return not world.shape_queues("count")


def takes_queues_along(world: World) -> bool:
    """Remove the queues of a workload that a deploy has left out."""
    a_left_queue(world, "gone")
    return stops_launches(world) and not world.shape_queues("gone")


def follows(state: JobState) -> Deed:
    """Return the deed of what a look does whose first batch has ended so, and another waits."""

    def deed(world: World) -> bool:
        now = datetime.now(UTC)
        first, second = f"a{now:%H%M%S%f}", f"b{now:%H%M%S%f}"
        for name, after in ((first, ""), (second, first)):
            index = Batch(batch_id=name, workload="count", jobs=(f"{name}-00000",), after=after)
            world.store.put(batch_key(name), json.dumps(encode(index)).encode(), condition=Absent())
            body = json.dumps({"items": ["a"], "job_id": f"{name}-00000", "batch_id": name})
            world.store.put(submitted_key(name, 0), f"{body}\n".encode(), condition=Absent())
            world.store.put(open_key(name), b"", condition=Absent())
        manifest = Manifest(
            job_id=f"{first}-00000", epoch=1, owner="", state=state, items=0, finished_at=now
        )
        world.store.put(manifest_key(manifest.job_id), encode_manifest(manifest))
        world.invoke("scaler", {"source": "spindown.nudge", "workload": "count"})
        marks = {one.key for one in world.store.list("open/")}
        world.store.delete(open_key(second))
        world.store.delete(open_key(first))
        if open_key(first) in marks:
            return False
        if state is JobState.COMPLETED:
            return world.session.queue("count").backlog().visible == 1
        return world.progress(f"{second}-00000").state is JobState.CANCELLED

    return deed


def _runs_ticks(prompt: Prompt, requeue: Deed) -> Mapping[str, Deed]:
    """Return what each statement serves of a function that ticks."""
    return {
        "ReadSettings": answers(prompt),
        "SeeMissingObjects": makes_catalogue(prompt),
        "KeepOffers": ranks(prompt),
        "KeepLedger": answers(prompt),
        "KeepDecisions": keeps_decision(prompt),
        "SeeQueues": answers(prompt),
        "RequeueJobs": requeue,
        "TellPeople": tells(prompt),
    }


#: Role and statement -> what the statement is needed for.
DEEDS: Mapping[tuple[str, str], Deed] = {
    **{
        (role, sid): deed
        for role, deeds in {
            SCALER: {
                **_runs_ticks(prompt_scaler, requeue_by_scaler),
                "WakeIntake": wakes_intake,
                **dict.fromkeys(
                    ("FollowBatches", "StartBatches", "CloseBatches"), follows(JobState.COMPLETED)
                ),
                "CancelBatches": follows(JobState.CANCELLED),
            },
            INTERRUPTION: _runs_ticks(prompt_interruption, requeues(prompt_interruption)),
        }.items()
        for sid, deed in deeds.items()
    },
    (OFFERS, "ReadSettings"): answers(prompt_offers),
    (OFFERS, "SeeMissingObjects"): makes_catalogue(prompt_offers),
    (OFFERS, "KeepOffers"): answers(prompt_offers),
    (OFFERS, "KeepNotes"): looks_at_age,
    (OFFERS, "RenewMessages"): renews({"items": ["a"]}),
    # Its copy bears an id, for which it has no room unless its items lie elsewhere.
    (OFFERS, "KeepBodies"): renews({"items": ["a" * (MESSAGE_BYTES_MAX - 20)]}),
    (OFFERS, "ReadLedger"): judges,
    (OFFERS, "TellPeople"): tells_what_is_dear,
    (OFFERS, "RemoveQueues"): removes_queue,
    (OFFERS, "BakeImages"): starts_build,
    (OFFERS, "SeeImages"): sees_image,
    **dict.fromkeys(
        ((INTAKE, sid) for sid in ("ReadSettings", "KeepShapes", "TakeMessages", "RouteMessages")),
        routes({"items": ["a"], "type": "small"}),
    ),
    # Its copy bears an id, for which it has no room unless its items lie elsewhere.
    (INTAKE, "KeepBodies"): routes(
        {"type": "small", "items": ["a" * (MESSAGE_BYTES_MAX - 40)]},
    ),
    (INTAKE, "SeeMissingObjects"): refuses({"job_id": "j", "stored": "0" * 64}),
    (INTAKE, "GiveUpMessages"): refuses({"items": ["a"], "type": "large"}),
    (INTAKE, "SeeOffers"): refuses_size,
    (INTAKE, "GiveUpJobs"): fails_job,
    (INTAKE, "SeeLeases"): fails_lost_job,
    (TEARDOWN, "KeepReconcileOut"): stops_launches,
    **dict.fromkeys(((TEARDOWN, "FindShapes"), (TEARDOWN, "RemoveQueues")), takes_queues_along),
}
