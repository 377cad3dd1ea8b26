"""The plan of a tick as a whole: what ``control.tick.make_plan`` returns."""

from dataclasses import dataclass

from spindown.control.observe.fleet import Fleet
from spindown.control.plan.action import Action
from spindown.control.plan.launch_allowance import LaunchAllowance
from spindown.control.plan.offers import LaunchChoice
from spindown.domain.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a tick is going to do, in order, and what explains it."""

    actions: tuple[Action, ...]
    #: Rows and queue once all actions but the launches have succeeded.
    fleet: Fleet
    choice: LaunchChoice
    #: What its launches may take together.
    allowance: LaunchAllowance
    #: What is wanted of other shapes than that of ``choice``.
    others: tuple[LaunchChoice, ...] = ()
    #: Launches for particular jobs: those that move, or need a stable machine.
    for_particular_jobs: tuple[LaunchChoice, ...] = ()
    notes: tuple[Reason, ...] = ()

    @property
    def quotas_short(self) -> frozenset[str]:
        """Return quota classes that have no room for what would fit."""
        return frozenset(n for each in self.choices for n in each.quotas_short)

    @property
    def choices(self) -> tuple[LaunchChoice, ...]:
        """Return all that is wanted, or might be."""
        return (self.choice, *self.others, *self.for_particular_jobs)
