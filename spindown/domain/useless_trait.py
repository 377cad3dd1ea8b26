"""Which offers are asked last, since machines like theirs started and were of no use.

A fault may lie in a family of types (a driver), in a zone (a route) or in a capacity type (a key
that spot may not use). Each machine that never checks in, leaves work alone or is faulty raises the
count of all three of its traits; one that is of use clears its three. So the next machine differs
in as much as may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType, Pool
from spindown.domain.value_range import Tally

#: From so many on, a trait is asked last even if machines with other traits were of use since.
_PROVEN_BAD = 3
#: A first machine may be broken by chance. Only after the second is another capacity type tried,
#: since it costs several times as much.
_OTHER_CAPACITY_TYPE_FROM = 2
#: Then one machine tries it again, as the fault may be mended. Sooner for a capacity type, since
#: without it machines cost most.
_CAPACITY_TYPE_LAST_FOR = timedelta(hours=6)
_LAST_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UselessTrait:
    """The useless machines of a trait of pools: a family of types, a zone or a capacity type."""

    #: Machines that were of no use since one was.
    count: Tally
    #: When the last of them was counted.
    at: datetime


def traits_of(pool: Pool) -> tuple[str, ...]:
    """Return the family of types, the zone and the capacity type of a pool."""
    return pool.instance_type.partition(".")[0], pool.zone, pool.capacity_type.value


def count_useless(
    traits: Mapping[str, UselessTrait], pool: Pool, now: datetime
) -> Mapping[str, UselessTrait]:
    """Return the useless traits after one more machine of a pool was of no use."""
    more = {
        trait: UselessTrait(count=1 + (traits[trait].count if trait in traits else 0), at=now)
        for trait in traits_of(pool)
    }
    return {**traits, **more}


def clear_useful(
    traits: Mapping[str, UselessTrait], pool: Pool, since: datetime
) -> Mapping[str, UselessTrait]:
    """Return the useless traits that are left if a machine of a pool, up since then, is of use.

    If each of its own traits was useless, the fault lay in none: something that all machines need
    was missing, and is there again. So nothing of that time is left.
    """
    cleared = traits_of(pool)
    if all(trait in traits and traits[trait].at <= since for trait in cleared):
        cleared = tuple(traits)
    return {
        trait: known for trait, known in traits.items() if trait not in cleared or known.at > since
    }


def asked_last(
    traits: Mapping[str, UselessTrait], in_a_row: int, now: datetime
) -> Mapping[str, int]:
    """Return the traits that are asked last -> how many machines of each were of no use.

    Args:
        traits: of one launch version, by trait.
        in_a_row: machines that were of no use since any was.
        now: the present.
    """
    return {
        trait: known.count
        for trait, known in traits.items()
        if _is_asked_last(trait, known, in_a_row, now)
    }


def _is_asked_last(trait: str, known: UselessTrait, in_a_row: int, now: datetime) -> bool:
    is_capacity_type = trait in {each.value for each in CapacityType}
    if now - known.at >= (_CAPACITY_TYPE_LAST_FOR if is_capacity_type else _LAST_FOR):
        return False
    if in_a_row:
        return known.count >= (_OTHER_CAPACITY_TYPE_FROM if is_capacity_type else 1)
    return known.count >= _PROVEN_BAD
