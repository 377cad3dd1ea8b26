"""The epoch that a claim begins: what the last one left, how it ended, and whether to go on at all.

The epoch is the fence: once a claim has raised it, every write of the last owner fails. What a
failure or a loss means for the job is decided in ``domain.retry_or_dead_letter``, what
interruptions mean in ``domain.wasted_work``.
"""

from dataclasses import dataclass, replace

from spindown.contract.codec import Row, decode, replace_fields
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import JobMessage, body_digest
from spindown.contract.job.s3_event import source_of
from spindown.contract.row import (
    history_partition,
    requeued_sort_key,
    worker_partition,
    worker_sort_key,
)
from spindown.contract.run_spec import OnNewCode
from spindown.domain.fleet import Lease, RequeuedJob, Worker
from spindown.domain.policy import Policy
from spindown.domain.retry_or_dead_letter import (
    EpochEnd,
    Failure,
    dead_letter_reason,
    epoch_end,
    never_done,
    too_long,
)
from spindown.domain.wasted_work import NOTHING_WASTED, GoesOn, WastedWork, goes_on, may_be_risked
from spindown.error import ContractError
from spindown.job.claimed_job import SlotId
from spindown.job.lease_row import lease_key, read_lease
from spindown.job.manifest_store import StoredManifest, first_sent
from spindown.job.release import count_wasted_work
from spindown.job.route import read_sized
from spindown.port import Key, Message, Table, WorkPorts
from spindown.reason_text import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The epochs of a message's job, as a slot would begin them."""

    message: Message
    job: JobMessage
    slot_id: SlotId
    ports: WorkPorts
    policy: Policy

    @property
    def job_id(self) -> str:
        """Return the job that the message names; ``with_id`` has seen to it that there is one."""
        return self.job.job_id or ""

    def begin_first(self) -> Manifest:
        """Return the manifest of a job that nobody has claimed before."""
        return self._owned(
            Manifest(job_id=self.job_id, epoch=0, owner="", state=JobState.RUNNING), 1
        )

    def begin_next(self, stored: StoredManifest) -> Manifest:
        """Return the manifest of the next epoch; it has failed if no further try is worth it."""
        counted = _for_code_of(self._count_end(stored.manifest), self.slot_id)
        counted = replace(counted, wasted_work=self._with_wait(counted))
        manifest = self._owned(counted, max(stored.epoch_floor, counted.epoch) + 1)
        reason = dead_letter_reason(manifest.failures, self.policy) or too_long(
            manifest.wasted_work, manifest.cost_usd, self.policy
        )
        if not reason and self.goes_on(manifest) is GoesOn.NOWHERE:
            reason = never_done(manifest.wasted_work)
        if not reason:
            return manifest
        ended = {
            "state": JobState.FAILED,
            "reason": say(reason),
            "code": reason.code.value,
            "finished_at": self.ports.clock.now(),
            "released": True,
        }
        return replace_fields(manifest, ended)

    def goes_on(self, manifest: Manifest) -> GoesOn:
        """Return where a job goes on: here, if interruptions have not cost it too much."""
        if may_be_risked(manifest.wasted_work, self.slot_id.spot, self.policy):
            return GoesOn.ANYWHERE
        return goes_on(manifest.wasted_work, self.slot_id.spot, self.policy)

    def _with_wait(self, manifest: Manifest) -> WastedWork:
        """Return what interruptions have cost, and whether the wait for a sure machine is over."""
        wasted_work = manifest.wasted_work
        if self.slot_id.spot is None:
            return replace(wasted_work, has_waited_in_vain=False)
        if self.goes_on(manifest) is not GoesOn.STABLE:
            return wasted_work
        job = read_requeued(self.slot_id.workload, manifest.job_id, self.ports.table)
        if job is None or job.wasted_work is None or job.waits_for_stable(self.ports.clock.now()):
            return wasted_work
        return replace(wasted_work, has_waited_in_vain=True)

    def _owned(self, manifest: Manifest, epoch: int) -> Manifest:
        """Return the manifest as the beginning of an epoch of ours."""
        count = None if self.job.items is None else len(self.job.items)
        changes = {
            "epoch": epoch,
            "owner": self.slot_id.owner,
            "released": False,
            # It may have been refused for what another message of its id asks for.
            "state": JobState.RUNNING,
            "reason": "",
            "code": "",
            "finished_at": None,
            "epoch_first": manifest.next_item,
            "busy_first": manifest.busy_seconds,
            "items": manifest.items if count is None else count,
            "batch_id": self.job.batch_id or manifest.batch_id,
            "tenant": self.job.tenant or manifest.tenant,
            "parent": self.job.parent or manifest.parent,
            "source": source_of(self.job_id, self.job.items) or manifest.source,
            "body_digest": manifest.body_digest or body_digest(self.job),
            "code_version": self.slot_id.code_version or manifest.code_version,
            "claimed_at": self.ports.clock.now(),
        }
        if self.slot_id.shape:
            if manifest.routed_at is None:
                changes["stated"] = tuple(sorted(self.job.requirements or ()))
            changes["routed_at"] = manifest.routed_at or self.message.sent_at
            changes["sized"] = read_sized(self.message)
        if self.policy.finish_within is not None:
            changes["sent_at"] = manifest.sent_at or first_sent(self.message, self.job, self.ports)
        return replace_fields(manifest, changes)

    def _count_end(self, manifest: Manifest) -> Manifest:
        if manifest.epoch == 0:
            return manifest
        row = None if manifest.released else self._owner_row(manifest)
        is_taken = row is not None and row.get("interrupted_at") is not None
        owner = _readable(row)
        if not manifest.released:
            manifest = replace(manifest, lost_epochs=(*manifest.lost_epochs, manifest.epoch))
        boot = 0.0 if owner is None else owner.boot
        match epoch_end(manifest, interrupted=is_taken, boot=boot):
            case EpochEnd.INTERRUPTED:
                return replace(
                    self._count_wasted_work(manifest, owner),
                    interruptions=manifest.interruptions + 1,
                )
            case EpochEnd.LOST:
                loss = Failure(
                    at=self.ports.clock.now(),
                    instance_id=manifest.owner.rpartition("/")[0],
                    epoch=manifest.epoch,
                    kind="loss",
                )
                return replace(
                    manifest, losses=manifest.losses + 1, failures=(*manifest.failures, loss)
                )
            case _:
                return manifest

    def _count_wasted_work(self, manifest: Manifest, worker: Worker | None) -> Manifest:
        """Count an epoch that was interrupted without a word, unless it got anywhere."""
        live = read_lease(self.ports.table, lease_key(self.slot_id.workload, manifest.owner))
        left = live or find_freed_lease(manifest, self.slot_id.workload, self.ports)
        if _is_of(left, manifest) and items_done(left, manifest.job_id) > manifest.next_item:
            # It has done an item, though it has not committed it.
            return manifest
        if worker is None:
            return manifest
        ends = [at for at in (worker.interrupted_at, worker.ended_at) if at is not None]
        return count_wasted_work(manifest, worker.boot, worker.spot_terms(), min(ends))

    def _owner_row(self, manifest: Manifest) -> Row | None:
        """Return the row of the last owner; None: the ledger knows nothing of it."""
        sort = worker_sort_key(manifest.owner.rpartition("/")[0])
        for partition in (worker_partition, history_partition):
            row = self.ports.table.get(Key(partition=partition(self.slot_id.workload), sort=sort))
            if row is not None:
                return row
        return None


