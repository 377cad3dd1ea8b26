"""Which offers are asked last, since machines like theirs started and were of no use.

A fault may lie in a family of types (a driver), in a zone (a route) or in a capacity type (a key
that spot may not use). Each machine that never checks in, leaves work alone or is faulty raises the
doubt of all three of its traits; one that is of use clears its three. So the next machine differs
in as much as may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.bound import Tally
from spindown.domain.offer import CapacityType, Pool

#: From so many on, a trait is doubted even if machines with other traits were of use since.
_PROVEN_BAD = 3
#: A first machine may be broken by chance. Only after the second is another capacity type tried,
#: since it costs several times as much.
_OTHER_CAPACITY_TYPE_FROM = 2
#: Then one machine tries it again, as the fault may be mended. Sooner for a capacity type, since
#: without it machines cost most.
_CAPACITY_TYPE_DOUBTED_FOR = timedelta(hours=6)
_DOUBTED_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What speaks against a trait of pools: a family of types, a zone or a capacity type."""

    #: Machines that were of no use since one was.
    count: Tally
    #: When the last of them was counted.
    at: datetime


def traits_of(pool: Pool) -> tuple[str, ...]:
    """Return the family of types, the zone and the capacity type of a pool."""
    return pool.instance_type.partition(".")[0], pool.zone, pool.capacity_type.value


def doubt_more(doubts: Mapping[str, Doubt], pool: Pool, now: datetime) -> Mapping[str, Doubt]:
    """Return the doubts after one more machine of a pool was of no use."""
    more = {
        trait: Doubt(count=1 + (doubts[trait].count if trait in doubts else 0), at=now)
        for trait in traits_of(pool)
    }
    return {**doubts, **more}


def doubt_less(doubts: Mapping[str, Doubt], pool: Pool, since: datetime) -> Mapping[str, Doubt]:
    """Return the doubts that are left if a machine of a pool, up since then, is of use.

    If each of its own traits was doubted, the fault lay in none: something that all machines need
    was missing, and is there again. So nothing of that time is left.
    """
    cleared = traits_of(pool)
    if all(trait in doubts and doubts[trait].at <= since for trait in cleared):
        cleared = tuple(doubts)
    return {
        trait: doubt for trait, doubt in doubts.items() if trait not in cleared or doubt.at > since
    }


def doubted(doubts: Mapping[str, Doubt], in_a_row: int, now: datetime) -> Mapping[str, int]:
    """Return the traits that are asked last -> how many machines speak against each.

    Args:
        doubts: of one launch version, by trait.
        in_a_row: machines that were of no use since any was.
        now: the present.
    """
    return {
        trait: doubt.count
        for trait, doubt in doubts.items()
        if _is_doubted(trait, doubt, in_a_row, now)
    }


def _is_doubted(trait: str, doubt: Doubt, in_a_row: int, now: datetime) -> bool:
    is_capacity_type = trait in {each.value for each in CapacityType}
    if now - doubt.at >= (_CAPACITY_TYPE_DOUBTED_FOR if is_capacity_type else _DOUBTED_FOR):
        return False
    if in_a_row:
        return doubt.count >= (_OTHER_CAPACITY_TYPE_FROM if is_capacity_type else 1)
    return doubt.count >= _PROVEN_BAD
