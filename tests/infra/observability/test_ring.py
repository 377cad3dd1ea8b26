"""Each alarm rings in a story that it is there for, and not in one that is near it.

What runs is the shipped control plane in memory; what CloudWatch makes of its metrics is worked
out from the alarm in the template (``tests.cloudwatch``).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spindown.contract.event import InterruptionWarning
from spindown.contract.row import DEPLOYMENT_PARTITION, SpendRow, worker_sort_key
from spindown.control.alert.cost_rise import judge
from spindown.control.instance_event import react
from spindown.control.market import refresh
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.error import AccessDenied, SpindownError, Unreachable
from spindown.job.message import dead_letter_untouched
from spindown.ledger import Ledger
from spindown.local.alarm import ALARM, evaluate
from spindown.memory import MemoryJobQueue
from spindown.operate.cost import accept_cost
from spindown.port import DEPLOYMENT as DEPLOYMENT_SETTINGS
from spindown.port import Key, Outgoing, Write
from tests.cloudwatch import CloudWatch
from tests.control import (
    AWAY,
    AWAY_ZONE,
    DEPLOYMENT,
    REGION,
    WORKLOAD,
    ZONES,
    ControlWorld,
)
from tests.failure import failing
from tests.infra.assembly import synthesise_once, write_project

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
QUEUE = f"{DEPLOYMENT}--{WORKLOAD}"
BUDGET = 20.0

Alarms = Mapping[str, Mapping[str, Any]]


CONFIG = f"""
[deployment]
name = "{DEPLOYMENT}"
region = "{REGION}"
zones = ["{ZONES[0]}"]
budget_per_month = {BUDGET}
outpost.{AWAY}.zones = ["{AWAY_ZONE}"]

[workload.{WORKLOAD}.run]
entrypoint = "job:run"
code = "code"

[workload.{WORKLOAD}.image]
mode = "bake"

