"""A manifest with something in every field."""

from datetime import UTC, datetime

from spindown.contract.job.manifest import JobState, Manifest, Part, StateFile
from spindown.domain.retry_or_dead_letter import Failure

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
WHOLE = Manifest(
    job_id="j",
    epoch=3,
    owner="i-1/0",
    state=JobState.RUNNING,
    next_item=2,
    items=5,
    parts=(Part(key="k", first=1, last=1, bytes=10, sha256="s", failed=1),),
    user_state=(StateFile(path="p", key="k", bytes=1, sha256="s", stored_at=AT),),
    failures=(Failure(at=AT, instance_id="i-1", epoch=1, kind="loss", reason="r"),),
    claimed_at=AT,
    children=("a", "b"),
    extra={"later": {"a": 1}},
)
