"""One tick: what is wanted is compared with what is there, and repaired. The whole story.

A tick is three values. It *observes* all that it decides by, once; it *plans* from that alone,
without a clock, a port or chance; and it *executes* the plan, which is the only part that writes,
terminates or launches. ``spindown plan`` prints the very plan of the next tick (``preview``).

It is idempotent and driven by the level: doing it twice, or not at all for a while, changes only
how soon. A tick that launches nothing makes at most three calls besides the lock's two (the
ledger, the queue, EC2); a launch that succeeds first time adds three (intent, request, decision).
What is older than a few minutes costs a call more now and then: settings, prices, catalogue, what
all workloads share; and so does a decision that differs from the last one.

Where to look further: ``observation`` and ``ec2`` read, ``backlog``, ``reap``, ``breaker``,
``books``, ``size``, ``offers`` and ``migrate`` plan, ``execute`` and ``launch`` act, ``record``
writes down.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from spindown.contract.decision import Decision, Outcome
from spindown.contract.metric import DEPLOYMENT, WORKLOAD
from spindown.control.backlog import follow_queue
from spindown.control.books import (
    charge_workers,
    collect_garbage,
    learn_boots,
    note_end_prices,
    note_vram,
    unpriced_ends,
)
from spindown.control.breaker import close_mended, count_failures
from spindown.control.ec2 import note_answers, observe_ec2, observe_launches
from spindown.control.execute import execute
from spindown.control.journal import FenceLost, Journal
from spindown.control.migrate import Moves, order_moves, plan_moves
from spindown.control.observation import Observation, read_market, read_rows
from spindown.control.offers import choose_offers, launch_action
from spindown.control.plan import LaunchChoice, Plan, PlanDraft, begin
from spindown.control.reap import (
    adopt_launches,
    end_rows,
    find_ends,
    free_jobs,
    keep_warm,
    note_reclaims,
    terminate,
)
from spindown.control.record import write_down
from spindown.control.size import size_again, size_fleet
from spindown.error import SpindownError, WriteConflict
from spindown.ledger import Ledger
from spindown.port import Datum
from spindown.port.control import ControlPorts


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is planned without prices: whatever ends, what the fleet has cost, what is missing."""

    draft: PlanDraft
    need: LaunchChoice
    moves: Moves

    @property
    def is_launch_due(self) -> bool:
        """Tell whether offers are to be chosen from."""
        return self.need.is_open or any(choice.is_open for choice in self.moves.takeovers)


def reconcile(workload: str, ports: ControlPorts, *, holder: str, source: str = "") -> Decision:
    """Bring the fleet of one workload to what its queue and policy ask for.

    Args:
        workload: whose.
        ports: the world.
        holder: who asks, unique among those who may ask at once.
        source: what woke it, for the record only.

    Raises:
        NotFound: there is no such workload.
        SpindownError: the ledger, the settings or the queue could not be read; the next tick
            tries again.

    Whatever it raises, the lock is given back, so that the next tick need not wait for its lease.
    """
    now, ledger = ports.clock.now(), Ledger(ports.table, workload)
    try:
        fence = ledger.take_lock(holder=holder, now=now)
    except WriteConflict:
        # A transaction of whoever holds it is under way.
        fence = None
    if fence is None:
        return _locked_out(workload, ports, source)
    try:
        settled, seen = observe(workload, ports, now=now, source=source)
        plan = make_plan(settled, seen)
        journal = Journal(ledger, fence, damaged=seen.facts.view.bad_rows)
        record = execute(plan, seen, ports, journal)
        return write_down(seen, plan, record, ports, journal)
    except FenceLost:
        return _locked_out(workload, ports, source)
    except Exception:
        # A fault of our own, too: intents and conditions make good what a crash leaves at the same
        # place, and whoever has taken the lock meanwhile has raised its fence.
        with suppress(SpindownError):
            ledger.apply(fence, (), release=True)
        raise


def observe(
    workload: str, ports: ControlPorts, *, now: datetime, source: str, jobs: int | None = None
) -> tuple[Settled, Observation]:
    """Read all that the tick decides by: the rows, EC2, and prices if a launch is due.

    Whether one is due is planned on the way, and returned with what was seen. With ``jobs`` the
    queue is taken to hold so many that wait.
    """
    facts = read_rows(workload, ports, source=source, now=now)
    if jobs is not None:
        facts = replace(facts, queue=replace(facts.queue, visible=jobs))
    facts = observe_launches(facts, ports)
    followed = follow_queue(begin(facts))
    before = adopt_launches(note_answers(followed))
    need = size_fleet(before)
    facts = observe_ec2(before, ports, is_launch_due=need.is_open)
    settled = settle(replace(followed, facts=facts), before, need)
    return settled, observe_market(settled, ports)


def observe_market(settled: Settled, ports: ControlPorts, *, is_asked: bool = False) -> Observation:
    """Read prices and what all workloads share, as far as somebody needs them.

    With ``is_asked`` prices are read even if no launch is due.
    """
    draft = settled.draft
    return read_market(
        draft.facts,
        ports,
        is_launch_due=is_asked or settled.is_launch_due,
        ended=unpriced_ends(draft),
        is_billing=any(worker.is_live for worker in draft.fleet.workers.values()),
    )


def settle(draft: PlanDraft, before: PlanDraft, need: LaunchChoice) -> Settled:
    """Plan all that needs no prices, once EC2 has answered.

    Args:
        draft: the queue is followed, and EC2's answers are in its facts.
        before: the plan without these answers.
        need: how the fleet was sized by ``before``.
    """
    draft = note_reclaims(adopt_launches(note_answers(draft)))
    draft = keep_warm(close_mended(draft))
    reaping = find_ends(draft)
    draft = free_jobs(end_rows(draft, reaping))
    draft = count_failures(draft)
    draft = terminate(draft, reaping)
    draft = note_vram(learn_boots(charge_workers(draft)))
    need = size_again(draft, before, need)
    return Settled(draft=draft, need=need, moves=plan_moves(draft, need))


def make_plan(settled: Settled, seen: Observation) -> Plan:
    """Plan the rest of the tick, launches last, and return the whole."""
    need, moves = settled.need, settled.moves
    draft = collect_garbage(note_end_prices(settled.draft, seen.prices))
    choice, notes = choose_offers(draft, need, seen)
    takeovers = []
    for wanted in moves.takeovers:
        takeover, more = choose_offers(draft, wanted, seen)
        takeovers.append(takeover)
        notes += tuple(note for note in more if note not in notes)
    launches = filter(None, (launch_action(draft, each) for each in (choice, *takeovers)))
    draft = order_moves(draft, moves).act(launches, notes=(*notes, *seen.notes))
    return Plan(
        actions=draft.actions,
        fleet=draft.fleet,
        choice=choice,
        takeovers=tuple(takeovers),
        notes=draft.notes,
    )


def _locked_out(workload: str, ports: ControlPorts, source: str) -> Decision:
    dimensions = {DEPLOYMENT: ports.deployment().name, WORKLOAD: workload}
    ports.metrics.emit([Datum(name="LockBusy", value=1, dimensions=dimensions)])
    return Decision(workload=workload, at=ports.clock.now(), outcome=Outcome.LOCKED, source=source)
