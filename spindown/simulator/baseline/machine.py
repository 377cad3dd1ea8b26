"""One machine of a baseline's fleet, and the jobs that it works on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from spindown.simulator.agenda import Agenda, Planned, Turn
from spindown.simulator.record import Tally


@dataclass(slots=True)
class Job:
    """A job as far as it is done."""

    job_id: str
    items: int
    #: On the reference GPU.
    seconds_left: float
    is_new: bool = True


class Owner(Protocol):
    """The fleet, as its machines know it."""

    agenda: Agenda

    def take(self) -> Job | None:
        """Take the oldest job that waits."""
        ...

    def give_back(self, job: Job) -> None:
        """Put a job in front of those that wait."""
        ...

    def finished(self, machine: "Machine", job: Job) -> None:
        """Hear that a job is done."""
        ...

    def idled(self, machine: "Machine") -> None:
        """Hear that a machine has idled for its time."""
        ...


class Machine:
    """One machine: it boots, works on one job after the other, idles, ends."""

    def __init__(
        self,
        owner: Owner,
        instance_id: str,
        *,
        speed: float,
        idle_seconds: float | None,
        checkpoint_seconds: float | None,
    ) -> None:
        self._owner = owner
        self.instance_id = instance_id
        self.tally = Tally(owner.agenda.now)
        self.job: Job | None = None
        self.is_leaving = False
        self.idle_since = 0.0
        self._speed = speed
        self._idle_seconds = idle_seconds
        self._checkpoint_seconds = checkpoint_seconds
        self._since = 0.0
        self._planned: Planned | None = None

    @property
    def is_up(self) -> bool:
        """Tell whether it has booted."""
        return self.tally.checked_in_at is not None

    @property
    def is_idle(self) -> bool:
        """Tell whether it is up and has no job."""
        return self.is_up and self.job is None and not self.is_leaving

    @property
    def work_under_way(self) -> float:
        """Return the work on its job so far, seconds on the reference GPU."""
        if self.job is None:
            return 0.0
        return (self._owner.agenda.seconds - self._since) * self._speed

    def come_up(self) -> None:
        """Begin to work."""
        self.tally.checked_in_at = self._owner.agenda.now
        self.go_on()

    def go_on(self) -> None:
        """Take the oldest job; idle if there is none."""
        self._call_off()
        now = self._owner.agenda.seconds
        self.job = self._owner.take()
        if self.job is not None:
            self._since = now
            self._plan(self.job.seconds_left / self._speed, self._finish)
            return
        self.idle_since = now
        if self._idle_seconds is not None:
            self._plan(self._idle_seconds, lambda: self._owner.idled(self))

    def stop(self) -> None:
        """Give back what is held, as far as the last checkpoint; the machine is gone."""
        self._call_off()
        job, self.job = self.job, None
        if job is not None:
            run = self._owner.agenda.seconds - self._since
            every = self._checkpoint_seconds
            kept = 0.0 if every is None else run // every * every
            self.tally.count(run, run - kept)
            job.seconds_left -= kept * self._speed
            self._owner.give_back(job)

    def _finish(self) -> None:
        job, self.job = self.job, None
        if job is None:
            return
        self.tally.count(self._owner.agenda.seconds - self._since, 0.0)
        self._owner.finished(self, job)

    def _plan(self, seconds: float, action: Callable[[], None]) -> None:
        self._planned = self._owner.agenda.plan_in(seconds, Turn.WORKER, action)

    def _call_off(self) -> None:
        if self._planned is not None:
            self._planned.call_off()
