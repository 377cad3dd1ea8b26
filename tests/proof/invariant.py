"""What must hold at every moment, and what must hold when all is over."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import pytest

from spindown.contract import row as rows
from spindown.contract import tag
from spindown.contract.codec import decode
from spindown.contract.job.manifest import JobState, Manifest, Part, decode_manifest, manifest_key
from spindown.contract.job.message import parse_job, stored_prefix
from spindown.contract.job.result import Record
from spindown.contract.row import BudgetRow
from spindown.domain.fleet import Launch, Lease, Worker, WorkerState
from spindown.domain.notice_time import FREE_FOR
from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.reason import ReasonCode
from spindown.domain.termination import DRAINED_FOR
from spindown.domain.useless_instance import STRIKES
from spindown.ec2sim import EndReason
from spindown.ec2sim.engine import DESCRIBED_FOR
from spindown.error import ContractError, NotFound
from spindown.ledger import LedgerView
from tests.bounded import RunRecord
from tests.part import decode_part
from tests.proof.world import ProofWorld

OVER = {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.SPLIT}
#: A parent that has yet to send its children, or never will.
_UNFINISHED = {JobState.RUNNING, JobState.CANCELLED}
_HOUR = timedelta(hours=1)

#: For how long one machine is paid for nothing: until a silent one is ended, and its lease lapsed.
_FOR_NOTHING = timedelta(minutes=15)

#: Reasons that the tick or an event takes from EC2's description of an instance that is gone.
_TOLD_BY_EC2 = frozenset(
    {
        ReasonCode.EC2_SAID,
        ReasonCode.EC2_STATE,
        ReasonCode.EC2_RECLAIMED,
        ReasonCode.UNKNOWN_TO_EC2,
    }
)
#: Of an end that no description has told: it is missing there, or an event alone tells of it.
_TELLS_NO_CAUSE = frozenset({ReasonCode.EC2_STATE, ReasonCode.UNKNOWN_TO_EC2})
#: Launches of which not all is known.
_UNTOLD = frozenset({ReasonCode.FATE_UNKNOWN, ReasonCode.ADOPTED_IN_PART})


class _Present(NamedTuple):
    """What a look has found."""

    at: datetime
    ticks: int
    #: Machines, and those of them that hold a job.
    running: int
    at_work: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an instance truly ended."""

    at: datetime
    reason: str