[[workload.{WORKLOAD}.policy.types]]
name = "small"
memory_gib = 4
"""


@pytest.fixture(scope="session")
def alarms(tmp_path_factory: pytest.TempPathFactory) -> Alarms:
    """Return the alarms of every stack of a deployment, by name."""

    def write(root: Path) -> Path:
        return write_project(root, CONFIG)

    assembly = synthesise_once(tmp_path_factory, "ring", write)
    templates = sorted(assembly.directory.glob("*.template.json"))
    assert len(templates) > 2
    return {alarm["AlarmName"]: alarm for path in templates for alarm in _alarms_of(path)}


def _alarms_of(path: Path) -> Iterator[Mapping[str, Any]]:
    resources = json.loads(path.read_text())["Resources"]
    for resource in resources.values():
        if resource["Type"] == "AWS::CloudWatch::Alarm":
            for dimension in resource["Properties"].get("Dimensions", ()):
                if isinstance(reference := dimension["Value"], dict):
                    name, attribute = reference["Fn::GetAtt"]
                    dimension["Value"] = resources[name]["Properties"][attribute]
            yield resource["Properties"]


@dataclass
class Watched:
    """A deployment in memory, CloudWatch that watches it, and whether one alarm rang."""

    alarm: Mapping[str, Any]
    policy: Policy = field(default_factory=lambda: Policy(idle_timeout=2 * MINUTE))
    rang_at: list[timedelta] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = ControlWorld(policy=self.policy, budget=BUDGET)
        self.began = self.world.now
        self.cloudwatch = CloudWatch(self.world.clock)
        self.world.ports = replace(self.world.ports, metrics=self.cloudwatch)
        self.dead = MemoryJobQueue(self.world.clock, Random(2), name="dead")

    @property
    def rings(self) -> bool:
        """Tell whether it ever rang."""
        return bool(self.rang_at)

    def live(
        self,
        minutes: int,
        *,
        ticks: bool = True,
        beats: bool = True,
        meanwhile: Callable[[], object] = lambda: None,
        step: timedelta = MINUTE,
    ) -> None:
        """Let minutes pass; after each CloudWatch looks."""
        for _ in range(minutes * MINUTE // step):
            self.world.clock.advance(step)
            if ticks:
                self.cloudwatch.invoke(f"{DEPLOYMENT}--scaler", self.world.tick)
            if beats:
                self.world.beat()
            meanwhile()
            self.cloudwatch.watch_queue(QUEUE, self.world.queue)
            self.cloudwatch.watch_queue(f"{QUEUE}--dlq", self.dead)
            if self.cloudwatch.rings(self.alarm):
                self.rang_at.append(self.world.now - self.began)

    def refresh(self) -> None:
        """Let the function of each hour run."""
        self.cloudwatch.invoke(f"{DEPLOYMENT}--offers", lambda: refresh(self.world.ports))

    def work(self) -> None:
        """Let a worker that came up take the job that waits, and finish it."""
        for worker in self.world.workers(WorkerState.BOOTING):
            self.world.check_in(worker.instance_id)
            lease = self.world.claim(worker.instance_id)
            self.world.finish(lease)


Story = Callable[[Watched], None]


def no_tick_for(minutes: int) -> Story:
    def story(watched: Watched) -> None:
        watched.live(10)
        watched.rang_at.clear()
        watched.live(minutes, ticks=False)
        watched.live(5)

    return story


def an_idle_worker(*, ends: bool) -> Story:
    """Let a worker that ignores its idle limit be ended by the scaler, or not by EC2."""

    def story(watched: Watched) -> None:
        world = watched.world
        world.launched()
        world.empty_the_queue()

        def refuse(call: Any, proceed: Callable[[], Any]) -> Any:
            if call.method == "terminate":
                raise AccessDenied("ec2:TerminateInstances")
            return proceed()

        world.interfere = None if ends else refuse
        watched.live(20)
        ended = [w for w in world.view().workers.values() if w.state is WorkerState.ENDED]
        assert bool(ended) is ends

    return story


def a_job_that_waits(minutes: int) -> Story:
    def story(watched: Watched) -> None:
        watched.world.send()
        watched.live(minutes)
        watched.world.empty_the_queue()
        watched.live(15)

    return story


def a_message_comes(*, is_taken: bool) -> Story:
    """Let a message come while nothing ticks; a worker may take it at once, and work for hours."""

    def story(watched: Watched) -> None:
        watched.live(5, ticks=False)
        watched.world.send()
        if is_taken:
            watched.world.queue.receive(wait=timedelta(0), visibility=2 * HOUR)
        watched.live(3, ticks=False)

    return story


def a_message_that_stays(length: timedelta) -> Story:
    def story(watched: Watched) -> None:
        watched.world.send()
        # Nothing ticks: only SQS is asked.
        watched.live(length // MINUTE, ticks=False, step=5 * MINUTE)
        watched.world.empty_the_queue()
        watched.live(15, ticks=False)

    return story


def a_message(body: str) -> Story:
    """Let somebody send a message, and a worker deal with it."""

    def story(watched: Watched) -> None:
        world = watched.world
        world.queue.send([Outgoing(body=body)])

        def deal() -> None:
            message = world.queue.receive(wait=timedelta(0), visibility=MINUTE)
            if message is None:
                return
            if "items" in message.body:
                world.queue.delete(message.receipt_handle)
            else:
                ports = _WorkQueues(world.queue, watched.dead)
                dead_letter_untouched(message, "it has no items", ports)  # type: ignore[arg-type]

        watched.live(12, meanwhile=deal)

    return story


@dataclass
class _WorkQueues:
    queue: MemoryJobQueue
    dead_letters: MemoryJobQueue


def a_month_that_cost(dollars: float) -> Story:
    """Let the month have cost so much when a job comes, for which a launch reserves some more."""

    def story(watched: Watched) -> None:
        watched.live(3)
        month = f"budget#{watched.world.now:%Y-%m}"
        watched.world.table.write(
            _add(DEPLOYMENT_PARTITION, month, {"dollars": dollars, "committed": dollars})
        )
        watched.world.ports.cache.forget(DEPLOYMENT_SETTINGS, "")
        watched.world.send()
        watched.live(20)

    return story


def offers_are_refreshed(hours: int, *, fails_for: int) -> Story:
    def story(watched: Watched) -> None:
        for hour in range(hours):
            if not 8 <= hour < 8 + fails_for:
                watched.refresh()
            watched.live(60, ticks=False, step=5 * MINUTE)
            if hour < 7:
                # Of the time before it was deployed there is no data.
                watched.rang_at.clear()

    return story


def a_notice(*, ledger_answers: bool) -> Story:
    """Let EC2 take a worker away."""

    def story(watched: Watched) -> None:
        world = watched.world
        worker = world.launched()
        notice = InterruptionWarning(
            instance_id=worker.instance_id, region=worker.region, at=world.now
        )
        if not ledger_answers:
            world.interfere = failing(
                SpindownError("the table gives no answer"), "get", "query_each"
            )
        watched.cloudwatch.invoke(
            f"{DEPLOYMENT}--interruption", lambda: react(notice, world.ports, holder="event")
        )
        world.interfere = None
        watched.live(12)
        if ledger_answers:
            assert world.row(worker_sort_key(worker.instance_id)) is not None

    return story


def the_topic_refuses_for(minutes: int) -> Story:
    def story(watched: Watched) -> None:
        world = watched.world
        watched.live(5)
        world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
        world.interfere = failing(AccessDenied("sns:Publish"), "publish")
        watched.live(minutes)
        world.interfere = None
        watched.live(20)
        assert world.topic.said

    return story


def two_days_with_a_worker(*, calls_a_minute: int) -> Story:
    """Let one worker be kept for two days, while so many calls of the scaler come."""

    def story(watched: Watched) -> None:
        world, step = watched.world, 5 * MINUTE
        watched.live(5)
        for worker in world.workers(WorkerState.BOOTING):
            world.check_in(worker.instance_id)
        scaler, calls = f"{DEPLOYMENT}--scaler", calls_a_minute * (step // MINUTE) - 1
        watched.live(
            2 * 24 * 60,
            step=step,
            meanwhile=lambda: watched.cloudwatch.count_calls(scaler, calls, seconds=0.5),
        )
        assert [w.is_live for w in world.workers()] == [True]

    return story


def days_that_cost(*costs: float, size: Callable[[int], float] = lambda _: 1.0) -> Story:
    """Let items of each day cost so many times the usual, looked at every six hours.

    The ledger's rows grow as a day goes by; ``size`` tells how many items a day has beside others.
    """

    def story(watched: Watched) -> None:
        world, parts = watched.world, 4
        tomorrow = world.now.replace(hour=0) + DAY
        world.clock.advance((tomorrow - world.now) % DAY)
        for number, cost in enumerate(costs):
            for part in range(1, parts + 1):
                world.clock.advance(24 * HOUR / parts - MINUTE)
                items = round(900 * size(number) * part / parts)
                share = items / 900
                row = SpendRow(
                    dollars=2.0 * cost * share, items=items, busy_seconds=7200 * share, launches=3
                )
                world.put_day(world.now, row)
                judge(world.ports)
                world.clock.advance(MINUTE)
                if watched.cloudwatch.rings(watched.alarm):
                    watched.rang_at.append(world.now - watched.began)

    return story


def messages_to_route(minutes: int, *calls: str) -> Story:
    """Let jobs come while the function that routes gets no answer to some calls."""

    def story(watched: Watched) -> None:
        world = watched.world
        intake = f"{DEPLOYMENT}--intake"

        def run() -> None:
            watched.cloudwatch.invoke(intake, world.route)

        watched.live(5, ticks=False, meanwhile=run)
        world.interfere = failing(Unreachable("no answer"), *calls)
        for number in range(3):
            world.ask(f"j{number}", type="small")
        watched.live(minutes, ticks=False, meanwhile=run)
        world.interfere = None
        watched.live(20, ticks=False, meanwhile=run)
        assert len(world.queue_of("c0m4").bodies()) == 3

    return story


def _add(partition: str, sort: str, sums: Mapping[str, float]) -> Write:
    return Write(key=Key(partition=partition, sort=sort), add=dict(sums))


W = f"{DEPLOYMENT}--{WORKLOAD}"
NOBODY = Policy(max_workers=0)
KEPT = Policy(max_lifetime=timedelta(days=9), warm_workers=1, tick=5 * MINUTE)
TYPED = Policy(types=(JobType(name="small", needs=JobNeeds(memory_gib=4)),))
#: Alarm -> a story that it rings in, one near it that it does not ring in, and their policy.
STORIES: Mapping[str, tuple[Story, Story, Policy]] = {
    f"{W}--tick-missing": (no_tick_for(8), no_tick_for(4), Policy()),
    f"{W}--idle": (
        an_idle_worker(ends=False),
        an_idle_worker(ends=True),
        Policy(idle_timeout=2 * MINUTE),
    ),
    f"{W}--oldest-message": (a_job_that_waits(85), a_job_that_waits(60), NOBODY),
    f"{W}--backlog": (a_message_comes(is_taken=False), a_message_comes(is_taken=True), Policy()),
    f"{W}--message-of-a-week": (
        a_message_that_stays(timedelta(days=7, minutes=20)),
        a_message_that_stays(timedelta(days=7) - 10 * MINUTE),
        NOBODY,
    ),
    f"{W}--cost": (
        days_that_cost(*[1.08**day for day in range(60)]),
        # Weekends of a twentieth of the items, three times as dear each; the first day is a Friday.
        days_that_cost(
            *[3.0 if day % 7 in {1, 2} else 1.0 for day in range(60)],
            size=lambda day: 0.05 if day % 7 in {1, 2} else 1.0,
        ),
        NOBODY,
    ),
    f"{W}--not-routed": (
        messages_to_route(25, "receive"),
        messages_to_route(8, "receive"),
        TYPED,
    ),
    f"{W}--dead-letters": (a_message("{}"), a_message('{"items": [1]}'), NOBODY),
    f"{DEPLOYMENT}--budget-80": (
        a_month_that_cost(0.801 * BUDGET),
        a_month_that_cost(0.7 * BUDGET),
        Policy(),
    ),
    f"{DEPLOYMENT}--budget-100": (
        a_month_that_cost(BUDGET),
        a_month_that_cost(0.9 * BUDGET),
        Policy(),
    ),
    f"{DEPLOYMENT}--catalogue-missing": (
        offers_are_refreshed(17, fails_for=8),
        offers_are_refreshed(17, fails_for=3),
        NOBODY,
    ),
    f"{DEPLOYMENT}--interruption-errors": (
        a_notice(ledger_answers=False),
        a_notice(ledger_answers=True),
        Policy(),
    ),
    f"{DEPLOYMENT}--untold": (the_topic_refuses_for(25), the_topic_refuses_for(8), Policy()),
    f"{DEPLOYMENT}--control-share": (
        two_days_with_a_worker(calls_a_minute=80),
        two_days_with_a_worker(calls_a_minute=40),
        KEPT,
    ),
}


def test_every_alarm_has_its_two_stories(alarms: Alarms) -> None:
    assert alarms.keys() == STORIES.keys()


@pytest.mark.parametrize("name", STORIES)
def test_an_alarm_rings_when_it_should(name: str, alarms: Alarms) -> None:
    story, _, policy = STORIES[name]
    watched = Watched(alarms[name], policy)

    story(watched)

    assert watched.rings


@pytest.mark.parametrize("name", STORIES)
def test_an_alarm_is_silent_near_that(name: str, alarms: Alarms) -> None:
    _, story, policy = STORIES[name]
    watched = Watched(alarms[name], policy)

    story(watched)

    assert watched.rang_at == []


def test_spare_ticks_do_not_end_the_alarm_of_missing_ticks(alarms: Alarms) -> None:
    watched = Watched(alarms[f"{W}--tick-missing"])
    watched.live(10)
    began = watched.world.now - watched.began
    watched.rang_at.clear()
    for _ in range(12):
        watched.live(4, ticks=False)
        watched.live(1)

    # It rings once: in each minute from the first time on.
    assert watched.rang_at[0] - began <= 8 * MINUTE
    last = watched.world.now - watched.began
    assert len(watched.rang_at) == (last - watched.rang_at[0]) // MINUTE + 1


@pytest.mark.parametrize("extra", range(6))
def test_that_holds_however_many_older_values_are_looked_at(alarms: Alarms, extra: int) -> None:
    """CloudWatch documents that it looks at more periods, and not at how many."""
    alarm = alarms[f"{W}--tick-missing"]
    looked_at = alarm["EvaluationPeriods"] + extra
    spare, one_lost = [1.0, None, None, None, None], [1.0, 1.0, None, 1.0, 1.0]

    for phase in range(5):
        assert evaluate(alarm, (spare * 4)[phase : phase + looked_at]) == ALARM
        assert evaluate(alarm, (one_lost * 4)[phase : phase + looked_at]) != ALARM


def test_the_cost_alarm_stays_until_it_is_down_or_accepted(alarms: Alarms) -> None:
    watched = Watched(alarms[f"{W}--cost"], NOBODY)
    world = watched.world
    days_that_cost(*[1.0] * 21, *[2.0] * 20)(watched)
    first, midnight = watched.rang_at[0], 12 * HOUR
    assert midnight + 22 * DAY < first <= midnight + 23 * DAY
    # Each time that CloudWatch looked.
    assert len(watched.rang_at) == round((world.now - watched.began - first) / (6 * HOUR)) + 1

    accept_cost(
        WORKLOAD, ledger=Ledger(world.table, WORKLOAD), policy=NOBODY, by="ann", now=world.now
    )
    watched.rang_at.clear()
    days_that_cost(*[2.0] * 20)(watched)
    assert watched.rang_at == []

    days_that_cost(*[4.0] * 3)(watched)
    assert watched.rings
    watched.rang_at.clear()
    days_that_cost(2.0)(watched)
    assert watched.rang_at[-1:] != [world.now - watched.began]


@pytest.mark.parametrize(("minutes", "rings"), [(25, True), (8, False)])
def test_messages_that_cannot_be_moved_ring_too(
    alarms: Alarms, minutes: int, *, rings: bool
) -> None:
    watched = Watched(alarms[f"{W}--not-routed"], TYPED)

    messages_to_route(minutes, "send")(watched)

    assert watched.rings is rings


def test_a_message_that_came_back_thrice_rings(alarms: Alarms) -> None:
    watched = Watched(alarms[f"{W}--oldest-message"], NOBODY)
    world = watched.world

    world.send()
    for _ in range(3):
        taken = world.queue.receive(wait=timedelta(0), visibility=MINUTE)
        assert taken is not None
        world.queue.extend(taken.receipt_handle, timedelta(0))
    watched.live(90)

    # SQS leaves it out of the age of its oldest message.
    assert watched.rings


def test_a_job_of_hours_is_no_message_that_waits(alarms: Alarms) -> None:
    watched = Watched(alarms[f"{W}--oldest-message"], KEPT)
    worker = watched.world.launched()
    watched.world.claim(worker.instance_id)

    watched.live(5 * 60)

    assert watched.rang_at == []


def test_what_ec2_does_not_end_rings_in_time_and_until_it_ends(alarms: Alarms) -> None:
    story, _, policy = STORIES[f"{W}--idle"]
    watched = Watched(alarms[f"{W}--idle"], policy)
    story(watched)

    # Booted after 2 minutes; it may be idle for 2, and the scaler waits for 2 more.
    assert watched.rang_at[0] <= 6 * MINUTE + 15 * MINUTE
    assert watched.rang_at[-1] == watched.world.now - watched.began

    watched.world.interfere = None
    watched.live(10)
    assert watched.rang_at[-1] < watched.world.now - watched.began
