"""Events that S3 never sent: each is a job within `inputs`, or a dead letter, and buys no more."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindown.contract.job.manifest import JobState, decode_manifest, manifest_key
from spindown.contract.job.message import parse_job
from tests.hostile.message import check
from tests.hostile.row import VALUES
from tests.proof.recovery import recover
from tests.proof.world import a_world
from tests.unit.contract.test_s3_event import of_eventbridge, of_s3

#: What a bucket, a key, a version or an event may be called by who is not S3.
_NAMES = [
    *VALUES,
    *("s3", "..", "../../etc", "a/../b", "\x00", "\x1b[2J", "\r\nx", "in/\u202egnp.exe"),
    *("%00", "%ff", "+" * 2000, "é" * 1024, "x" * 100_000, "in/" * 341, "#", "?versionId=v"),
]
_named = st.sampled_from(_NAMES) | st.text(max_size=30)
_about = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("size", "eTag", "etag", "versionId", "version-id"), _named),
)


def _elsewhere(event: dict[str, Any], bucket: Any) -> dict[str, Any]:
    for place in (event.get("detail"), *(one["s3"] for one in event.get("Records", []))):
        if place:
            place["bucket"] = {"name": bucket}
    return event


_events = (
    st.builds(lambda key, about: of_s3(key, **about), _named, _about)
    | st.builds(lambda key, about: of_eventbridge(key, **about), _named, _about)
    | st.builds(_elsewhere, st.sampled_from([of_s3(), of_eventbridge()]), _named)
)
_whole = _events.map(json.dumps)
_cut = st.tuples(_whole, st.integers(0, 400)).map(lambda pair: pair[0][: pair[1]])
_EVENTS = st.lists(st.tuples(_whole | _cut, st.integers(1, 3)), min_size=1, max_size=5)


@settings(max_examples=25)
@given(_EVENTS)
def test_every_forged_event_ends_and_honest_work_is_done(sent: list[tuple[str, int]]) -> None:
    check(sent)


def test_an_event_of_thousands_of_objects_does_each_once() -> None:
    world = a_world(max_items_per_job=500)
    (record,) = of_s3()["Records"]
    records = [
        {**record, "s3": {**record["s3"], "object": {"key": f"in/{n}", "eTag": "e"}}}
        for n in range(2_000)
    ]
    world.send_text(json.dumps({"Records": records}))
    world.send_text(json.dumps({"Records": records[::-1]}))

    recover(world)

    manifests = [
        decode_manifest(world.objects.get(one.key).data)
        for one in world.objects.list("jobs/")
        if one.key.endswith("/manifest.json")
    ]
    (parent,) = [one for one in manifests if one.state is JobState.SPLIT]
    assert len(parent.children) == 4
    assert sum(one.items_done for one in manifests) == 2_000
    assert not world.dead_letters.bodies()


@pytest.mark.parametrize("form", [of_s3, of_eventbridge])
def test_an_event_of_a_bucket_outside_inputs_reads_nothing(form: Any) -> None:
    world = a_world()
    event = json.dumps(_elsewhere(form(), "payroll"))
    world.sources["s3://payroll/in/a b+é.png"] = b"wages"
    world.send_text(event)

    recover(world)

    manifest = decode_manifest(world.objects.get(manifest_key(parse_job(event).job_id or "")).data)
    assert manifest.state is not JobState.RUNNING
    assert manifest.items_done - manifest.items_failed == 0