class Chronicle:
    """Watches a world from step to step, for what may only ever grow."""

    def __init__(self, world: ProofWorld) -> None:
        self.world = world
        self.manifests: dict[str, Manifest] = {}
        self.ends: dict[str, End] = {}
        #: Instance id -> when its row was first seen as ended.
        self.found: dict[str, datetime] = {}
        #: Instances whose row has said that they are about to power off.
        self._drained: set[str] = set()
        self._known_parts: set[str] = set()
        #: Job id -> its parts as they were last seen.
        self._parts: dict[str, tuple[Part, ...]] = {}
        #: Instance id -> the launch that gave it.
        self._launch_of: dict[str, str] = {}
        #: Job id -> the version of its manifest that was checked last.
        self._versions: dict[str, str] = {}
        #: Seconds of machines whose slots held jobs, and of those for which no tick came.
        self._held_seconds = 0.0
        self._unattended_seconds = 0.0
        self._looked = self._present()

    def look(self) -> None:
        """Check what must hold now."""
        view = self.world.view()
        self._count_seconds()
        self._note_ends(view)
        for job_id in self.world.jobs:
            self._check_manifest(job_id)
        for job_id in self._children():
            self._check_manifest(job_id)
        self._check_nothing_lost()
        self._check_leases(view)
        self._check_fleet(view)

    def _children(self) -> list[str]:
        return [c for m in self.manifests.values() for c in m.children]

    def _note_ends(self, view: LedgerView) -> None:
        now = self.world.now
        for instance in self.world.instances:
            if instance.ended_at is not None and instance.reason is not None:
                end = End(at=instance.ended_at, reason=instance.reason)
                self.ends[instance.instance_id] = end
            self._launch_of[instance.instance_id] = instance.tags[tag.LAUNCH]
        ended = [*view.workers.values()]
        if self.ends.keys() - self.found.keys() - view.workers.keys():
            # One that had ended long before has gone to the history at once.
            ended += self.world.rows().values()
        for worker in ended:
            if worker.ended_at is not None:
                self.found.setdefault(worker.instance_id, now)
            if worker.state is WorkerState.DRAINED:
                self._drained.add(worker.instance_id)

    # Money.

    def _present(self) -> "_Present":
        running = {instance.instance_id for instance in self.world.running}
        at_work = {lease.instance_id for lease in self.world.view().leases} & running
        return _Present(self.world.now, self.world.ticks, len(running), len(at_work))

    def _count_seconds(self) -> None:
        """Count what machines did since the last look: as many as there were then, or are now."""
        before, now = self._looked, self._present()
        self._looked = now
        seconds = (now.at - before.at).total_seconds()
        self._held_seconds += seconds * max(before.at_work, now.at_work)
        if now.ticks == before.ticks:
            self._unattended_seconds += seconds * before.running

    def record(self, causes: int) -> RunRecord:
        """Return what came of the story so far, in which so many things happened.

        That a machine never asks for a message is a fault, too, whether it checks in or not. But
        the scaler may not go on so: of these three count, and then one an hour, as its breaker has
        it.
        """
        bills = self.world.compute.bills()
        silent = [
            worker.launched_at
            for instance_id, worker in self.world.rows().items()
            if instance_id not in self.world.asked
        ]
        hours = (self.world.now - min(silent, default=self.world.now)) / _HOUR
        return RunRecord(
            dollars=sum(bill.dollars for bill in bills),
            price_per_hour=max(
                (x.dollars / max(x.seconds, 60.0) * 3600.0 for x in bills), default=0.0
            ),
            # In a story a job is held, and its items take no time.
            useful_seconds=self._held_seconds,
            unattended_seconds=self._unattended_seconds,
            causes=causes + min(len(silent), STRIKES + int(hours)),
            seconds_each=_FOR_NOTHING.total_seconds(),
        )

    # Jobs.

    def _check_manifest(self, job_id: str) -> None:
        try:
            stored = self.world.objects.get(manifest_key(job_id))
        except NotFound:
            assert job_id not in self.manifests, f"the manifest of {job_id} is gone"
            return
        if self._versions.get(job_id) == stored.version:
            return
        self._versions[job_id] = stored.version
        before, manifest = self.manifests.get(job_id), decode_manifest(stored.data)
        self.manifests[job_id] = manifest
        if before is not None:
            _check_only_grows(before, manifest)
        parts, known = manifest.parts, self._parts.get(job_id, ())
        assert parts[: len(known)] == known, f"parts of {job_id} were replaced"
        self._parts[job_id] = parts
        _check_parts(manifest, parts)
        for part in parts:
            if part.key not in self._known_parts:
                self._known_parts.add(part.key)
                data = self.world.objects.get(part.key).data
                assert hashlib.sha256(data).hexdigest() == part.sha256, part.key
                found = [record.index for record in decode_part(data)]
                assert found == list(range(part.first, part.last + 1)), part.key

    def _check_nothing_lost(self) -> None:
        """A job is over, or a message asks for it; one that failed has its dead letter."""
        waiting = _job_ids(self.world.bodies())
        dead = _job_ids(self.world.dead_letters.bodies())
        for job_id in (*self.world.jobs, *self._children()):
            manifest = self.manifests.get(job_id)
            if manifest is None or manifest.state is JobState.RUNNING:
                parent = self._parent(job_id)
                is_promised = parent is not None and parent.state in _UNFINISHED
                assert job_id in waiting or is_promised, f"nothing asks for {job_id} any more"
            elif manifest.state is JobState.FAILED:
                assert job_id in waiting | dead, f"{job_id} failed without a dead letter"

    def _parent(self, job_id: str) -> Manifest | None:
        return next((m for m in self.manifests.values() if job_id in m.children), None)

    def _check_leases(self, view: LedgerView) -> None:
        """No two lease rows hold a job under its present epoch, and none a later one."""
        held: dict[str, Lease] = {}
        for lease in view.leases:
            manifest = self.manifests[lease.job_id]
            assert lease.epoch <= manifest.epoch, lease
            if lease.epoch == manifest.epoch and lease.deadline > self.world.now:
                assert lease.job_id not in held, (lease, held[lease.job_id])
                assert manifest.owner == f"{lease.instance_id}/{lease.slot}"
                held[lease.job_id] = lease

    def _check_fleet(self, view: LedgerView) -> None:
        counted = [w for w in view.workers.values() if w.holds_place]
        assert len(counted) <= self.world.policy.max_workers

    # The end.

    def close(self) -> None:
        """Check what must hold once everything has come to rest."""
        self.look()
        for job_id, items in self.world.jobs.items():
            self._check_outcome(job_id, list(items))
        self._check_money()

    def _check_outcome(self, job_id: str, items: list[str]) -> None:
        manifest = self.manifests[job_id]
        assert manifest.state in OVER, manifest
        if manifest.state is JobState.CANCELLED:
            assert job_id.partition(".")[0] in self.world.cancelled
        elif manifest.state is JobState.COMPLETED:
            assert [record.item for record in self._records(job_id)] == items
            assert manifest.items == len(items)
        elif manifest.state is JobState.SPLIT:
            assert not manifest.parts
            shares = [self._share(child) for child in manifest.children]
            assert [item for share in shares for item in share] == items
            for child, share in zip(manifest.children, shares, strict=True):
                self._check_outcome(child, share)

    def _records(self, job_id: str) -> list[Record]:
        objects = self.world.objects
        parts = self.manifests[job_id].parts
        return [record for part in parts for record in decode_part(objects.get(part.key).data)]

    def _share(self, child: str) -> list[str]:
        (body,) = self.world.objects.list(stored_prefix(child))
        return list(json.loads(self.world.objects.get(body.key).data)["items"])

    def _check_money(self) -> None:
        """Spend is the sum of paid seconds, each at its price; and no second is left out."""
        workers = self.world.rows()
        bills = {bill.instance_id: bill for bill in self.world.compute.bills()}
        # Only what the ledger itself says it could not learn may be missing.
        assert workers.keys() <= bills.keys()
        unknown = {self._launch_of[name] for name in bills.keys() - workers.keys()}
        assert unknown <= self._untold(), unknown
        seconds = dollars = 0.0
        for instance_id, worker in workers.items():
            charged = _charged(worker)
            seconds += charged.total_seconds()
            dollars += self._due(worker, charged)
            assert worker.ended_at is not None
            least = self._ended_no_sooner(worker)
            assert worker.ended_at >= least, "charged for less than it ran"
            assert worker.ended_at <= self.found.get(instance_id, self.world.now)
            ran = timedelta(seconds=bills[instance_id].seconds)
            assert charged >= min(ran - self.world.stalled, least - worker.launched_at)
        days = self.world.view().spend.values()
        assert sum(d.dollars for d in days) == pytest.approx(dollars, abs=1e-6), self._costs(
            workers
        )
        paid = sum(d.boot_seconds + d.busy_seconds + d.idle_seconds for d in days)
        assert paid == pytest.approx(seconds, abs=1e-3)
        month = self._month()
        assert month.dollars == pytest.approx(dollars, abs=1e-6)
        # Nothing is set aside any more.
        assert month.committed == pytest.approx(dollars, abs=1e-6)

    def _ended_no_sooner(self, worker: Worker) -> datetime:
        """Return until when a worker must be charged at least."""
        # A tick goes by the time at which it began.
        least = self.ends[worker.instance_id].at - self.world.stalled
        if worker.checked_in_at is None or worker.condemned_at is not None:
            return least
        # One that fell silent while no tick came has ended by then, for all that anybody can tell.
        is_drained = worker.instance_id in self._drained
        silent = DRAINED_FOR if is_drained else self.world.policy.heartbeat_stale_after
        return min(least, worker.last_sign + silent)

    def _due(self, worker: Worker, charged: timedelta) -> float:
        """Return what an instance costs: but for volume and address nothing in a free hour."""
        end = self.ends[worker.instance_id]
        assert worker.ended_at is not None
        lived = worker.ended_at - worker.launched_at
        # EC2 forgets in an hour how an instance ended: without a notice nobody can tell then, nor
        # with one if we have ended it too.
        is_told = worker.noticed_at is not None
        is_known = is_told or worker.reason.code not in _TELLS_NO_CAUSE
        # A reason of the worker's own, or of the scaler's, hides whether EC2 still told its own.
        is_hidden = not is_told and worker.reason.code not in _TOLD_BY_EC2
        if worker.condemned_at is not None or is_hidden:
            found = self.found.get(worker.instance_id, self.world.now)
            is_known = is_known and found - end.at < DESCRIBED_FOR
        # An event that tells an end tells no cause: it may be all that was ever heard.
        is_sure = is_told or worker.gone_at is None or worker.refunded_usd > 0.0
        if end.reason == EndReason.RECLAIMED and lived < FREE_FOR and is_known and is_sure:
            assert worker.charged_usd == pytest.approx(worker.extra_price * (charged / _HOUR))
            return worker.charged_usd
        # A price that could not be read at the launch was an estimate until the first charge.
        flat = worker.price_per_hour * (charged / _HOUR)
        assert flat / 2 <= worker.charged_usd <= flat * 2
        return worker.charged_usd

    def _costs(self, workers: Mapping[str, Worker]) -> str:
        """Say for each instance what it cost and how it ended."""
        days = self.world.view().spend
        return f"{[(d.dollars, d.interruptions) for d in days.values()]} " + "; ".join(
            f"{name}: {self._due(w, _charged(w)):.4f} for {_charged(w)}, {self.ends[name].reason}"
            f" at {self.ends[name].at:%T}, row ended at {w.ended_at:%T}"
            f" {'counted as interrupted' * w.interruption_counted} ({w.reason})"
            for name, w in workers.items()
        )

    def _untold(self) -> set[str]:
        """Return the launches of which the ledger says that it could not learn what they gave."""
        past = self.world.table.query(rows.history_partition(self.world.workload), rows.LAUNCH)
        launches = [*self.world.view().launches.values()]
        launches += [decode(Launch, row) for row in past.values()]
        return {launch.launch_id for launch in launches if launch.reason.code in _UNTOLD}

    def _month(self) -> BudgetRow:
        found: Mapping[str, object] = self.world.table.query(rows.DEPLOYMENT_PARTITION, rows.BUDGET)
        months = [decode(BudgetRow, row) for row in found.values() if isinstance(row, Mapping)]
        return BudgetRow(
            dollars=sum(month.dollars for month in months),
            committed=sum(month.committed for month in months),
        )


