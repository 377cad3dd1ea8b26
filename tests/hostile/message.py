"""Messages that nobody honest would send, in a deployment that works: each ends, none buys much."""

import json
from collections import Counter
from typing import Any

from hypothesis import strategies as st

from spindown.contract.job.manifest import JobState, decode_manifest, manifest_key
from spindown.contract.job.message import parse_job
from spindown.error import ContractError
from tests.hostile.row import VALUES
from tests.proof.recovery import recover
from tests.proof.world import BUCKET, a_world

#: What a message may say, each field with what is right for it.
_RIGHT: dict[str, list[Any]] = {
    "items": [[1, 2], [], [None], [{"a": "b"}], list(range(30))],
    "items_uri": [f"{BUCKET}gone.jsonl", "s3://another/x.jsonl", f"{BUCKET}bad.jsonl"],
    "prefix_uri": [f"{BUCKET}none/", BUCKET, "s3://another/"],
    "stored": [True, "0" * 64],
    "job_id": ["a", "a.00000", "x" * 128, "..", "../../x"],
    "batch_id": ["a"],
    "tenant": ["a"],
    "parent": ["a", "a.00000"],
    "params": [{}, {"seed": 1}],
    "schema": [1, 0],
    "code": ["s3://another/code.zip"],
}
# A later schema waits for the code that reads it: that is another story (test_newer).
_WRONG = [value for value in VALUES if not isinstance(value, int | float) or value in {-1, True}]

_values = st.recursive(
    st.sampled_from(_WRONG),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_fields = st.sampled_from(sorted(_RIGHT)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(_RIGHT[name]) | _values)
)
_bodies = (
    st.lists(_fields, min_size=1, max_size=5).map(lambda pairs: json.dumps(dict(pairs)))
    | _values.map(json.dumps)
    | st.text(max_size=60)
    | st.sampled_from(["", "{", "[" * 5000, '{"items": [1], "items": [2]}', '{"items": [NaN]}'])
)


#: Bodies, each with how often it is sent.
MESSAGES = st.lists(st.tuples(_bodies, st.integers(1, 3)), min_size=1, max_size=6)


def check(sent: list[tuple[str, int]]) -> None:
    """Send each body so many times beside an honest job, and go on until nothing is left."""
    world = a_world()
    world.sources[f"{BUCKET}bad.jsonl"] = b'"a"\n{\n\xff\xfe\n'
    honest = world.submit(3)
    for body, times in sent:
        for _ in range(times):
            world.send_text(body)

    recover(world)

    manifest = decode_manifest(world.objects.get(manifest_key(honest)).data)
    assert (manifest.state, manifest.items) == (JobState.COMPLETED, 3)
    letters = Counter(world.dead_letters.bodies())
    assert (
        Counter(body for body, times in sent for _ in range(times) if not _is_a_job(body))
        <= letters
    )
    # The workers that honest work has, and once more the same for what came with it.
    assert len(world.instances) <= 2 * world.policy.max_workers


def _is_a_job(body: str) -> bool:
    try:
        return bool(parse_job(body))
    except ContractError:
        return False
