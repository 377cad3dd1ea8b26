"""Workers that lie in their own rows, tick after tick, and what that costs and gives them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

from spindown.contract import row as rows
from spindown.contract.codec import decode, encode
from spindown.domain.fleet import Worker, WorkerState
from spindown.error import ContractError
from spindown.ledger import Ledger
from tests.builders import a_worker, minutes
from tests.control import AWAY, WORKLOAD, ControlWorld
from tests.hostile.row import FAR, PAST, running

#: Stands for the time at which the lie is told.
NOW = "now"
#: Stands for the removal of the row.
REMOVED: Mapping[str, Any] = {"removed": True}

#: The lies by which a worker would pay less or make room for another.
FEW: tuple[Mapping[str, Any], ...] = (
    {"accrued_until": NOW},
    {"accrued_until": FAR},
    {"launched_at": NOW},
    {"state": "ended"},
    {"state": "ended", "ended_at": NOW},
    {"state": "ended", "ended_at": PAST, "gone_at": PAST},
    {"price_per_hour": 0.0, "launch_id": "x"},
    {"region": AWAY, "interrupted_at": NOW},
    {"slots": "many"},
    REMOVED,
)
#: What a field might say.
_VALUES = (NOW, FAR, PAST, None, "", "drained", "condemned", "booting", 0, True)


def all_lies() -> list[Mapping[str, Any]]:
    """Return the few, and each field with each value that can be read there."""
    row = encode(a_worker())
    return [
        *FEW,
        *(
            {each.name: value}
            for each in fields(Worker)
            for value in _VALUES
            if each.name != "instance_id"
            and _is_readable(row | {each.name: FAR if value is NOW else value})
        ),
    ]


#: Fields of a worker's row by which it would be charged or counted, and what it would write there.
_TOLD: Mapping[str, tuple[Any, ...]] = {
    "state": ("drained", "ended", "condemned", "booting"),
    "interrupted_at": (NOW, PAST),
    "noticed_at": (NOW, PAST),
    "gone_at": (NOW, PAST),
    "ended_at": (NOW, PAST),
    "interruption_counted": (True, False),
    "condemned_at": (None, NOW),
    "heartbeat_at": (PAST, FAR),
    "checked_in_at": (None, PAST),
    "launched_at": (NOW, PAST),
    "accrued_until": (NOW, FAR),
    "capacity_type": ("spot", "on-demand"),
    "idle_since": (NOW, PAST),
    "draining_at": (NOW,),
}


def pairs_of_lies() -> list[Mapping[str, Any]]:
    """Return any two lies together of those by which a worker would be charged or counted."""
    single = [(name, value) for name, values in _TOLD.items() for value in values]
    return [
        {first: one, second: other}
        for (first, one), (second, other) in combinations(single, 2)
        if first != second
    ]


def _is_readable(row: Mapping[str, Any]) -> bool:
    try:
        decode(Worker, row)
    except ContractError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a lie."""

    #: USD: by EC2's bill, and by the books.
    billed: float
    booked: float
    #: Machines that ran at once, and in all.
    most: int
    launched: int


def live_with(lie: Mapping[str, Any], *, hours: int) -> Found:
    """Let every worker tell a lie after each tick; none ever ends by itself."""
    world = ControlWorld(budget=100.0)
    world.send(200)
    seen: set[str] = set()
    most = 0
    for _ in range(hours * 60):
        world.tick(minutes(1))
        most = max(most, running(world))
        seen |= {x for x in world.partition() if x.startswith(rows.WORKER)}
        for sort in seen & world.partition().keys():
            _lie(world, sort, lie)
    world.tick(minutes(1))
    days = Ledger(world.table, WORKLOAD)
    booked = sum(day.dollars for day in days.read().spend.values())
    booked += sum(day.dollars for day in days.read_past_days().values())
    billed = sum(bill.dollars for bill in world.compute.bills())
    return Found(billed=billed, booked=booked, most=most, launched=len(world.compute.bills()))


def _lie(world: ControlWorld, sort: str, lie: Mapping[str, Any]) -> None:
    if lie is REMOVED:
        world.remove(sort)
        return
    told = {name: world.now if value is NOW else value for name, value in lie.items()}
    at = {"checked_in_at": world.now, "claimed_at": world.now, "heartbeat_at": world.now}
    world.put(sort, **{"state": WorkerState.BUSY, "ended_at": None, **at, **told})
