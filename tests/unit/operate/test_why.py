"""`why` tells the last decisions as carried out, and what stands in the way when nothing runs."""

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from spindown.cli.explain.why import show
from spindown.cli.render.screen import TextConsole
from spindown.contract.codec import encode
from spindown.contract.decision import DecisionSummary, Outcome, decision_prefix
from spindown.contract.row import (
    DECISION,
    control_partition,
    requeued_sort_key,
    worker_partition,
)
from spindown.domain.fleet import RequeuedJob
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import Unreachable
from spindown.ledger import Ledger
from spindown.memory import PortCall
from spindown.operate.why import Why, explain
from spindown.port import Key, Outgoing, RefusalKind, Write
from spindown.reason_text import say_asked_pools, say_next_try
from tests.builders import a_worker
from tests.control import WORKLOAD, ZONES, ControlWorld, a_pool_of, with_policy
from tests.reading import only_reading


def test_writes_nothing_anywhere() -> None:
    world = ControlWorld()
    world.send(3)
    world.compute.refuse_next(RefusalKind.CAPACITY, "InsufficientInstanceCapacity", times=20)
    world.tick()

    found = explain(WORKLOAD, only_reading(world.ports), last=5)

    assert found.now is not None


def test_tells_decisions_newest_first_over_days_without_any() -> None:
    world = ControlWorld()
    idle = world.tick()
    world.send(3)
    launched = world.tick(timedelta(days=10))

    found = explain(WORKLOAD, world.ports, last=5)

    assert [d.outcome for d in found.decisions] == [Outcome.LAUNCHED, Outcome.IDLE]
    assert [d.at for d in found.decisions] == [launched.at, idle.at]


def test_tells_of_a_worker_that_was_lost_and_counts_again() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.send(2)
    before = explain(WORKLOAD, world.ports, last=1)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(3)

    found = explain(WORKLOAD, world.ports, last=1)

    assert before.lost == ()
    assert [lost.instance_id for lost in found.lost] == [worker.instance_id]
    assert found.counts["visible"] == world.queue.backlog().visible == 3
    assert worker.instance_id in _shown(found)


def _shown(found: Why) -> str:
    file = io.StringIO()
    show(TextConsole(file=file, width=200), [found], 3)
    return file.getvalue()


def test_tells_the_last_of_many_lost_workers_and_a_count() -> None:
    found = explain(WORKLOAD, ControlWorld().ports, last=1)
    ends = [found.at - timedelta(minutes=age) for age in (9, 1, 2, 8, 3)]
    lost = tuple(a_worker(f"i-{n}", ended_at=at) for n, at in enumerate(ends))

    shown = _shown(replace(found, lost=lost))

    assert ["i-1" in shown, "i-2" in shown, "i-4" in shown] == [True] * 3
    assert ["i-0" in shown, "i-3" in shown] == [False] * 2
    assert "2 more instances" in shown
    assert "more instance" not in _shown(replace(found, lost=lost[:3]))


def test_tells_no_more_decisions_than_asked_for() -> None:
    world = ControlWorld()
    world.tick()
    world.send(3)
    world.tick(timedelta(minutes=1))

    (newest,) = explain(WORKLOAD, world.ports, last=1).decisions

    assert newest.outcome is Outcome.LAUNCHED


def test_says_until_when_the_newest_decision_held() -> None:
    world = ControlWorld()
    first = world.tick()
    last = world.tick(timedelta(hours=3))

    found = explain(WORKLOAD, world.ports, last=5)

    assert [d.at for d in found.decisions] == [first.at]
    assert found.confirmed_at == last.at


def test_a_decision_for_another_reason_is_not_the_same() -> None:
    world = ControlWorld()
    world.tick()
    world.tick()
    row = Ledger(world.table, WORKLOAD).read().decision
    assert row is not None
    other = DecisionSummary(sizing=Reason(ReasonCode.IN_TIME))
    key = Key(control_partition(WORKLOAD), DECISION)
    world.table.write(Write(key=key, set=encode(replace(row, summary=other))))

    assert explain(WORKLOAD, world.ports, last=5).confirmed_at is None