def find_freed_lease(manifest: Manifest, workload: str, ports: WorkPorts) -> Lease | None:
    """Return what the last owner held when the control plane freed it: how far it was."""
    if not manifest.owner or manifest.released:
        return None
    live = lease_key(workload, manifest.owner)
    past = live._replace(partition=history_partition(workload))
    freed = read_lease(ports.table, past)
    return freed if freed is not None and freed.epoch == manifest.epoch else None


def _readable(row: Row | None) -> Worker | None:
    try:
        return None if row is None else decode(Worker, row)
    except ContractError:
        return None


def read_requeued(workload: str, job_id: str, table: Table) -> RequeuedJob | None:
    """Return what the ledger remembers of a requeued job; None: nothing that can be read."""
    key = Key(partition=worker_partition(workload), sort=requeued_sort_key(job_id))
    row = table.get(key)
    try:
        return None if row is None else decode(RequeuedJob, row)
    except ContractError:
        return None


def _is_of(lease: Lease | None, manifest: Manifest) -> bool:
    """Tell whether a lease is that of a manifest's present epoch."""
    return lease is not None and (lease.job_id, lease.epoch) == (manifest.job_id, manifest.epoch)


def _for_code_of(manifest: Manifest, slot_id: SlotId) -> Manifest:
    """Return a manifest as the code of a slot may go on with it.

    Results of another version of the code are dropped, unless the workload says that both give
    the same: then a job may hold results of two versions.
    """
    if not is_other_code(manifest, slot_id):
        return manifest
    # Other code may keep checkpoints, or be faster.
    manifest = replace(manifest, wasted_work=NOTHING_WASTED)
    if slot_id.on_new_code is OnNewCode.KEEP:
        return manifest
    return replace(manifest, next_item=0, parts=(), user_state=(), begun_seconds={})


def is_other_code(manifest: Manifest, slot_id: SlotId) -> bool:
    """Tell whether a job's last owner ran another version of the code; unknown: it did not."""
    ours, theirs = slot_id.code_version, manifest.code_version
    return bool(ours and theirs) and ours != theirs


def items_done(before: Lease | None, job_id: str) -> int:
    """Return how many items of a job its last owner had done, as the lease that it left says."""
    return before.items_done if before is not None and before.job_id == job_id else 0
