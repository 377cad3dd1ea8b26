"""What a tick cannot fix by itself a person hears: once, in EC2's words, with what to do."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import tag
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.row import (
    DEPLOYMENT_PARTITION,
    breaker_sort_key,
    lease_sort_key,
    quota_sort_key,
)
from spindown.control.market import refresh
from spindown.domain.batch import EndsTold
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied
from spindown.memory import PortCall
from spindown.port import Key, RefusalKind, Write
from tests.builders import AT_ONCE, a_type
from tests.control import (
    AWAY,
    DEPLOYMENT,
    REGION,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
    with_policy,
)
from tests.failure import failing
from tests.wording import strangers

MINUTE = timedelta(minutes=1)
#: No price ladder and one offer a request, so that what EC2 answers is what was asked.
STRICT = {"band": 0.0, "ladder": ()}


def after_a_job(world: ControlWorld, minutes: int = 0) -> ControlWorld:
    """Let a job come, and time pass."""
    world.send()
    world.tick()
    world.run(minutes)
    return world


def a_full_quota() -> ControlWorld:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.market.limit("L-3819A6DF", 0, region=REGION)
    return after_a_job(world)


def a_full_quota_without_a_known_code() -> ControlWorld:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.market.offer(
        a_type("p6-b200.48xlarge"), region=REGION, zones=ZONES, on_demand=0.2, spot=0.1
    )
    refresh(world.ports)
    pool = a_pool_of("p6-b200.48xlarge")
    world.compute.refuse_next(RefusalKind.QUOTA, "MaxSpotInstanceCountExceeded", pool=pool)
    return after_a_job(world)


def an_account_error() -> ControlWorld:
    world = ControlWorld()
    world.compute.refuse_next(RefusalKind.ACCOUNT, "UnauthorizedOperation")
    return after_a_job(world)


def a_forbidden_type() -> ControlWorld:
    world = with_policy(**STRICT)
    pool = a_pool_of("g4dn.xlarge")
    world.compute.refuse_next(RefusalKind.ACCOUNT, "OptInRequired", pool=pool)
    return after_a_job(world)


def an_unknown_code() -> ControlWorld:
    world = with_policy(**STRICT)
    world.compute.refuse_next(RefusalKind.UNKNOWN, "Novel", pool=a_pool_of("g4dn.xlarge"))
    return after_a_job(world)


def dry_pools() -> ControlWorld:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.dry(*(a_pool_of("g4dn.xlarge", zone) for zone in ZONES))
    return after_a_job(world, 45)


def images_that_never_check_in() -> ControlWorld:
    return after_a_job(with_policy(max_workers=1), 45)


def no_offer() -> ControlWorld:
    return after_a_job(with_policy(max_price_per_hour=0.01), 20)


def late_work() -> ControlWorld:
    return after_a_job(with_policy(max_workers=0), 10)


def work_that_waits_for_a_boot() -> ControlWorld:
    policy = replace(AT_ONCE, start_within=timedelta(seconds=5), tick=timedelta(seconds=1))
    world = ControlWorld(policy=policy)
    return after_a_job(world, 1)


def a_refused_policy() -> ControlWorld:
    world = ControlWorld()
    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
    world.run(12)
    return world


def a_row_that_cannot_be_read() -> ControlWorld:
    world = ControlWorld()
    world.put(lease_sort_key("i-0bad", 0), job_id="job-1")
    world.run(17)
    return world


def workers_that_all_look_stale() -> ControlWorld:
    world = with_policy(max_workers=4, drain_within=10 * MINUTE)
    world.send(40)
    world.tick()
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    world.run(40)
    return world


def keep(error: Exception | None) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Let EC2 end nothing, and say so or not."""

    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method != "terminate":
            return proceed()
        if error is not None:
            raise error
        return {}

    return refuse


def an_idle_worker_of(policy: Policy, error: Exception | None, minutes: int) -> ControlWorld:
    world = ControlWorld(policy=policy)
    world.launched()
    world.empty_the_queue()
    world.interfere = keep(error)
    world.run(minutes, beats=True)
    return world


def an_instance_that_ec2_keeps() -> ControlWorld:
    policy = Policy(idle_timeout=MINUTE, scale_down_delay=MINUTE)
    return an_idle_worker_of(policy, AccessDenied("ec2:TerminateInstances"), 18)


