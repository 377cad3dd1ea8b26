"""One machine of a baseline's fleet, and the jobs that it works on, one in each slot."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from spindown.simulator.agenda import Agenda, Planned, Turn
from spindown.simulator.baseline.idling import Idling
from spindown.simulator.record import Tally


@dataclass(slots=True)
class Job:
    """A job as far as it is done."""

    job_id: str
    items: int
    #: On the reference GPU.
    seconds_left: float
    is_new: bool = True


@dataclass(slots=True, eq=False)
class _Stint:
    """A job at work in a slot."""

    job: Job
    since: float
    end: Planned


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
    """One machine: it boots, works on one job after the other in each slot, idles, ends."""

    def __init__(
        self,
        owner: Owner,
        instance_id: str,
        *,
        speed: float,
        idling: Idling | None,
        checkpoint_seconds: float | None,
        slots: int = 1,
    ) -> None:
        """Begin to boot.

        Args:
            owner: gives jobs and hears what becomes of them.
            instance_id: EC2's.
            speed: of one slot; the reference GPU is 1.
            idling: says how long it idles before ``owner`` hears of it; None: for ever.
            checkpoint_seconds: from one mark to the next to which a reclaim leaves the work; None:
                there are none.
            slots: jobs at the same time.
        """
        self._owner = owner
        self.instance_id = instance_id
        self.tally = Tally(owner.agenda.now, slots=slots)
        self.is_leaving = False
        self.idle_since = 0.0
        self._speed = speed
        self._slots = slots
        self._idling = idling
        self._checkpoint_seconds = checkpoint_seconds
        self._stints: list[_Stint] = []
        self._idle_end: Planned | None = None

    @property
    def is_up(self) -> bool:
        """Tell whether it has booted."""
        return self.tally.checked_in_at is not None

    @property
    def jobs(self) -> int:
        """Return how many jobs it works on."""
        return len(self._stints)

    @property
    def is_idle(self) -> bool:
        """Tell whether it is up and has no job."""
        return self.is_up and not self._stints and not self.is_leaving

    @property
    def has_room(self) -> bool:
        """Tell whether it is up and has a free slot."""
        return self.is_up and self.jobs < self._slots and not self.is_leaving

    @property
    def work_under_way(self) -> float:
        """Return the work on its jobs so far, seconds on the reference GPU."""
        now = self._owner.agenda.seconds
        return sum((now - stint.since) * self._speed for stint in self._stints)

    def come_up(self) -> None:
        """Begin to work."""
        self.tally.checked_in_at = self._owner.agenda.now
        self.go_on()

    def go_on(self) -> None:
        """Take the oldest jobs into free slots; idle if there is none at all."""
        self._stop_idling()
        now = self._owner.agenda.seconds
        while self.jobs < self._slots and (job := self._owner.take()) is not None:
            self._begin(job, now)
        if self._stints:
            return
        self.idle_since = now
        if self._idling is not None:
            self._idle_end = self._plan(self._idling.begin(now), lambda: self._owner.idled(self))

    def stop(self) -> None:
        """Give back what is held, as far as the last checkpoint; the machine is gone."""
        self._stop_idling()
        stints, self._stints = self._stints, []
        # The last first: each goes in front of those that wait.
        for stint in reversed(stints):
            stint.end.call_off()
            run = self._owner.agenda.seconds - stint.since
            every = self._checkpoint_seconds
            kept = 0.0 if every is None else run // every * every
            self.tally.count(run, run - kept)
            stint.job.seconds_left -= kept * self._speed
            self._owner.give_back(stint.job)

    def break_off(self) -> None:
        """Count the work on jobs that are under way when a simulation ends."""
        for stint in self._stints:
            self.tally.count(self._owner.agenda.seconds - stint.since, 0.0)

    def _begin(self, job: Job, now: float) -> None:
        end = self._plan(job.seconds_left / self._speed, lambda: self._finish(stint))
        stint = _Stint(job, now, end)
        self._stints.append(stint)

    def _finish(self, stint: _Stint) -> None:
        self._stints.remove(stint)
        self.tally.count(self._owner.agenda.seconds - stint.since, 0.0)
        self._owner.finished(self, stint.job)

    def _plan(self, seconds: float, action: Callable[[], None]) -> Planned:
        return self._owner.agenda.plan_in(seconds, Turn.WORKER, action)

    def _stop_idling(self) -> None:
        if self._idle_end is not None:
            self._idle_end.call_off()
