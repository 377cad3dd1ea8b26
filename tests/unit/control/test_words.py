"""No decision reads a sentence: whatever the words, the same happens."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown import reason_text
from spindown.contract.learned_size import sizes_key
from spindown.contract.usage import encode_usage, measured_key
from spindown.control.rightsizing import learn_sizes
from spindown.domain.policy import JobNeeds, JobType, Policy, Rightsize
from spindown.domain.reason import Reason, ReasonCode
from spindown.simulator import Arrival, Run
from tests.builders import a_usage_record
from tests.control import WORKLOAD, ControlWorld
from tests.simulator.scene import DAY, a_scenario


def _run() -> tuple[str, str]:
    arrivals = tuple(Arrival(at=60.0 + 900.0 * n, items=40, item_seconds=20.0) for n in range(12))
    run = Run(a_scenario(*arrivals, length=DAY / 4), Policy(), 1)
    digest = run.run().digest
    assert run.decision is not None
    return digest, run.decision.to_json().decode()


def _learn_and_route() -> tuple[object, ...]:
    """Learn the size of a type, route two jobs, refuse a third, and launch for the two."""
    scan = JobType(name="scan", needs=JobNeeds(memory_gib=16))
    most = JobNeeds(memory_gib=32)
    policy = Policy(types=(scan,), requirements_at_most=most, rightsize=Rightsize.APPLY)
    world = ControlWorld(policy=policy)
    record = a_usage_record(
        workload=WORKLOAD,
        type="scan",
        shape="c0m16",
        started_at=world.now,
        routed_at=world.now,
        memory_max=2.0,
    )
    records = [replace(record, job_id=f"j{number}") for number in range(6)]
    world.objects.put(measured_key(record, world.now.date()), encode_usage(records))
    world.clock.advance(timedelta(hours=1))
    learn_sizes(WORKLOAD, world.ports)
    world.ask("learned", type="scan")
    world.ask("as-asked", requirements={"memory_gib": 30})
    world.ask("refused", requirements={"memory_gib": 90})
    decisions = [decision.to_json() for decision in world.run(3)]
    refused = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert refused is not None
    shapes = {shape: world.queue_of(shape).bodies() for shape in world.view().shapes}
    learned = world.objects.get(sizes_key(WORKLOAD)).data
    return decisions, shapes, learned, refused.attributes["code"]


@pytest.fixture
def other_words() -> Iterator[None]:
    """Rewrite every text of the product."""
    before = dict(reason_text._WORDS)
    reason_text._WORDS.update({code: f"<{code.value}>" for code in ReasonCode if code})  # type: ignore[attr-defined]
    yield
    reason_text._WORDS.update(before)  # type: ignore[attr-defined]


@pytest.mark.parametrize("play", [_run, _learn_and_route])
def test_other_words_change_no_decision(
    play: Callable[[], tuple[object, ...]], request: pytest.FixtureRequest
) -> None:
    before = play()

    request.getfixturevalue("other_words")

    assert reason_text.say(Reason(ReasonCode.IDLE)) == "<idle>"
    assert play() == before
