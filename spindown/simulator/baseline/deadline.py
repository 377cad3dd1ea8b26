"""How one long job is brought home by a deadline: two rules of others, on our market.

Both know the job's length, see at each look whether spot is to be had, and pay for on demand from
where the deadline would else be missed. A new machine boots while the old one works on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Move(StrEnum):
    """What a rule wants next."""

    #: Stay as it is.
    STAY = "stay"
    #: Spot if there is any; else on demand.
    EITHER = "either"
    #: Spot if there is any; else nothing.
    SPOT_OR_NOTHING = "spot or nothing"
    #: On demand to the end.
    HOME = "home"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A job under way; times are seconds, work too, on the machines that there are."""

    elapsed: float
    deadline: float
    work: float
    done: float
    #: What a change of machines costs in time.
    change: float
    on_spot: bool = False
    on_demand: bool = False

    @property
    def must_go_home(self) -> bool:
        """Tell whether waiting on would miss the deadline (their safety net)."""
        return self.deadline - self.elapsed < self.work - self.done + 2.0 * self.change

    def even(self, later: float = 0.0) -> float:
        """Return what even progress towards the deadline would have done by now, or later."""
        return (self.elapsed + later) * self.work / self.deadline


def greedy(seen: Seen) -> Move:
    """Spot whenever there is any, nothing else until the last moment, then on demand."""
    if seen.on_spot:
        return Move.STAY
    return Move.HOME if seen.must_go_home else Move.SPOT_OR_NOTHING


def uniform_progress(seen: Seen) -> Move:
    """Keep up with even progress, on demand where spot does not do.

    Wu et al., "Can't Be Late" (NSDI 2024): spot whenever there is any, kept until it is taken; on
    demand while behind, left when ahead by two changes of machines; the safety net of all.
    """
    if seen.on_spot:
        return Move.STAY
    if seen.on_demand:
        is_ahead = seen.done >= seen.even(2.0 * seen.change)
        return Move.SPOT_OR_NOTHING if is_ahead else Move.STAY
    if seen.must_go_home:
        return Move.HOME
    return Move.EITHER if seen.done < seen.even() else Move.SPOT_OR_NOTHING


def on_demand_only(_seen: Seen) -> Move:
    """Pay for certainty."""
    return Move.HOME


DEADLINE_RULES: Mapping[str, Callable[[Seen], Move]] = MappingProxyType(
    {"greedy": greedy, "uniform-progress": uniform_progress, "on-demand": on_demand_only}
)
