"""What interruptions have cost a job that makes no progress, and where it may go on.

A job goes on where it likes as long as attempts that EC2 ended have wasted little. Then it goes on
only on a machine that stays (on demand), and if none can be had it becomes a dead letter:

1. ``may_be_risked``: another attempt on spot is made only if the job would not have cost more, with
   that attempt, than the longest attempt so far costs on demand. Where on-demand is ruled out,
   twice as much is allowed; also where attempts save state, which is counted apart (``of_item``).
2. ``pays_here``: within that bound, a machine that stays is looked for as soon as it is expected to
   be cheaper than spot with its reclaims.
3. ``goes_on`` puts both together: anywhere, on a stable machine, or nowhere. Nowhere ends the job
   (``dead_letter.never_done``). One that has waited ``STABLE_WITHIN`` for a stable machine and got
   none (``has_waited_in_vain``) counts as if on-demand were ruled out.
4. However its attempts end, an item is not begun again after ``max_item_time``
   (``dead_letter.too_long``).

S (``Attempts.dollars``) is what all attempts have cost that EC2 ended without progress, and L
(``Attempts.hours``) the longest of them: a lower bound of what the next progress needs. A machine
costs p an hour as spot (``SpotTerms.price``) and D on demand (``SpotTerms.on_demand``), and a boot
takes b (``Attempts.boot``). Rule 1 is ``S + p (b + L) <= D (b + L)``: if one more attempt takes as
long as the longest and is lost too, all together cost no more than that time costs on demand. So an
item costs at most twice what on-demand from the start would have (ADR 56 has the proof, and what
holds for state).

This bounds the worst case. Before the bound is reached, the rate l of the pool says what going on
there is expected to cost: ``p (b + L) F`` with F = e^(lb) (e^(lL) - 1) / (lL)
(``commit_interval.slowdown``). Once on-demand is cheaper than that, a stable machine is looked for.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Self

from spindown.domain.commit_interval import slowdown
from spindown.domain.offer import CapacityType, Offer, slot_count
from spindown.domain.policy import Policy
from spindown.domain.reason import About
from spindown.domain.relative_throughput import relative_throughput
from spindown.domain.spot_or_on_demand import price_ceilings
from spindown.domain.value_range import Amount, Tally

#: EC2 sells spot at a discount of up to 90 % (EC2 User Guide, "Spot Instances"): where nobody knows
#: the price on demand, it is taken for this many times the price of spot.
_DEAREST = 10.0
#: Where on-demand is ruled out, so many times its cost is spent on spot.
_WITHOUT_ON_DEMAND = 2.0
#: Where state is saved, so many times the cost on demand of the longest attempt is spent on spot.
_WITH_STATE = 2.0
#: An attempt of this item is taken to last so many hours at least: so items of a day whose state
#: is of use stay on spot, whatever is reclaimed when.
_ITEM_HOURS = 6.0
#: A job that has waited so long for a stable machine goes on without: nearly all shortages end
#: sooner.
STABLE_WITHIN = timedelta(days=1)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """What a slot of a spot machine costs, and how likely EC2 is to leave it."""

    #: USD an hour of the whole machine, as spot and on demand.
    price: float
    #: None: not known.
    listed: float | None
    #: Of the whole machine by its data sheet; one T4 is 1.
    speed: float
    slots: int = 1
    gpus: float = 0.0
    #: Reclaims an hour to expect.
    rate: float = 0.0

    @property
    def on_demand(self) -> float:
        """Return USD an hour on demand; where that is not known, the most that it can be."""
        return self.price * _DEAREST if self.listed is None else self.listed


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Attempts that interruptions ended, and what they have cost."""

    attempts: Tally = 0
    #: Work of the longest, in hours on a T4: what they were for takes more.
    hours: Amount = 0.0
    #: Of a boot, in hours: the shortest of those attempts.
    boot: Amount = 0.0
    #: USD of all of them, boots included.
    dollars: Amount = 0.0

    def after(self, hours: float, boot: float, terms: SpotTerms) -> Self:
        """Return it after one more attempt of so many hours on a machine that took so to boot."""
        return replace(
            self,
            attempts=self.attempts + 1,
            hours=max(self.hours, hours * terms.speed / terms.slots),
            boot=min(self.boot, boot) if self.attempts else boot,
            dollars=self.dollars + terms.price / terms.slots * (boot + hours),
        )

    def is_within(self, most: float, terms: SpotTerms, least: float = 0.0) -> bool:
        """Tell whether all stays within ``most`` USD an hour of the longest after another one.

        Args:
            most: USD.
            terms: of the machine.
            least: hours of it that the longest counts for at least.
        """
        longest = max(self.hours / terms.speed, least / terms.slots)
        hours = self.boot / terms.slots + longest
        return self.dollars + terms.price * hours <= most * hours


NO_ATTEMPTS = Attempts()


