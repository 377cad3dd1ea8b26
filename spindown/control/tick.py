"""One tick: compare what is wanted with what is there, and repair it. The whole story.

A tick has three steps, and each returns a value: ``observe`` an ``Observation``, ``make_plan`` a
``Plan``, ``execute`` a ``TickRecord``. Each call takes time, so ``observe`` plans meanwhile what
needs no prices (``EarlyPlan``), asks only what that leaves open, and returns both. Before the steps
the tick takes the lock of its workload; after them it writes the decision down, tells people, and
gives the lock back. Only executing changes the fleet; planning needs no clock, port or chance.
``functions.scaler``, woken by ``infra/control/trigger.py``, and ``instance_event`` call it.

A tick looks at the present state, not at what woke it: two, or none for a while, change only how
soon. Without types, outposts and budget it makes at most five calls (ledger, queue, EC2, two for
the lock), and for a launch three more, except in rare cases.

The steps of the plan are functions of modules in the folder ``plan``, as the imports say; all work
on the values of ``plan.action``. ``observe`` reads, ``execute`` acts, ``record`` writes down.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from spindown.contract.decision import Decision
from spindown.control.execute.executor import execute
from spindown.control.execute.journal import FenceLost, Journal
from spindown.control.observe.ec2 import observe_ec2, observe_launches
from spindown.control.observe.observation import Observation, read_market, read_rows, with_jobs
from spindown.control.plan.action import PlanDraft, new_draft
from spindown.control.plan.adopt import adopt_launches
from spindown.control.plan.backlog import remember_queue
from spindown.control.plan.breaker import begin_breakers, count_useless_instances
from spindown.control.plan.charge import (
    charge_workers,
    due_workers,
    move_reservations,
    release_reservations,
)
from spindown.control.plan.correct_rows import correct_workers
from spindown.control.plan.garbage import collect_garbage
from spindown.control.plan.launch_need import LaunchNeed, launch_needs, launch_needs_again
from spindown.control.plan.launch_request import plan_requests
from spindown.control.plan.learn_boot import learn_boots, record_vram
from spindown.control.plan.migrate import Moves, tell_movers
from spindown.control.plan.newer_message import show_newer_messages
from spindown.control.plan.offers import allowance_of, choose_all, store_catalogue
from spindown.control.plan.plan import Plan
from spindown.control.plan.requeue import requeue_jobs
from spindown.control.plan.shape import ask_for_routing, of_shape, remember_shapes
from spindown.control.plan.stable_machine import plan_all_moves
from spindown.control.plan.terminate import (
    condemn_and_terminate,
    end_gone_rows,
    end_outstayed,
    find_ends,
    keep_warm,
    mark_interrupted,
)
from spindown.control.plan.throttling import remember_answers
from spindown.control.plan.wind_down import divide_budget, end_surplus
from spindown.control.record.decision import record_locked, write_down
from spindown.error import SpindownError, WriteConflict
from spindown.ledger import Ledger
from spindown.port import ControlPorts


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyPlan:
    """What is planned without prices, and which launches are missing."""

    draft: PlanDraft
    #: Which launches each shape lacks; without types one.
    missing: tuple[LaunchNeed, ...]
    moves: Moves

    @property
    def is_launch_due(self) -> bool:
        """Tell whether offers are to be chosen from."""
        return any(need.may_launch for need in (*self.missing, *self.moves.for_particular_jobs))


def run_tick(workload: str, ports: ControlPorts, *, holder: str, source: str = "") -> Decision:
    """Bring the fleet of one workload to what its queue and policy ask for.

    Args:
        workload: its name.
        ports: how to reach AWS.
        holder: who asks, unique among those who may ask at once.
        source: what woke it, for the record only.

    Raises:
        NotFound: there is no such workload.
        SpindownError: ledger, settings or queue could not be read; the next tick tries again.

    Whatever it raises, the lock is given back.
    """
    now, ledger = ports.clock.now(), Ledger(ports.table, workload)
    try:
        fence = ledger.take_lock(holder=holder, now=now)
    except WriteConflict:
        # Its holder is writing just now.
        fence = None
    if fence is None:
        return record_locked(workload, ports, source)
    try:
        seen, early = observe(workload, ports, now=ports.clock.now(), source=source)
        plan = make_plan(seen, early)
        journal = Journal(ledger, fence, damaged=seen.facts.view.bad_rows)
        record = execute(plan, seen, ports, journal)
        return write_down(seen, plan, record, ports, journal)
    except FenceLost:
        return record_locked(workload, ports, source)
    except Exception:
        # Intents and conditional writes repair what a crash leaves. The fence rejects this release
        # if somebody else holds the lock by now.
        with suppress(SpindownError):
            ledger.apply(fence, (), release=True)
        raise


def observe(
    workload: str, ports: ControlPorts, *, now: datetime, source: str, jobs: int | None = None
) -> tuple[Observation, EarlyPlan]:
    """Read all that the tick decides by; with ``jobs`` pretend that so many jobs wait."""
    facts = read_rows(workload, ports, source=source, now=now)
    if jobs is not None:
        facts = with_jobs(facts, jobs)
    facts = observe_launches(facts, ports)
    with_queue = remember_shapes(remember_queue(new_draft(facts)))
    # From the rows alone: whether a launch is due, so that EC2 is asked for what that takes.
    by_rows = adopt_launches(correct_workers(remember_answers(with_queue)))
    missing = launch_needs(by_rows)
    is_due = any(each.may_launch for each in missing)
    facts = observe_ec2(by_rows.facts, by_rows.fleet, ports, is_launch_due=is_due)
    # The same steps with EC2's answer; needs that it leaves as they were are kept.
    draft = plan_without_prices(replace(with_queue, facts=facts))
    early = early_plan_of(draft, launch_needs_again(draft, by_rows, missing))
    return observe_market(early, ports), early


def observe_market(early: EarlyPlan, ports: ControlPorts, *, is_asked: bool = False) -> Observation:
    """Read shared rows and prices where they are needed; with ``is_asked`` prices in any case."""
    return read_market(
        early.draft.facts,
        ports,
        is_launch_due=is_asked or early.is_launch_due,
        charged=due_workers(early.draft),
        is_billing=any(worker.is_live for worker in early.draft.fleet.workers.values()),
    )


def plan_without_prices(draft: PlanDraft) -> PlanDraft:
    """Plan all that needs no prices, once it is known since when work waits."""
    draft = adopt_launches(correct_workers(remember_answers(draft)))
    draft = mark_interrupted(draft)
    draft = begin_breakers(draft)
    terminations = find_ends(draft)
    draft = end_gone_rows(draft, terminations)
    draft = requeue_jobs(draft)
    draft = ask_for_routing(show_newer_messages(draft))
    draft = count_useless_instances(draft)
    draft = condemn_and_terminate(draft, terminations)
    draft = learn_boots(draft)
    return record_vram(draft)


def early_plan_of(draft: PlanDraft, missing: tuple[LaunchNeed, ...]) -> EarlyPlan:
    """Return what is planned without prices: ``missing`` for the queues, and jobs that move."""
    moves = (plan_all_moves(of_shape(draft, each.shape), each) for each in missing)
    return EarlyPlan(draft=draft, missing=missing, moves=sum(moves, Moves()))


def make_plan(seen: Observation, early: EarlyPlan | None = None) -> Plan:
    """Plan the whole tick; launches come last.

    ``early`` is what ``observe`` has planned of the same facts, most ends among it; None: plan it
    again. A worker that ends below is not replaced before the next tick.
    """
    if early is None:
        draft = plan_without_prices(remember_shapes(remember_queue(new_draft(seen.facts))))
        early = early_plan_of(draft, launch_needs(draft))
    missing, moves = early.missing, early.moves
    draft = charge_workers(early.draft, seen.prices)
    draft = move_reservations(release_reservations(draft))
    draft = store_catalogue(draft, seen.prices)
    draft = collect_garbage(draft)
    draft, budget = divide_budget(end_surplus(draft), seen.account)
    draft = keep_warm(draft, None if budget is None else budget.left_usd)
    draft = end_outstayed(draft)
    allowance = allowance_of(draft, missing[0], seen.account, budget)
    chosen = choose_all(draft, missing, moves.for_particular_jobs, seen, allowance)
    launches = plan_requests(draft, chosen.all, allowance)
    draft = tell_movers(draft, moves).act(launches, notes=(*chosen.notes, *seen.notes))
    return Plan(
        actions=draft.actions,
        fleet=draft.fleet,
        choice=chosen.missing[0],
        allowance=allowance,
        others=chosen.missing[1:],
        for_particular_jobs=chosen.for_particular_jobs,
        notes=draft.notes,
    )
