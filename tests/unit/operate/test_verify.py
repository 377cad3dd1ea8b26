"""However a run ends, its machines end with it, whatever else cannot be done."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from spindown.contract.row import lease_sort_key
from spindown.domain.policy import Policy
from spindown.domain.verification import FAULT_USD, Interruption
from spindown.error import AccessDenied, NotFound, SpindownError, Throttled, Unreachable
from spindown.operate.drain import read_remainder
from spindown.operate.verify import (
    RunEnding,
    Verification,
    VerifyPlan,
    VerifyPorts,
    ask_again,
    estimate,
    usual_item_seconds,
)
from spindown.port import Experiment
from tests.control import AWAY, REGION, WORKLOAD, ControlWorld
from tests.failure import failing, only_in, refuse

SLOW_DOWN = Throttled("Rate exceeded")
NO_ANSWER = Unreachable("HTTP 503")
DENIED = AccessDenied("s3:PutObject is refused")
PLAN = VerifyPlan(
    items=4,
    item_seconds=1.0,
    max_usd=1.0,
    every=timedelta(seconds=5),
    timeout=timedelta(hours=1),
)


class NoFaults:
    """No experiment is deployed, and no alarm."""

    def find(self, tags: Mapping[str, str]) -> str:
        del tags
        return ""

    def start(self, template_id: str, *, token: str, tags: Mapping[str, str]) -> str:
        raise NotFound(f"{template_id} {token}")

    def read(self, experiment_id: str) -> Experiment:
        raise NotFound(experiment_id)

    def states(self, prefix: str) -> Mapping[str, str]:
        del prefix
        return {}


class DeafFaults(NoFaults):
    """An experiment that interrupts nothing, and may say so."""

    def __init__(self, *, has_failed: bool = False) -> None:
        self.has_failed = has_failed
        self.started: list[str] = []
        #: What the next calls raise, one each.
        self.errors: list[SpindownError] = []

    def find(self, tags: Mapping[str, str]) -> str:
        del tags
        self._fail()
        return "template"

    def start(self, template_id: str, *, token: str, tags: Mapping[str, str]) -> str:
        del template_id, tags
        self._fail()
        self.started.append(token)
        return "experiment"

    def states(self, prefix: str) -> Mapping[str, str]:
        self._fail()
        return super().states(prefix)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def read(self, experiment_id: str) -> Experiment:
        return Experiment(state=experiment_id, has_failed=self.has_failed)


def begun(world: ControlWorld, faults: NoFaults | None = None) -> Verification:
    """Begin a run, for which one machine comes up."""
    faults = faults or NoFaults()
    ports = VerifyPorts(
        control=world.ports,
        work=world.work_ports(),
        faults=faults,
        alarms=faults,
        wake=lambda: None,
    )
    template = estimate(WORKLOAD, PLAN, ports).template
    run = Verification(workload=WORKLOAD, plan=PLAN, ports=ports, template=template)
    run.begin()
    world.tick()
    run.look()
    return run


def working(world: ControlWorld, faults: DeafFaults) -> Verification:
    """Begin a run whose machine has done an item, which the next look interrupts."""
    run = begun(world, faults)
    (worker,) = world.workers()
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id, job_id=run.job_id)
    world.put(lease_sort_key(worker.instance_id, 0), items_done=1)
    return run


def running(world: ControlWorld) -> int:
    world.interfere = None
    return len(read_remainder(WORKLOAD, world.ports).instances)


def test_an_end_cancels_the_job_and_terminates_machines() -> None:
    world = ControlWorld()
    run = begun(world)
    assert running(world) == 1

    run.end_all()

    assert run.end_all() == RunEnding(is_empty=True)
    assert running(world) == 0
    assert world.queue.backlog().is_empty


@pytest.mark.parametrize(
    "refused",
    [("put",), ("receive",), ("partition_pages", "query", "select"), ("backlog",)],
    ids=["the manifest", "the queue", "the ledger", "the backlog"],
)
def test_machines_end_though_something_else_is_refused(refused: tuple[str, ...]) -> None:
    world = ControlWorld()
    run = begun(world)
    world.interfere = failing(DENIED, *refused)

    ending = run.end_all()

    assert not ending.is_empty
    assert ending.troubles[0] is DENIED
    assert running(world) == 0


def test_a_job_that_could_not_be_cancelled_is_tried_again() -> None:
    world = ControlWorld()
    run = begun(world)
    world.interfere = failing(DENIED, "put", times=1)

    first, second = run.end_all(), run.end_all()

    assert (first.is_empty, second.is_empty) == (False, True)
    assert world.queue.backlog().is_empty


def test_a_deaf_region_keeps_no_other_s_machines() -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.01),))
    run = begun(world)
    at_home = world.launch_astray(
        **{"spindown:deployment": "demo", "spindown:workload": WORKLOAD},
    )
    world.interfere = only_in(AWAY, refuse(DENIED))

    ending = run.end_all()

    assert ending.troubles
    world.interfere = None
    left = read_remainder(WORKLOAD, world.ports).instances
    assert [one.region for one in left] == [AWAY]
    assert world.compute.instance(region=REGION, instance_id=at_home).state != "running"


def test_a_look_that_is_throttled_is_made_again_later() -> None:
    world = ControlWorld()
    run = begun(world)
    world.interfere = failing(SLOW_DOWN, "instances", times=2)
    pauses: list[timedelta] = []

    look = ask_again(run.look, pauses.append, every=PLAN.every)

    assert look.running == 1
    assert pauses == [timedelta(seconds=10), timedelta(seconds=20)]


def test_looks_without_any_answer_have_an_end() -> None:
    world = ControlWorld()
    run = begun(world)
    world.interfere = failing(SLOW_DOWN, "instances")
    pauses: list[timedelta] = []

    with pytest.raises(Throttled):
        ask_again(run.look, pauses.append, every=PLAN.every)

    assert timedelta(minutes=2) < sum(pauses, timedelta()) < timedelta(minutes=5)


def test_a_throttled_interruption_is_made_by_the_next_look() -> None:
    world = ControlWorld()
    run = begun(world)
    (worker,) = world.workers()
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id, job_id=run.job_id)
    world.put(lease_sort_key(worker.instance_id, 0), items_done=1)
    world.interfere = failing(SLOW_DOWN, "terminate", times=1)

    with pytest.raises(Throttled):
        run.look()
    run.look()

    assert running(world) == 0
    assert run.result().interruption is Interruption.BY_HAND


@pytest.mark.parametrize(("has_failed", "after"), [(True, 5), (False, 181)])
def test_a_machine_no_experiment_takes_is_ended_by_hand(*, has_failed: bool, after: int) -> None:
    world, faults = ControlWorld(), DeafFaults(has_failed=has_failed)
    run = working(world, faults)

    run.look()
    before = running(world), run.result().interruption
    world.clock.advance(timedelta(seconds=after))
    run.look()

    assert before == (1, Interruption.FAULT_INJECTION)
    assert (running(world), run.result().interruption) == (0, Interruption.BY_HAND)
    assert faults.started == [run.job_id]
    assert run.result().fault_usd == FAULT_USD


@pytest.mark.parametrize("faults", [NoFaults(), DeafFaults()])
def test_the_estimate_holds_what_an_experiment_costs(faults: NoFaults) -> None:
    run = begun(ControlWorld(), faults)

    foreseen = estimate(WORKLOAD, PLAN, run.ports)

    machines = 2 * Policy().boot_estimate.total_seconds() / 3600 * foreseen.price_per_hour
    is_injected = bool(foreseen.template)
    assert is_injected is isinstance(faults, DeafFaults)
    assert machines < foreseen.dollars - FAULT_USD * is_injected < 20 * machines


@pytest.mark.parametrize("error", [SLOW_DOWN, SpindownError("a code that nobody knows")])
def test_another_error_does_not_mean_that_no_experiment_is(error: SpindownError) -> None:
    faults = DeafFaults()
    run = begun(ControlWorld(), faults)
    faults.errors = [error]

    with pytest.raises(type(error)):
        estimate(WORKLOAD, PLAN, run.ports)


@pytest.mark.parametrize("error", [DENIED, NO_ANSWER])
def test_who_cannot_see_experiments_is_told_before(error: SpindownError) -> None:
    faults = DeafFaults()
    run = begun(ControlWorld(), faults)
    faults.errors = [error]

    unseen, seen = estimate(WORKLOAD, PLAN, run.ports), estimate(WORKLOAD, PLAN, run.ports)

    assert (unseen.template, unseen.trouble) == ("", error)
    assert (seen.template, seen.trouble) == ("template", None)
    assert unseen.dollars == pytest.approx(seen.dollars - FAULT_USD)


def test_a_run_announced_as_by_hand_starts_no_experiment() -> None:
    world, faults = ControlWorld(), DeafFaults()
    faults.errors = [DENIED]
    run = working(world, faults)

    run.look()

    assert run.result().interruption is Interruption.BY_HAND
    assert (faults.started, run.result().fault_usd) == ([], 0.0)


def test_an_experiment_without_an_answer_is_asked_again() -> None:
    world, faults = ControlWorld(), DeafFaults()
    run = working(world, faults)
    faults.errors = [NO_ANSWER]

    run.look()
    before = run.result().interruption
    run.look()

    assert (before, run.result().interruption) == (None, Interruption.FAULT_INJECTION)
    assert (faults.started, running(world)) == ([run.job_id], 1)


def test_an_experiment_that_never_answers_ends_no_run() -> None:
    world, faults = ControlWorld(), DeafFaults()
    run = working(world, faults)
    faults.errors = [NO_ANSWER, SLOW_DOWN]

    run.look()
    before = running(world)
    world.clock.advance(timedelta(minutes=1))
    run.look()

    assert (before, running(world)) == (1, 0)
    assert run.result().interruption is Interruption.BY_HAND
    # It may have begun all the same.
    assert run.result().fault_usd == FAULT_USD


def test_alarms_that_do_not_answer_are_asked_again() -> None:
    faults = DeafFaults()
    run = begun(ControlWorld(), faults)
    faults.errors = [SLOW_DOWN, DENIED]

    with pytest.raises(Throttled):
        run.result()

    assert [run.result().alarms, run.result().alarms] == [None, {}]


def test_what_never_began_is_over() -> None:
    world = ControlWorld()
    faults = NoFaults()
    ports = VerifyPorts(
        control=world.ports,
        work=world.work_ports(),
        faults=faults,
        alarms=faults,
        wake=lambda: None,
    )

    assert Verification(workload=WORKLOAD, plan=PLAN, ports=ports).end_all().is_empty


@pytest.mark.parametrize(
    ("heartbeat", "is_local", "seconds"),
    [
        (Policy().heartbeat_interval, True, 4.0),
        (Policy().heartbeat_interval, False, 4.0),
        (timedelta(seconds=1), True, 0.5),
        (timedelta(seconds=1), False, 4.0),
        (timedelta(minutes=5), False, 10.0),
    ],
)
def test_a_job_lasts_several_heartbeats(
    heartbeat: timedelta, is_local: bool, seconds: float
) -> None:
    assert usual_item_seconds(60, heartbeat, is_local=is_local) == seconds