def an_orphan_that_ec2_keeps() -> ControlWorld:
    world = ControlWorld()
    world.launch_astray(**{tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: WORKLOAD})
    world.interfere = keep(None)
    # While nothing else runs, such are looked for every quarter of an hour.
    world.run(35)
    return world


def costs(policy: Policy | None = None, **day: float) -> ControlWorld:
    """Return a deployment whose day has come to this, and half an hour more."""
    world = ControlWorld(policy=policy or Policy())
    world.put_day(world.now, **day)
    world.run(30)
    return world


def dear_items() -> ControlWorld:
    policy = Policy(alarm_max_cost_per_item=0.04)
    return costs(policy, dollars=5.0, items=100, busy_seconds=3600.0)


def idle_machines() -> ControlWorld:
    return costs(dollars=2.0, items=100, busy_seconds=2400.0, idle_seconds=7600.0)


def jobs_that_failed_alone() -> ControlWorld:
    return costs(items=7, items_failed=3, failed_alone=3)


def dollars_for_nothing() -> ControlWorld:
    return costs(dollars=12.0, busy_seconds=36_000.0)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: an_idle_worker_of(Policy(idle_timeout=MINUTE), None, 9), id="not yet"),
        pytest.param(lambda: costs(dollars=5.0, items=100, busy_seconds=3600.0), id="no limit"),
        pytest.param(
            lambda: costs(Policy(alarm_max_cost_per_item=0.06), dollars=5.0, items=100),
            id="cheap enough",
        ),
        pytest.param(
            lambda: costs(dollars=0.9, items=9, busy_seconds=240.0, idle_seconds=760.0),
            id="hardly a dollar",
        ),
        pytest.param(
            lambda: costs(dollars=2.0, items=9, busy_seconds=450.0, idle_seconds=550.0),
            id="half of the time",
        ),
        pytest.param(
            lambda: costs(
                Policy(alarm_max_idle_share=None), dollars=2.0, items=9, idle_seconds=550.0
            ),
            id="nobody asks",
        ),
        pytest.param(lambda: costs(dollars=9.9, busy_seconds=9.0), id="some dollars"),
        pytest.param(lambda: costs(dollars=99.0, items=1, busy_seconds=9.0), id="one item"),
        pytest.param(lambda: costs(dollars=99.0, items_failed=1, busy_seconds=9.0), id="a failed"),
    ],
)
def test_near_a_limit_nobody_is_told(make: Callable[[], ControlWorld]) -> None:
    assert make().topic.said == ()


def test_failures_alone_are_told_once_a_day() -> None:
    world = costs(items=7, items_failed=1, failed_alone=1)
    world.put_day(world.now, items=7, items_failed=2, failed_alone=2)
    world.run(30)

    assert [subject for subject, _ in world.topic.said] == ["demo--classify: failed-jobs"]


def test_failures_just_before_midnight_are_told_after_it() -> None:
    world = ControlWorld()
    midnight = world.now.replace(hour=0, minute=0, second=0) + timedelta(days=1)
    world.clock.advance(midnight - world.now + timedelta(seconds=20))
    world.put_day(world.now - timedelta(minutes=1), items=7, items_failed=1, failed_alone=1)
    world.run(2)

    assert [subject for subject, _ in world.topic.said] == ["demo--classify: failed-jobs"]


def test_failures_alone_are_not_told_where_nobody_asks() -> None:
    world = ControlWorld(batches_told=EndsTold.NONE)
    world.put_day(world.now, items=7, items_failed=1, failed_alone=1)
    world.run(5)

    assert world.topic.said == ()


def test_what_ec2_does_not_end_is_told_in_15_minutes() -> None:
    world = ControlWorld(policy=Policy(idle_timeout=MINUTE, scale_down_delay=MINUTE))
    world.launched()
    world.empty_the_queue()
    world.interfere = keep(None)
    decisions = world.run(40, beats=True)

    condemned_at = next(each.at for each in decisions if each.condemned)
    (told_at,) = [state.told_at for name, state in world.view().alerts.items() if name == "unended"]
    assert told_at is not None
    assert told_at - condemned_at <= 15 * MINUTE