def _charged(worker: Worker) -> timedelta:
    assert worker.accrued_until is not None
    charged = worker.accrued_until - worker.launched_at
    assert charged >= LEAST_BILLED
    return charged


def _check_only_grows(before: Manifest, after: Manifest) -> None:
    name = after.job_id
    assert after.epoch >= before.epoch, f"the epoch of {name} went back"
    assert after.next_item >= before.next_item, f"{name} lost what was committed"
    assert before.state not in OVER or after.state is before.state, f"{name} was over already"
    assert after.children[: len(before.children)] == before.children
    if after.epoch == before.epoch:
        assert after.owner == before.owner, f"one epoch of {name} has two owners"


def _check_parts(manifest: Manifest, parts: Sequence[Part]) -> None:
    bounds = [(part.first, part.last) for part in parts]
    assert manifest.items_failed == sum(part.failed for part in parts)
    firsts = [first for first, _ in bounds]
    assert firsts == [0, *(last + 1 for _, last in bounds)][: len(bounds)], bounds
    assert manifest.next_item == (bounds[-1][1] + 1 if bounds else 0)
    if manifest.state is JobState.COMPLETED:
        assert manifest.next_item == manifest.items


def _job_ids(bodies: list[str]) -> set[str]:
    return {job_id for body in bodies if (job_id := _job_id(body)) is not None}


@lru_cache(maxsize=1024)
def _job_id(body: str) -> str | None:
    """Return the job that a message asks for; one that is malformed is nobody's."""
    try:
        return parse_job(body).job_id or ""
    except ContractError:
        return None
