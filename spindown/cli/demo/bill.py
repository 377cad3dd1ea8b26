"""The bill of a span of time: every instance and why it was taken, seconds, dollars an item.

Read from what the system has written down anyway: decisions in S3, finished and live workers
in the ledger, the spend of each day. Writes nothing. Money is USD, at prices stamped at launch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.contract.decision import (
    CandidateRecord,
    Decision,
    LaunchRequestRecord,
    decision_prefix,
)
from spindown.contract.row import SpendRow
from spindown.control.spend import sum_spend
from spindown.domain.fleet import Worker
from spindown.domain.past_cost import CostPerItem, Saving, cost_per_item
from spindown.domain.reason import Reason
from spindown.ledger import Ledger
from spindown.operate.decision import read_decision
from spindown.operate.spent import spent_of
from spindown.port import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBill:
    """One instance: what it was, why it was taken, how it ended."""

    instance_id: str
    offer: str
    price_per_hour: float
    launched_at: datetime
    ended_at: datetime | None
    why: str
    ended_because: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """How often EC2 refused a pool, and as what."""

    code: str
    pool: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingChange:
    """The best offer by what was believed first, by price, and by what was learned since."""

    cheapest: str
    first: str
    last: str
    #: USD per item of ``first`` and ``last``, both by the last decision's knowledge.
    first_cost: float | None
    last_cost: float

    @property
    def differs_from_price(self) -> bool:
        """Tell whether the best offer is of another type than the cheapest by the hour."""
        return _type_of(self.last) != _type_of(self.cheapest)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """What a span of time has cost, and what for."""

    start: datetime
    end: datetime
    spend: SpendRow
    instances: tuple[InstanceBill, ...]
    refusals: tuple[RefusalCount, ...]
    ranking: RankingChange | None
    saving: Saving

    @property
    def cost(self) -> CostPerItem | None:
        """Return the cost per item, busy and all-in; None before the first item."""
        return cost_per_item(
            dollars=self.spend.dollars,
            items=self.spend.items,
            busy_seconds=self.spend.busy_seconds,
            paid_seconds=self.spend.paid_seconds,
        )


def read_bill(
    workload: str,
    *,
    ledger: Ledger,
    store: ObjectStore,
    start: datetime,
    end: datetime,
    ranked_now: Sequence[CandidateRecord] = (),
) -> CostReport:
    """Return the bill of a workload between two instants; days of UTC are counted whole.

    Args:
        workload: whose.
        ledger: its rows.
        store: where its decisions lie.
        start: first instant.
        end: last instant.
        ranked_now: the candidate list by what is known at the end; without it the last
            decision's own is taken.
    """
    view = ledger.read()
    decisions = tuple(_decisions(workload, store, start, end))
    known = {**ledger.read_ended(), **view.workers}
    spent = spent_of(ledger, view, end, past=ledger.read_past_days())
    workers = sorted(
        (w for w in known.values() if start <= w.launched_at <= end), key=lambda w: w.launched_at
    )
    reasons = _reasons(decisions)
    return CostReport(
        start=start,
        end=end,
        spend=sum_spend(spent.between(start, end).values()),
        instances=tuple(_instance(worker, reasons) for worker in workers),
        refusals=_count_refusals(decisions),
        ranking=_compare_rankings(decisions, ranked_now),
        saving=spent.saving_between(start, end),
    )


def _decisions(
    workload: str, store: ObjectStore, start: datetime, end: datetime
) -> Iterator[Decision]:
    day = start.date()
    while day <= end.date():
        for summary in store.list(f"{decision_prefix(workload)}{day:%Y-%m-%d}/"):
            decision = read_decision(summary.key, store)
            if decision is not None and start <= decision.at <= end:
                yield decision
        day += timedelta(days=1)


def _instance(worker: Worker, reasons: Mapping[str, str]) -> InstanceBill:
    return InstanceBill(
        instance_id=worker.instance_id,
        offer=str(worker.pool),
        price_per_hour=worker.price_per_hour,
        launched_at=worker.launched_at,
        ended_at=worker.ended_at,
        why=reasons.get(worker.instance_id, "adopted"),
        ended_because=worker.reason,
    )


def _reasons(decisions: Sequence[Decision]) -> dict[str, str]:
    return {
        instance_id: _explain(decision, request, pool)
        for decision in decisions
        for request in decision.requests
        for instance_id, pool in request.instances.items()
    }


def _explain(decision: Decision, request: LaunchRequestRecord, pool: str) -> str:
    order = [candidate.offer for candidate in decision.candidates]
    if pool not in order:
        return request.outcome
    place = order.index(pool)
    chosen = decision.candidates[place]
    origin = "measured" if chosen.measured else "expected"
    by_price = sorted(candidate.price_per_hour for candidate in decision.candidates)
    return (
        f"{_ordinal(place + 1)} of {len(order)} by cost per item, "
        f"{_ordinal(by_price.index(chosen.price_per_hour) + 1)} by price; "
        f"{chosen.items_per_hour:,.0f} items/h {origin}"
    )


def _ordinal(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in {11, 12, 13} else suffix}"


def _count_refusals(decisions: Sequence[Decision]) -> tuple[RefusalCount, ...]:
    times: dict[tuple[str, str], int] = {}
    for decision in decisions:
        for request in decision.requests:
            for refusal in request.refusals:
                key = (refusal.code, refusal.pool)
                times[key] = times.get(key, 0) + 1
    return tuple(
        RefusalCount(code=code, pool=pool, times=count)
        for (code, pool), count in sorted(times.items(), key=lambda entry: -entry[1])
    )


def _compare_rankings(
    decisions: Sequence[Decision], ranked_now: Sequence[CandidateRecord]
) -> RankingChange | None:
    ranked = [decision.candidates for decision in decisions if decision.candidates]
    if not ranked:
        return None
    first, last = ranked[0], ranked_now or ranked[-1]
    return RankingChange(
        cheapest=min(last, key=lambda candidate: candidate.price_per_hour).offer,
        first=first[0].offer,
        last=last[0].offer,
        first_cost=_cost_of_type(_type_of(first[0].offer), last),
        last_cost=last[0].cost_per_item,
    )


def _cost_of_type(name: str, candidates: Sequence[CandidateRecord]) -> float | None:
    costs = [c.cost_per_item for c in candidates if _type_of(c.offer) == name]
    return min(costs, default=None)


def _type_of(offer: str) -> str:
    return offer.partition("/")[0]