def test_workers_ended_one_after_the_other_are_no_alert() -> None:
    policy = replace(AT_ONCE, idle_timeout=MINUTE, scale_down_delay=MINUTE, max_workers=1)
    world = ControlWorld(policy=policy)
    for _ in range(8):
        world.launched()
        world.empty_the_queue()
        world.run(6, beats=True)

    assert len(world.compute.bills()) == 8
    assert world.topic.said == ()


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        pytest.param(
            a_full_quota,
            "quota",
            ["us-west-2 L-3819A6DF (G/Spot)", "--quota-code L-3819A6DF", "--region us-west-2"],
            id="a full quota",
        ),
        pytest.param(
            a_full_quota_without_a_known_code,
            "quota",
            ["us-west-2 P6/Spot", "`spindown doctor`, which finds the quota's code"],
            id="a full quota whose code is not known",
        ),
        pytest.param(
            an_account_error,
            "account",
            ["UnauthorizedOperation", "spindown doctor", "at once after the command"],
            id="account",
        ),
        pytest.param(
            a_forbidden_type,
            "types-refused",
            ["g4dn.xlarge", "OptInRequired", "`instance_types`"],
            id="a forbidden type",
        ),
        pytest.param(an_unknown_code, "unknown-refusal", ["Novel"], id="unknown code"),
        pytest.param(
            dry_pools, "capacity", ["g4dn.xlarge/us-west-2a/spot", "`gpu_names`"], id="all is dry"
        ),
        pytest.param(
            images_that_never_check_in,
            "breaker",
            ["3 instances in a row never checked in", "/spindown/demo/worker/classify"],
            id="the breaker is open",
        ),
        pytest.param(
            no_offer, "no-offer", ["nearest is", "`max_price_per_hour`"], id="nothing fits"
        ),
        pytest.param(
            jobs_that_failed_alone,
            "failed-jobs",
            ["3 failures", "`spindown batches classify --sources`", "`spindown redrive classify"],
            id="jobs of no batch failed",
        ),
        pytest.param(
            late_work, "late", ["longer than the promised 5 minutes", "max_workers"], id="late"
        ),
        pytest.param(
            work_that_waits_for_a_boot,
            "late",
            ["for 60 seconds, longer than the promised 5 seconds", "nothing, if a machine boots"],
            id="late for a boot",
        ),
        pytest.param(
            a_refused_policy,
            "policy-invalid",
            ["max_workers", "`spindown policy reset classify`"],
            id="policy refused",
        ),
        pytest.param(
            a_row_that_cannot_be_read, "bad-rows", ["lease#i-0bad#0", "demo--ledger"], id="bad row"
        ),
        pytest.param(
            workers_that_all_look_stale, "terminations-held-back", ["DynamoDB"], id="all look stale"
        ),
        pytest.param(
            an_instance_that_ec2_keeps, "unended", ["ec2:TerminateInstances"], id="kept by EC2"
        ),
        pytest.param(
            an_orphan_that_ec2_keeps, "unended", ["console of EC2"], id="kept, and without a row"
        ),
        pytest.param(
            dear_items, "item-cost", ["`alarm_max_cost_per_item`", "0.05 USD"], id="dear items"
        ),
        pytest.param(idle_machines, "idle-share", ["76%", "`idle_timeout`"], id="mostly idle"),
        pytest.param(
            dollars_for_nothing, "dollars-without-items", ["12.00 USD"], id="not one item"
        ),
    ],
)
def test_a_person_is_told_once_what_happened_and_what_to_do(
    make: Callable[[], ControlWorld], name: str, words: list[str]
) -> None:
    world = make()

    said = [text for subject, text in world.topic.said if subject == f"demo--classify: {name}"]

    assert len(said) == 1
    assert all(word in said[0] for word in words), said[0]
    assert re.search(r"\. To do: [a-z].*\.$", said[0])
    assert strangers(said[0]) == []
    told = [d for d in world.metrics.data if d.name == "Alerts"]
    assert name in {datum.dimensions["Alert"] for datum in told}


def test_nothing_is_said_while_all_is_well() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(5)

    assert world.topic.said == ()
    assert world.metrics.values("Alerts") == []
    assert not [sort for sort in world.partition() if sort.startswith("alert#")]


def test_what_lasts_is_said_again_after_a_day() -> None:
    world = a_refused_policy()

    for _ in range(25):
        world.tick(timedelta(hours=1))
        world.run(4)

    assert len(world.topic.said) == 2


