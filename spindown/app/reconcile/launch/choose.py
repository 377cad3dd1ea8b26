"""Decide how many workers are missing, and which offers they could come from.

Reads prices and the account only once a launch is due; a quiet tick and a held launch decide on
what the ledger and the queue say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.app.ledger import AccountView
from spindown.app.offers import current_catalogue, current_sale
from spindown.app.reconcile.launch.closure import closed_regions, is_on_trial
from spindown.app.reconcile.tick import ACCOUNT, CATALOGUE_STALE_AFTER, Tick
from spindown.app.reconcile.track import waiting_of
from spindown.contract.row import QuotaRow
from spindown.domain.cost import dollars_per_hour
from spindown.domain.fleet import Backlog
from spindown.domain.offer import QUOTA_CODES, trusted
from spindown.domain.ranking import CandidateList, Closure, Demand, rank
from spindown.domain.sizing import (
    Bounds,
    Capacity,
    Patience,
    Sizing,
    Waiting,
    ask_patiently,
    capacity,
    missing,
    patience,
    size,
    vcpus_left,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How many, of what, and why not now."""

    demand: Demand
    capacity: Capacity
    #: None: as many messages are visible as make a launch due at once.
    patience: Patience | None
    sizing: Sizing
    #: None: prices were not looked at, since no launch is due.
    candidates: CandidateList | None = None
    #: Why no launch may happen although one is due; "": it may.
    stopped: str = ""
    #: When the stop, the hold or the dry spell may end.
    retry_at: datetime | None = None

    @property
    def is_due(self) -> bool:
        """Tell whether workers are wanted now, whatever may prevent them."""
        return self.sizing.unbounded > 0

    @property
    def is_open(self) -> bool:
        """Tell whether workers are wanted now and nothing known prevents them."""
        return self.is_due and not self.stopped


def weigh(tick: Tick) -> Choice:
    """Size the fleet by the queue and the ledger alone."""
    work = waiting_work(tick)
    present = capacity(
        workers=list(tick.workers.values()),
        leases=tick.leases,
        launches=list(tick.launches.values()),
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
    )
    demand = missing(backlog=work, capacity=present, knowledge=tick.knowledge, policy=tick.policy)
    patient = _patience(tick, work, present)
    if patient is not None:
        demand = ask_patiently(demand, patient, tick.knowledge, tick.policy)
    sizing = size(
        backlog=work,
        backlog_since=tick.seen.backlog_since,
        demand=demand,
        capacity=present,
        best=None,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        patience=patient,
    )
    stopped, until = _stop(tick, present) if sizing.unbounded > 0 else ("", None)
    return Choice(
        demand=demand,
        capacity=present,
        patience=patient,
        sizing=sizing,
        stopped=stopped,
        retry_at=until or sizing.hold_until,
    )


def _patience(tick: Tick, work: Backlog, present: Capacity) -> Patience | None:
    """Return what can wait, while fewer messages are visible than make a launch due at once."""
    if work.visible >= tick.policy.scale_up_threshold:
        return None
    waiting = waiting_of(tick.seen)
    returning = work.visible - sum(group.jobs for group in waiting)
    if returning > 0:
        waiting = (*waiting, Waiting(since=tick.now, jobs=returning))
    return patience(
        waiting,
        present,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        margin=timedelta(seconds=tick.seen.margin or 0.0),
    )


def choose(tick: Tick, weighed: Choice) -> Choice:
    """Rank what is on sale for a launch that is due, and size it within all bounds."""
    if not weighed.is_open:
        return weighed
    account = tick.ledger.read_account()
    tick.account = tick.ports.cache.keep(ACCOUNT, "", tick.now, account)
    tick.catalogue_age = _catalogue_age(tick)
    headroom = _headroom(tick)
    candidates = rank_offers(tick, weighed, headroom_per_hour=headroom)
    sizing = size(
        backlog=waiting_work(tick),
        backlog_since=tick.seen.backlog_since,
        demand=weighed.demand,
        capacity=weighed.capacity,
        best=candidates.best,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        patience=weighed.patience,
        bounds=_bounds(tick, candidates, headroom),
    )
    best = candidates.best
    if sizing.wanted > 1 and best is not None and is_on_trial(tick, best.offer.region):
        sizing = replace(sizing, wanted=1, bound="trial")
    return replace(
        weighed,
        sizing=sizing,
        candidates=candidates,
        stopped=_bound_words(tick, sizing),
        retry_at=_retry_at(candidates) if candidates.best is None else None,
    )


def _bounds(tick: Tick, candidates: CandidateList, headroom: float | None) -> Bounds:
    """Return what limits the fleet besides ``max_workers``; note the quotas that stop it."""
    best, left = candidates.best, quota_left(tick)
    if best is None:
        _note_short(tick, candidates, left)
    return Bounds(
        budget_left=budget_left(tick),
        headroom_per_hour=headroom,
        quota_vcpus_left=None if best is None else left.get(best.offer.quota_class),
    )


