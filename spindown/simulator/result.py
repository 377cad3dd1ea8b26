"""What came of a simulation: work, waits, money by cause, and a digest of all that happened."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from spindown.app.port import Datum
from spindown.simulator.agenda import Agenda


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The queue and the fleet at one tick."""

    seconds: float
    visible: int
    in_flight: int
    booting: int
    idle: int
    busy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A distribution, in seconds."""

    mean: float
    p50: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """One run. Money is what EC2 bills, USD; instance seconds count an instance once.

    Busy, idle and redone seconds of an instance with several slots are those of its slots, each
    for its share.
    """

    scenario: str
    seed: int
    jobs: int
    jobs_done: int
    items: int
    items_done: int
    dead_letters: int
    #: Seconds on the reference GPU that arrived.
    work_seconds: float
    dollars: float
    #: Cause -> USD; they add up to ``dollars``: boot, work, redo, idle.
    bill: Mapping[str, float]
    on_demand_dollars: float
    #: What the deployment's own account says that it cost.
    accounted_dollars: float
    #: Instance time that was charged; what EC2 took within an hour is not.
    billed_seconds: float
    boot_seconds: float
    busy_seconds: float
    idle_seconds: float
    #: Of the busy ones: computed, and never committed.
    redo_seconds: float
    #: From a job's arrival to its first claim, and to its end.
    wait: Spread
    sojourn: Spread
    #: Mean number of jobs present: waiting, or worked on (for Little's law).
    mean_jobs: float
    seconds: float
    launches: int
    refusals: int
    interruptions: int
    #: Instances at the same time, at most.
    peak: int
    #: Instance type -> launches.
    types: Mapping[str, int]
    ticks: int
    events: int
    #: Of everything that happened, in its order.
    digest: str
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def dollars_per_item(self) -> float:
        """Return USD per item done; infinite if none is."""
        return self.dollars / self.items_done if self.items_done else math.inf

    def to_json(self) -> str:
        """Return it as JSON; two runs of one seed give the same bytes."""
        return json.dumps(asdict(self), sort_keys=True)


class Recorder:
    """Keeps what a run is measured by."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self._hash = hashlib.sha256()
        self.waits: list[float] = []
        self.sojourns: list[float] = []
        self.samples: list[Sample] = []
        self.counts: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.items_done = 0
        self.jobs_done = 0
        self.peak = 0
        #: Job -> second of its arrival, until it is done.
        self._open: dict[str, float] = {}
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

    def claimed(self, job_id: str, waited: float) -> None:
        """Note the first claim of a job; a child of a split one waited for no user."""
        if job_id not in self._parents:
            self.waits.append(waited)
        self.note("claimed", job_id)

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
    def job_seconds(self) -> float:
        """Return the time that jobs were present, summed over them."""
        now = self.agenda.seconds
        return self._job_seconds + sum(now - at for at in self._open.values())

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


class Silence:
    """MetricSink that forgets: a simulated month has millions of metrics."""

    def emit(self, data: Sequence[Datum]) -> None:
        """Forget metrics."""


def spread(values: Sequence[float]) -> Spread:
    """Return mean and quantiles; all 0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return Spread(mean=0.0, p50=0.0, p95=0.0, most=0.0)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    mean = math.fsum(ordered) / len(ordered)
    return Spread(mean=mean, p50=at(0.5), p95=at(0.95), most=ordered[-1])