def test_what_was_fixed_is_news_when_it_comes_back() -> None:
    world = a_refused_policy()
    world.settings.put_live(WORKLOAD, "{}")
    world.run(60)

    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
    world.run(12)

    assert len(world.topic.said) == 2


def test_capacity_that_comes_and_goes_is_not_said() -> None:
    world = with_policy(**STRICT, max_price_per_hour=0.3, max_workers=4)
    both = [a_pool_of("g4dn.xlarge", zone) for zone in ZONES]
    world.dry(*both)
    world.send()
    world.tick()
    world.run(15)
    for pool in both:
        world.compute.set_capacity(pool, None)
    world.run(15)
    assert world.workers()

    world.dry(*both)
    world.send(300)
    world.run(20)

    assert "demo--classify: capacity" not in [subject for subject, _ in world.topic.said]


def test_a_quota_that_is_full_now_and_then_is_said_once_a_day() -> None:
    world = with_policy(**STRICT, max_price_per_hour=0.3, max_workers=4)

    outcomes = set()
    for _ in range(6):
        for vcpus in (0, 64):
            world.market.limit("L-3819A6DF", vcpus, region=REGION)
            refresh(world.ports)
            world.send(20)
            outcomes.add(world.tick().outcome)
            world.run(20)
        for worker in world.workers():
            world.compute.power_off(worker.instance_id)
        world.clock.advance(timedelta(hours=1))

    assert {Outcome.NOTHING_FITS, Outcome.LAUNCHED} <= outcomes
    said = [subject for subject, _ in world.topic.said]
    assert said.count("demo--classify: quota") == 1
    assert "demo--classify: no-offer" not in said


def test_a_failing_topic_stops_no_tick_and_is_tried_again() -> None:
    world = ControlWorld()

    world.interfere = failing(AccessDenied("sns:Publish"), "publish")
    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
    world.run(12)
    assert world.metric("Untold") == 1
    (reason,) = {datum.reason for datum in world.metrics.data if datum.name == "Untold"}
    assert reason == "sns:Publish"
    assert world.topic.said == ()

    world.interfere = None
    world.run(1)

    assert len(world.topic.said) == 1


def test_a_quota_that_only_others_fill_explains_nothing() -> None:
    world = with_policy(max_price_per_hour=0.01)
    # Another workload asks for machines of another class.
    row = {"quota_class": f"{REGION}/P/Spot", "code": "Max", "until": world.now + 90 * MINUTE}
    key = Key(partition=DEPLOYMENT_PARTITION, sort=quota_sort_key(f"{REGION}/P/Spot"))
    world.table.write(Write(key=key, set=encode(row)))

    after_a_job(world, 20)

    assert [subject for subject, _ in world.topic.said] == ["demo--classify: no-offer"]


def stop_away(world: ControlWorld, **counts: int) -> None:
    world.put(
        breaker_sort_key(AWAY),
        **counts,
        launch_version="lt-2@1 subnet-z abc",
        reason=Reason(
            ReasonCode.STRIKES_SILENT, {"count": 3, "instance_id": "i-3", "fault_code": ""}
        ),
        open_until=world.now + 60 * MINUTE,
    )


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("silent", "console output"),
        ("unclaimed", "console output"),
        ("failed", "`spindown logs`"),
    ],
)
def test_an_open_breaker_says_where_to_look_for_its_cause(kind: str, remedy: str) -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.10),))
    stop_away(world, **{kind: 3})

    after_a_job(world).tick(MINUTE)

    ((_, text),) = world.topic.said
    assert remedy in text
    assert "`spindown doctor`" in text


def test_a_breaker_of_one_region_is_told_as_that_regions_alone() -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.10),))
    stop_away(world, silent=3)

    decision = after_a_job(world).tick(MINUTE)

    assert decision.outcome is Outcome.ENOUGH
    ((_, text),) = world.topic.said
    assert AWAY in text
    assert REGION not in text
    assert "3 instances" in text


def test_one_region_s_breaker_does_not_explain_the_others() -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.10),), policy=Policy(max_price_per_hour=0.01))
    stop_away(world, silent=3)

    after_a_job(world, 20)

    subjects = {subject for subject, _ in world.topic.said}
    assert subjects == {"demo--classify: breaker", "demo--classify: late"}
