"""Keeps what a run is measured by, and sums it up."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import fsum
from typing import NamedTuple

from spindown.contract.usage import UsageEnd, UsageRecord
from spindown.domain.offer import CapacityType
from spindown.ec2sim import Agenda, Ec2Bill
from spindown.port import Datum
from spindown.simulator.result import CAUSES, Sample, SimResult, spread
from spindown.simulator.scenario import SimScenario


class MeasuredAttempt(NamedTuple):
    """One attempt at a job of a shape, as ``UsageRecord`` has it."""

    #: Second of its end.
    at: float
    job_id: str
    type: str
    shape: str
    instance_type: str
    end: UsageEnd
    seconds: float
    dollars: float


class SimRecorder:
    """Keeps what a run is measured by."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self._hash = hashlib.sha256()
        self.waits: list[float] = []
        self.sojourns: list[float] = []
        #: Seconds that each begun job stood still, from its worker's end or notice to the next.
        self.stands: list[float] = []
        self.samples: list[Sample] = []
        self.counts: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.items_done = 0
        self.jobs_done = 0
        self.peak = 0
        #: Job -> second of its arrival, until it is done.
        self._open: dict[str, float] = {}
        #: Of jobs of types, in the order in which they ended.
        self.attempts: list[MeasuredAttempt] = []
        #: Begun job -> second since which nobody works on it.
        self._down_since: dict[str, float] = {}
        #: Parent -> children not done; child -> parent.
        self._children: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        self._job_seconds = 0.0
        #: Done since ``take_closed``, children too.
        self._closed: list[str] = []

    def note(self, what: str, about: str = "") -> None:
        """Note that something happened."""
        self.counts[what] += 1
        self._hash.update(f"{self.agenda.now.isoformat()} {what} {about}\n".encode())

    def arrived(self, job_id: str) -> None:
        """Note a job that has just been sent."""
        self._open[job_id] = self.agenda.seconds
        self.note("arrived", job_id)

    def age(self, job_id: str) -> float:
        """Return the seconds since a job was sent."""
        return self.agenda.seconds - self._open.get(job_id, self.agenda.seconds)

    def claimed(self, job_id: str, waited: float) -> None:
        """Note the first claim of a job; a child of a split one waited for no user."""
        if job_id not in self._parents:
            self.waits.append(waited)
        self.note("claimed", job_id)

    def put_down(self, job_id: str) -> None:
        """Note that whoever worked on a job has put it down."""
        self._down_since.setdefault(job_id, self.agenda.seconds)

    def resumed(self, job_id: str) -> None:
        """Note that somebody works on a job, again or for the first time."""
        since = self._down_since.pop(job_id, None)
        if since is not None:
            self.stands.append(self.agenda.seconds - since)

    def measured(self, record: UsageRecord) -> None:
        """Note what an attempt at a job of a shape has used."""
        measured = {field: getattr(record, field) for field in MeasuredAttempt._fields[1:]}
        self.attempts.append(MeasuredAttempt(at=self.agenda.seconds, **measured))

    def was_split(self, job_id: str, children: Sequence[str]) -> None:
        """Note that children carry a job on."""
        self._children[job_id] = len(children)
        self._parents.update(dict.fromkeys(children, job_id))
        self.note("split", job_id)

    def completed(self, job_id: str, items: int) -> None:
        """Note that a job is done, and with its last child its parent."""
        self.items_done += items
        self._closed.append(job_id)
        self.note("completed", job_id)
        parent = self._parents.pop(job_id, None)
        if parent is None:
            self._close(job_id)
            return
        self._children[parent] -= 1
        if not self._children[parent]:
            del self._children[parent]
            self._close(parent)

    def take_closed(self) -> list[str]:
        """Return the jobs that were done since the last call."""
        closed, self._closed = self._closed, []
        return closed

    @property
    def open_jobs(self) -> int:
        """Return how many jobs are not done."""
        return len(self._open)

    @property
    def mean_jobs(self) -> float:
        """Return how many jobs were present in the mean."""
        return self.job_seconds / max(self.agenda.seconds, 1.0)

    @property
    def job_seconds(self) -> float:
        """Return the time that jobs were present, summed over them."""
        now = self.agenda.seconds
        return self._job_seconds + fsum(now - at for at in self._open.values())

    @property
    def digest(self) -> str:
        """Return the digest of all notes so far."""
        return self._hash.hexdigest()

    def _close(self, job_id: str) -> None:
        at = self._open.pop(job_id, None)
        if at is not None:
            self.jobs_done += 1
            stayed = self.agenda.seconds - at
            self.sojourns.append(stayed)
            self._job_seconds += stayed