@dataclass(frozen=True, kw_only=True)
class WastedWork(Attempts):
    """What interruptions have cost a job since it last made progress."""

    #: Since its last item: also of attempts that saved state.
    of_item: Attempts = NO_ATTEMPTS
    #: Whether it has waited for a stable machine as long as is worth it, and got none.
    has_waited_in_vain: bool = False
    #: Slot hours since its last item, of all attempts, however they ended.
    item_hours: Amount = 0.0

    @property
    def decisive(self) -> Attempts:
        """Return those attempts that say most: since the last item, if some have saved state."""
        return self.of_item if self.saves else self

    @property
    def saves(self) -> bool:
        """Tell whether attempts before the item have saved state."""
        return self.of_item.attempts > self.attempts

    def saved(self) -> "WastedWork":
        """Return it as new state leaves it."""
        return WastedWork(
            of_item=self.of_item,
            has_waited_in_vain=self.has_waited_in_vain,
            item_hours=self.item_hours,
        )

    def worked(self, time: timedelta) -> "WastedWork":
        """Return it after so much more slot time without an item."""
        return replace(self, item_hours=self.item_hours + max(time / _HOUR, 0.0))


NOTHING_WASTED = WastedWork()


class GoesOn(StrEnum):
    """Where a job goes on."""

    ANYWHERE = "anywhere"
    #: On a machine that EC2 does not take back, or takes back more seldom.
    STABLE = "stable"
    #: Nothing that the policy allows can do it for what it is worth.
    NOWHERE = "nowhere"


def terms_of_offer(offer: Offer, rate: float, slots: str) -> SpotTerms | None:
    """Return the terms of an offer; None: EC2 takes no such machine back.

    Args:
        offer: what is on sale.
        rate: reclaims an hour to expect.
        slots: ``run.slots`` of the workload.
    """
    if offer.capacity_type is not CapacityType.SPOT:
        return None
    listed, kind = offer.on_demand_price, offer.instance_type
    return SpotTerms(
        price=offer.price,
        listed=None if listed is None else listed + offer.extra_price,
        speed=relative_throughput(*kind.processor),
        slots=slot_count(kind.gpu_count, slots),
        gpus=kind.gpu_count,
        rate=rate,
    )


def is_ever_allowed(policy: Policy, kind: CapacityType, price: float, gpus: float) -> bool:
    """Tell whether the policy allows a machine at a price, however long work waits."""
    most = price_ceilings(policy, policy.start_within).get(kind)
    if policy.max_dollars_per_hour is not None and most is not None:
        most = min(most, policy.max_dollars_per_hour)
    if policy.max_price_per_gpu_hour is not None and gpus > 0.0 and most is not None:
        most = min(most, policy.max_price_per_gpu_hour * gpus)
    return most is not None and price <= most


def has_on_demand(terms: SpotTerms, policy: Policy) -> bool:
    """Tell whether the policy ever allows such a machine on demand, if it is sold so."""
    kind, listed = CapacityType.ON_DEMAND, terms.listed
    return listed is not None and is_ever_allowed(policy, kind, listed, terms.gpus)


def _has_stable(wasted_work: WastedWork, terms: SpotTerms, policy: Policy) -> bool:
    return not wasted_work.has_waited_in_vain and has_on_demand(terms, policy)


def may_be_risked(wasted_work: WastedWork, terms: SpotTerms | None, policy: Policy) -> bool:
    """Tell whether a job may have another attempt on a machine; None: it is not spot.

    Worked: a T4 at 0.20 as spot and 0.50 on demand, boots of 0.1 h. An attempt of 2 h cost 0.42,
    and another would cost as much: 0.84 <= 0.5 x 2.1 = 1.05, so it is made. If it ends after 1 h,
    0.64 are spent, and 0.64 + 0.42 > 1.05.
    """
    if terms is None:
        return True
    has_stable = _has_stable(wasted_work, terms, policy)
    if has_stable and wasted_work.saves:
        most = _WITH_STATE * terms.on_demand
        if not wasted_work.of_item.is_within(most, terms, _ITEM_HOURS):
            return False
    if not wasted_work.attempts:
        return True
    is_known = terms.listed is not None
    factor = _WITHOUT_ON_DEMAND if is_known and not has_stable else 1.0
    return wasted_work.is_within(factor * terms.on_demand, terms)


def pays_here(wasted_work: WastedWork, terms: SpotTerms | None) -> bool:
    """Tell whether to go on here is expected to cost no more than on demand, by the bound."""
    if terms is None or not wasted_work.attempts:
        return True
    hours = wasted_work.hours * terms.slots / terms.speed
    if hours <= 0.0:
        return True
    factor = slowdown(rate=terms.rate, boot=wasted_work.boot, interval=hours, cost=0.0)
    return terms.price * factor <= terms.on_demand


def goes_on(wasted_work: WastedWork, terms: SpotTerms | None, policy: Policy) -> GoesOn:
    """Return where a job goes on that leaves such a machine; None: it is not spot."""
    if terms is None:
        # Where only state was saved, whoever takes it next tells whether it may be there.
        return GoesOn.STABLE if wasted_work.attempts else GoesOn.ANYWHERE
    if not may_be_risked(wasted_work, terms, policy):
        return GoesOn.STABLE if _has_stable(wasted_work, terms, policy) else GoesOn.NOWHERE
    is_worth_it = wasted_work.has_waited_in_vain or pays_here(wasted_work, terms)
    return GoesOn.ANYWHERE if is_worth_it else GoesOn.STABLE


def numbers_of(wasted_work: WastedWork) -> About:
    """Return the numbers of a reason."""
    attempts = wasted_work.decisive
    return {
        "attempts": attempts.attempts,
        "hours": attempts.hours,
        "dollars": attempts.dollars,
        "saves": wasted_work.saves,
    }