def _note_short(tick: Tick, candidates: CandidateList, left: Mapping[str, float]) -> None:
    """Tell of quotas that have no room for what would fit, as if EC2 had been asked."""
    least: dict[str, int] = {}
    for rejection in candidates.rejected:
        name, vcpus = rejection.offer.quota_class, rejection.offer.instance_type.vcpus
        if rejection.constraint == "quota" and name in left:
            least[name] = min(vcpus, least.get(name, vcpus))
    rows = tuple(
        QuotaRow(
            quota_class=name,
            code=QUOTA_CODES.get(name.partition("/")[2], ""),
            until=tick.now + tick.policy.tick,
            message=f"{max(left[name], 0.0):g} vCPUs are left, the smallest offer takes {vcpus}",
        )
        for name, vcpus in sorted(least.items())
    )
    tick.notes += [f"quota {row.quota_class}: {row.message}" for row in rows]
    if tick.account is not None:
        known = {row.quota_class for row in tick.account.quotas if row.until > tick.now}
        new = tuple(row for row in rows if row.quota_class not in known)
        tick.account = replace(tick.account, quotas=(*tick.account.quotas, *new))


def quota_left(tick: Tick) -> Mapping[str, float]:
    """Return class -> vCPUs that the account may still launch, as far as its quotas are known."""
    catalogue = trusted(current_catalogue(tick.ports, tick.now), tick.now)
    workers = list(tick.workers.values())
    return vcpus_left(catalogue.quotas, workers, catalogue.instance_types)


def rank_offers(
    tick: Tick, weighed: Choice, *, headroom_per_hour: float | None = None
) -> CandidateList:
    """Rank what is on sale now for the demand of a choice; the account must have been read."""
    account = tick.account or AccountView()
    sale = current_sale(
        tick.settings,
        tick.policy,
        home_region=tick.deployment.region,
        ports=tick.ports,
        now=tick.now,
        is_late=weighed.sizing.waited >= tick.policy.start_within,
    )
    tick.notes += sale.notes
    return rank(
        sale.offers,
        demand=weighed.demand,
        knowledge=tick.knowledge,
        unavailable=tick.unavailable.values(),
        blocked={quota.quota_class: quota.until for quota in account.quotas},
        closed=closed_regions(tick),
        quota_left=quota_left(tick),
        policy=tick.policy,
        requirements=tick.settings.requirements,
        waited=weighed.sizing.waited,
        now=tick.now,
        headroom_per_hour=headroom_per_hour,
    )


def waiting_work(tick: Tick) -> Backlog:
    """Return the queue, with what interrupted workers hold counted as visible already.

    Their jobs come back within two minutes, less than any boot takes: the replacement is due
    at the notice, not at the deadline.
    """
    leaving = {w.instance_id for w in tick.workers.values() if w.is_interrupting and w.is_live}
    if not leaving:
        return tick.backlog
    soon = sum(lease.instance_id in leaving for lease in tick.leases)
    return replace(
        tick.backlog,
        visible=tick.backlog.visible + soon,
        in_flight=max(0, tick.backlog.in_flight - soon),
    )


def budget_left(tick: Tick) -> float | None:
    """Return the USD that launches may still reserve this month; None: no budget."""
    if tick.deployment.budget_per_month is None or tick.account is None:
        return None
    committed = tick.account.budget_at(tick.now).committed
    return max(0.0, tick.deployment.budget_per_month - committed)


def _stop(tick: Tick, present: Capacity) -> tuple[str, datetime | None]:
    if present.workers >= tick.policy.max_workers:
        return f"max_workers is {tick.policy.max_workers}", None
    closed = closed_regions(tick)
    if closed.keys() >= tick.settings.outposts.keys():
        first = next(iter(closed.values()), Closure(reason="no outpost can be read"))
        return first.reason, min((c.until for c in closed.values() if c.until), default=None)
    return "", None


def _bound_words(tick: Tick, sizing: Sizing) -> str:
    if sizing.wanted > 0:
        return ""
    tick.budget_stopped = sizing.bound == "budget"
    return {
        "budget": f"the budget of {tick.deployment.budget_per_month} USD a month is used up",
        "max_dollars_per_hour": f"the workload costs {tick.policy.max_dollars_per_hour} USD/h",
    }.get(sizing.bound, "")


def _headroom(tick: Tick) -> float | None:
    most = tick.policy.max_dollars_per_hour
    if most is None:
        return None
    return max(0.0, most - dollars_per_hour(list(tick.workers.values())))


def _retry_at(candidates: CandidateList) -> datetime | None:
    nearest = candidates.nearest
    return None if nearest is None else nearest.retry_at


def _catalogue_age(tick: Tick) -> timedelta:
    catalogue = current_catalogue(tick.ports, tick.now)
    oldest = min([catalogue.taken_at, *catalogue.stale_since.values()])
    age = max(tick.now - oldest, timedelta(0))
    if age > CATALOGUE_STALE_AFTER:
        at = f"{oldest:%Y-%m-%d %H:%M}"
        tick.notes.append(f"part of the catalogue of offers was last read at {at}")
    return age