@dataclass(slots=True)
class InstanceTally:
    """What the time of one instance went to."""

    launched_at: datetime
    checked_in_at: datetime | None = None
    slots: int = 1
    #: Slot seconds with a job.
    busy: float = 0.0
    #: Of these: computed, and never committed.
    lost: float = 0.0

    def count(self, busy: float, lost: float) -> None:
        """Add a job's stay in a slot."""
        self.busy += busy
        self.lost += lost

    def shares(self, seconds: float) -> dict[str, float]:
        """Return the share of each cause in a life of so many seconds; they add up to 1."""
        life = max(seconds, 1e-9)
        up = self.checked_in_at
        boot = life if up is None else min((up - self.launched_at).total_seconds(), life)
        redo = min(self.lost / self.slots, life - boot)
        work = min(self.busy / self.slots - redo, life - boot - redo)
        parts = {"boot": boot, "work": work, "redo": redo, "idle": life - boot - work - redo}
        return {cause: part / life for cause, part in parts.items()}


def sum_up(
    *,
    scenario: SimScenario,
    seed: int,
    record: SimRecorder,
    bills: Sequence[Ec2Bill],
    tallies: Mapping[str, InstanceTally],
    accounted_dollars: float,
    dead_letters: int = 0,
) -> SimResult:
    """Return what a run has come to; ``tallies`` say what each instance's time went to.

    Summed with ``fsum``: versions of Python differ in how they round ``sum``.
    """
    shares = [(b, tallies[b.instance_id].shares(b.seconds)) for b in bills]
    seconds = {cause: fsum(b.seconds * share[cause] for b, share in shares) for cause in CAUSES}
    return SimResult(
        scenario=scenario.name,
        seed=seed,
        jobs=len(scenario.arrivals),
        jobs_done=record.jobs_done,
        items=scenario.items,
        items_done=record.items_done,
        dead_letters=dead_letters,
        work_seconds=scenario.work_seconds,
        dollars=fsum(bill.dollars for bill in bills),
        bill={cause: fsum(b.dollars * share[cause] for b, share in shares) for cause in CAUSES},
        on_demand_dollars=_on_demand_dollars(bills),
        accounted_dollars=accounted_dollars,
        billed_seconds=fsum(bill.seconds for bill in bills if not bill.is_free),
        boot_seconds=seconds["boot"],
        busy_seconds=seconds["work"] + seconds["redo"],
        idle_seconds=seconds["idle"],
        redo_seconds=seconds["redo"],
        wait=spread(record.waits),
        sojourn=spread(record.sojourns),
        stood=spread(record.stands),
        mean_jobs=record.mean_jobs,
        seconds=record.agenda.seconds,
        launches=len(bills),
        refusals=record.counts["refusals"],
        interruptions=record.counts["reclaimed"],
        peak=record.peak,
        types=dict(sorted(record.types.items())),
        ticks=record.counts["tick"],
        events=record.agenda.events,
        digest=record.digest,
        samples=_with_dollars(record, bills, tallies),
    )


def _on_demand_dollars(bills: Iterable[Ec2Bill]) -> float:
    on_demand = CapacityType.ON_DEMAND
    return fsum(bill.dollars for bill in bills if bill.pool.capacity_type is on_demand)


def _with_dollars(
    record: SimRecorder, bills: Sequence[Ec2Bill], tallies: Mapping[str, InstanceTally]
) -> tuple[Sample, ...]:
    """Return the samples with the money spent up to each."""
    #: (second, change of dollars a second), last first.
    turns: list[tuple[float, float]] = []
    for bill in bills:
        begins = (tallies[bill.instance_id].launched_at - record.agenda.start).total_seconds()
        life = max(bill.seconds, 1.0)
        rate = bill.dollars / life
        turns += [(begins, rate), (begins + life, -rate)]
    turns.sort(reverse=True)
    found, rate, dollars, at = [], 0.0, 0.0, 0.0
    for sample in record.samples:
        while turns and turns[-1][0] <= sample.seconds:
            begins, change = turns.pop()
            dollars += rate * (begins - at)
            rate, at = rate + change, begins
        dollars += rate * (sample.seconds - at)
        at = sample.seconds
        found.append(replace(sample, dollars=max(dollars, 0.0)))
    return tuple(found)


class Silence:
    """MetricSink that forgets: a simulated month has millions of metrics."""

    def emit(self, data: Iterable[Datum]) -> None:
        """Forget metrics."""