def test_names_an_unreadable_decision_and_tells_the_others() -> None:
    world = ControlWorld()
    world.tick()
    broken = f"{decision_prefix(WORKLOAD)}{world.now:%Y-%m-%d}/235959-broken.json"
    world.objects.put(broken, b"{")

    found = explain(WORKLOAD, world.ports, last=5)

    assert found.unreadable == (broken,)
    assert [d.outcome for d in found.decisions] == [Outcome.IDLE]


def test_looks_at_no_prices_while_something_runs() -> None:
    world = ControlWorld()
    world.launched()
    world.calls.clear()

    found = explain(WORKLOAD, world.ports, last=1)

    assert (found.running, found.now) == (1, None)
    assert not any(name.startswith("market.") for name in world.calls)


def test_names_the_nearest_offer_when_none_may_be_taken() -> None:
    world = with_policy(max_price_per_hour=0.15)
    world.send(3)
    world.tick()

    now = explain(WORKLOAD, world.ports, last=1).now

    assert now is not None
    assert now.candidates.best is None
    assert now.candidates.nearest is not None
    assert now.candidates.nearest.constraint == "max_price_per_hour"
    assert now.next_try_at == world.now + timedelta(minutes=1)


def test_says_when_a_held_launch_is_tried() -> None:
    world = with_policy(scale_up_threshold=20, start_within=timedelta(hours=1))
    world.send(3)
    held = world.tick()

    now = explain(WORKLOAD, world.ports, last=1).now

    assert held.outcome is Outcome.HELD
    assert now is not None
    assert now.next_try_at == held.held_until


def test_no_try_is_due_while_nothing_waits() -> None:
    now = explain(WORKLOAD, ControlWorld().ports, last=1).now

    assert now is not None
    assert now.next_try_at is None
    assert now.candidates.best is not None


def test_says_when_a_hidden_job_can_be_received_again() -> None:
    world = ControlWorld()
    at = world.now + timedelta(seconds=77)
    key = Key(worker_partition(WORKLOAD), requeued_sort_key("j"))
    job = RequeuedJob(
        job_id="j", sent_at=world.now, items=2, items_done=0, at=world.now, next_try_at=at
    )
    world.table.write(Write(key=key, set=encode(job)))
    found = explain(WORKLOAD, world.ports, last=1)

    assert found.next_tries == {"j": at}
    assert _shown(found).count(say_next_try(at, found.at)) == 1


def test_tells_decisions_even_when_the_market_is_unreadable() -> None:
    world = ControlWorld()
    world.tick()

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port == "market":
            raise Unreachable("EC2 is away")
        return proceed()

    world.interfere = fail
    found = explain(WORKLOAD, world.ports, last=1)

    assert len(found.decisions) == 1
    assert (found.now, found.unknown) == (None, "EC2 is away")


def test_tells_what_came_of_each_pool_that_was_asked_for() -> None:
    world = with_policy(band=0.0)
    dry = a_pool_of("g4dn.xlarge", ZONES[0])
    world.dry(dry)
    world.send()

    told = say_asked_pools(world.tick())

    assert told == {
        str(dry): "refused: InsufficientInstanceCapacity",
        str(a_pool_of("g4dn.xlarge", ZONES[1])): "launched 1",
    }


def test_tells_that_ec2_chose_another_pool_of_the_same_request() -> None:
    world = ControlWorld()
    world.send()

    told = say_asked_pools(world.tick())

    assert sorted(told.values()) == ["asked for; EC2 chose another", "launched 1"]


def test_a_refusal_of_a_whole_request_counts_for_each_pool() -> None:
    world = ControlWorld()
    world.send()
    world.compute.refuse_next(RefusalKind.ACCOUNT, "OptInRequired")

    told = say_asked_pools(world.tick())

    assert len(told) == 2
    assert set(told.values()) == {"refused: OptInRequired"}


def test_counts_what_was_given_up() -> None:
    world = ControlWorld()
    before = _shown(explain(WORKLOAD, world.ports, last=1))
    world.dead_letters.send([Outgoing(body="{}")])
    found = explain(WORKLOAD, world.ports, last=1)

    assert found.dead_letters == 1
    assert f"spindown redrive {WORKLOAD} --list" in _shown(found)
    assert "dead-letter" not in before
