"""Rows and queue of a workload as one value: what a tick found, or what its plan makes of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from spindown.contract.codec import replace_fields
from spindown.contract.row import NEXT_LOOKS, BacklogRow, BreakerRow, names_of
from spindown.control.observe.observation import TickFacts
from spindown.domain.bake_or_bootstrap import ImageHistory
from spindown.domain.fleet import Backlog, Launch, Lease, RequeuedJob, Worker, WorkerState
from spindown.domain.offer import Pool
from spindown.domain.pool_cooldown import PoolCooldown


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeQueue:
    """The queue of a shape, and what the ticks remember of it."""

    queue: Backlog
    remembered: BacklogRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Rows and queue: as read, then as they are once the actions so far have succeeded."""

    #: By instance id; ended ones stay until they are cleared away.
    workers: Mapping[str, Worker]
    launches: Mapping[str, Launch]
    leases: tuple[Lease, ...]
    #: Jobs that nobody holds, though somebody has, by id.
    requeued_jobs: Mapping[str, RequeuedJob]
    pool_cooldowns: Mapping[Pool, PoolCooldown]
    #: Region -> breaker; a missing one has never opened.
    breakers: Mapping[str, BreakerRow]
    #: Architecture -> what was baked for it.
    images: Mapping[str, ImageHistory]
    queue: Backlog
    #: What the ticks remember of the queue and of EC2.
    remembered: BacklogRow
    #: Instances that run, or may, and that no live row counts (``control.plan.correct_rows``).
    workers_elsewhere: int = 0
    #: Of a workload with types: what waits in the queue of each shape, by its name.
    shapes: Mapping[str, ShapeQueue] = field(default_factory=dict)
    #: Of the fleet of one shape: workers and launches of all others.
    other_workers: tuple[Worker, ...] = ()
    other_launches: tuple[Launch, ...] = ()

    def leases_of(self, instance_id: str) -> tuple[Lease, ...]:
        """Return what the slots of one instance hold."""
        return tuple(lease for lease in self.leases if lease.instance_id == instance_id)

    def launch_of(self, worker: Worker) -> Launch | None:
        """Return the live launch row that a worker came from."""
        return self.launches.get(worker.launch_id)

    def waiting_since(self, shape: str) -> datetime | None:
        """Return since when work is visible that a worker of a shape could have claimed."""
        known = self.shapes.get(shape)
        return self.remembered.backlog_since if known is None else known.remembered.backlog_since

    @property
    def need_depends_on(self) -> tuple[object, ...]:
        """Return all that a need for launches depends on: of two equal ones the needs are equal."""
        # What is the same object is not compared; of launches only open ones count.
        return (
            [x for x in self.launches.values() if x.is_open],
            _sizing_fields(self),
            _sizing_memory(self.remembered),
        )

    @property
    def all_workers(self) -> list[Worker]:
        """Return the workers of all shapes, for rules about the whole workload or account."""
        return [*self.workers.values(), *self.other_workers]

    @property
    def all_launches(self) -> list[Launch]:
        """Return the launches of all shapes."""
        return [*self.launches.values(), *self.other_launches]

    @property
    def present(self) -> list[Worker]:
        """Return the workers whose rows have not ended."""
        return [w for w in self.workers.values() if w.state is not WorkerState.ENDED]


#: All but what sizes nothing: a new field counts unless it is named here.
_sizing_fields = attrgetter(
    *names_of(Fleet, but={"launches", "remembered", "pool_cooldowns", "images"})
)
_sizing_memory = attrgetter(
    *names_of(
        BacklogRow,
        but={
            *NEXT_LOOKS,
            "described_at",
            "reclaims_seen_at",
            "swept_at",
            "workers_elsewhere",
            "ends_due",
        },
    )
)


def fleet_of(facts: TickFacts) -> Fleet:
    """Return the fleet as it was read."""
    view, home = facts.view, facts.deployment.region
    return Fleet(
        workers=view.workers,
        launches=view.launches,
        leases=view.leases,
        requeued_jobs=view.requeued_jobs,
        pool_cooldowns=view.pool_cooldowns,
        breakers={region or home: row for region, row in view.breakers.items()},
        images=view.images,
        queue=facts.queue,
        remembered=_correct_backlog(view.backlog, facts.now),
        shapes={
            name: ShapeQueue(
                queue=queue,
                remembered=_correct_backlog(view.shape_backlogs.get(name, BacklogRow()), facts.now),
            )
            for name, queue in facts.shapes.items()
        },
    )


def open_launches(launches: Collection[Launch]) -> list[Launch]:
    """Return the launches that nobody knows the answer of."""
    return [launch for launch in launches if launch.is_open]


def _correct_backlog(row: BacklogRow, now: datetime) -> BacklogRow:
    """Return what the ticks remember without what has not happened yet, as another clock said."""
    latest = now + _SKEW
    changes: dict[str, object] = {
        name: None for name in _SEEN if (at := getattr(row, name)) is not None and at > latest
    }
    if any(since > latest for since in row.waiting_since):
        changes["waiting_since"] = changes["waiting_jobs"] = ()
    if any(each.until > now + _LEFT_ALONE_AT_MOST for each in row.backoffs.values()):
        changes["backoffs"] = {}
    return replace_fields(row, changes) if changes else row


#: Clocks of functions differ by so much.
_SKEW = timedelta(minutes=1)
#: No region is left alone for longer.
_LEFT_ALONE_AT_MOST = timedelta(hours=1)
_SEEN = names_of(BacklogRow, but=NEXT_LOOKS, instants=True)
