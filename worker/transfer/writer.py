"""Commit beside the computing: one portion at a time, in order, in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta

from spindown.app.port import Clock
from spindown.app.work.commit import Portion
from spindown.app.work.held import Held
from spindown.domain.checkpointing import interval_hours
from spindown.domain.policy import Policy

#: Time that computing stands still for a commit, until one has been measured.
_COST_ESTIMATE = timedelta(seconds=1)


class Writer:
    """Carries a held job from one commit to the next."""

    def __init__(
        self,
        held: Held,
        commit: Callable[[Held, Portion], Held],
        *,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._held = held
        self._commit = commit
        self._clock = clock
        self._executor = executor
        self._pending: Future[Held] | None = None
        #: Time that the last commit took; None before the first.
        self.cost: timedelta | None = None
        self.committed_at: datetime = clock.now()

    @property
    def is_busy(self) -> bool:
        """Tell whether a commit is under way."""
        return self._pending is not None and not self._pending.done()

    def interval(self, policy: Policy, rate: float) -> timedelta:
        """Return how long after a commit the next is due, at ``rate`` interruptions per hour."""
        cost = (self.cost or _COST_ESTIMATE) / timedelta(hours=1)
        return timedelta(hours=interval_hours(policy, cost_hours=cost, rate=rate))

    def begin(self, portion: Portion) -> None:
        """Start to commit a portion, after the one before."""
        held = self.settle()
        self.committed_at = self._clock.now()
        self._pending = self._executor.submit(self._run, held, portion)

    def settle(self) -> Held:
        """Wait for the commit under way; return the job as it stands (raises LeaseLost)."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._held = pending.result()
        return self._held

    def check(self) -> None:
        """Raise what a finished commit has raised, without waiting for one under way."""
        if self._pending is not None and self._pending.done():
            self.settle()

    def _run(self, held: Held, portion: Portion) -> Held:
        started = self._clock.now()
        committed = self._commit(held, portion)
        self.cost = self._clock.now() - started
        return committed
