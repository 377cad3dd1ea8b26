from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.manifest import JobState, Manifest
from spindown.domain.fleet import Lease
from spindown.domain.lease import (
    ClaimVerdict,
    JobRecord,
    claim_verdict,
    extended_until,
    is_claimable,
    is_left_to_others,
    must_release,
    outage_wait,
    put_back_for,
    visibility_not_after,
)
from spindown.domain.policy import Policy
from spindown.domain.retry_or_dead_letter import Failure, is_excused
from tests.builders import NOW, a_failure, a_lease, minutes


@dataclass(frozen=True, kw_only=True)
class Job:
    job_id: str = "job-1"
    epoch: int = 1
    owner: str = "i-1/0"
    state: str = "running"
    code: str = ""
    ran_out_gib: float = 0.0
    failures: Sequence[Failure] = ()


def test_a_manifest_is_a_job_record() -> None:
    failure = Failure(at=NOW, instance_id="i-1", epoch=1, kind="loss", reason="gone")
    manifest: JobRecord = Manifest(
        job_id="job-1", epoch=1, owner="i-1/0", state=JobState.FAILED, failures=(failure,)
    )

    verdict = claim_verdict(manifest, None, instance_id="i-2", now=NOW)

    assert verdict is ClaimVerdict.DEAD_LETTER


@pytest.mark.parametrize(
    ("job", "lease", "expected"),
    [
        pytest.param(None, None, True, id="never claimed"),
        pytest.param(Job(), None, True, id="released: no lease row"),
        pytest.param(Job(), a_lease(), False, id="held"),
        pytest.param(Job(), a_lease(deadline=NOW), True, id="lapsed this moment"),
        pytest.param(Job(), a_lease(job_id="job-2"), True, id="its owner has gone on"),
        pytest.param(Job(epoch=2), a_lease(epoch=1), True, id="the lease is of an older epoch"),
        pytest.param(Job(epoch=1), a_lease(epoch=2), True, id="the manifest fell back"),
    ],
)
def test_a_job_is_claimable_unless_its_owner_holds_it(
    job: Job | None, lease: Lease | None, expected: bool
) -> None:
    assert is_claimable(job, lease, NOW) is expected


OURS = (a_failure(at=NOW - minutes(9)),)


@pytest.mark.parametrize(
    ("job", "lease", "expected"),
    [
        pytest.param(None, None, ClaimVerdict.CLAIM, id="new"),
        pytest.param(Job(), None, ClaimVerdict.CLAIM, id="free"),
        pytest.param(Job(), a_lease(), ClaimVerdict.PUT_BACK, id="held"),
        pytest.param(Job(state="completed"), a_lease(), ClaimVerdict.DELETE, id="completed"),
        pytest.param(Job(state="cancelled"), None, ClaimVerdict.DELETE, id="cancelled"),
        pytest.param(Job(state="split"), None, ClaimVerdict.DELETE, id="split"),
        pytest.param(Job(state="failed"), None, ClaimVerdict.DEAD_LETTER, id="failed"),
        pytest.param(
            Job(state="failed", epoch=0), None, ClaimVerdict.CLAIM, id="refused as a twin"
        ),
        pytest.param(
            Job(state="failed", code="type-unknown"), None, ClaimVerdict.CLAIM, id="begun, refused"
        ),
        pytest.param(
            Job(state="failed", code="no-such-size", ran_out_gib=64.0),
            None,
            ClaimVerdict.DEAD_LETTER,
            id="too large for any",
        ),
        pytest.param(Job(failures=OURS), None, ClaimVerdict.PUT_BACK, id="we have just failed it"),
    ],
)
def test_what_the_receiver_of_a_message_does(
    job: Job | None, lease: Lease | None, expected: ClaimVerdict
) -> None:
    assert claim_verdict(job, lease, instance_id="i-1", now=NOW) is expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(Job(), False, id="never failed"),
        pytest.param(Job(failures=OURS), True, id="failed here nine minutes ago"),
        pytest.param(Job(failures=OURS, epoch=2), False, id="another has had it"),
        pytest.param(Job(failures=(a_failure(instance_id="i-2"),)), False, id="failed elsewhere"),
        pytest.param(
            Job(failures=(a_failure(at=NOW - minutes(10)),)), False, id="ten minutes have passed"
        ),
        pytest.param(
            Job(failures=(*OURS, a_failure(instance_id="i-2", epoch=2)), epoch=2),
            False,
            id="failed here, then elsewhere",
        ),
    ],
)
def test_a_worker_leaves_a_job_that_it_has_failed_to_others(job: Job, expected: bool) -> None:
    assert is_left_to_others(job, "i-1", NOW) is expected


@pytest.mark.parametrize(
    ("lease", "jitter", "seconds"),
    [
        pytest.param(None, 0.0, 60, id="nobody holds it"),
        pytest.param(a_lease(deadline=NOW + timedelta(seconds=9)), 0.0, 60, id="at least a minute"),
        pytest.param(a_lease(), 0.0, 300, id="the rest of the lease"),
        pytest.param(a_lease(), 0.5, 315, id="with jitter"),
        pytest.param(
            a_lease(deadline=NOW + timedelta(days=2)), 0.9, 39600, id="within SQS's limit"
        ),
    ],
)
def test_a_held_message_is_put_back_for_the_rest_of_its_lease(
    lease: Lease | None, jitter: float, seconds: float
) -> None:
    assert put_back_for(lease, NOW, jitter).total_seconds() == seconds


@given(st.integers(0, 10**6), st.floats(0.0, 1.0, exclude_max=True))
def test_a_message_never_comes_back_before_its_lease_has_lapsed(rest: int, jitter: float) -> None:
    lease = a_lease(deadline=NOW + timedelta(seconds=rest))

    found = put_back_for(lease, NOW, jitter)

    assert found >= min(timedelta(seconds=max(60, rest)), timedelta(hours=11))
    assert found <= timedelta(hours=11)


def test_a_heartbeat_extends_a_lease_never_past_its_bound() -> None:
    policy = Policy(lease_duration=minutes(5))

    assert extended_until(NOW, NOW + minutes(60), policy) == NOW + minutes(5)
    assert extended_until(NOW, NOW + minutes(2), policy) == NOW + minutes(2)


def test_a_job_is_released_an_hour_before_its_visibility_ends() -> None:
    assert visibility_not_after(NOW) == NOW + timedelta(hours=12)
    assert not must_release(NOW - timedelta(hours=10, minutes=59), NOW)
    assert must_release(NOW - timedelta(hours=11), NOW)


@pytest.mark.parametrize(
    ("receives", "wait"),
    [(0, 1), (1, 1), (2, 2), (5, 16), (6, 30), (1000, 30)],
)
def test_an_outage_is_asked_again_more_and_more_rarely(receives: int, wait: int) -> None:
    assert outage_wait(receives, 0.0) == minutes(wait)
    assert outage_wait(receives, 0.5) == minutes(wait) + timedelta(seconds=15)


@pytest.mark.parametrize(("hours", "excused"), [(0, True), (11.9, True), (12, False)])
def test_an_outage_excuses_a_job_for_half_a_day(hours: float, excused: bool) -> None:
    assert is_excused(NOW - timedelta(hours=hours), NOW) is excused
