"""The manifest with which a slot begins an epoch: what the last one left, and how it ended."""

from dataclasses import dataclass, replace

from spindown.contract.codec import replace_fields
from spindown.contract.job.manifest import Failure, JobState, Manifest
from spindown.contract.job.message import JobMessage
from spindown.contract.row import history_partition, worker_sort, workload_partition
from spindown.domain.dead_letter import EpochEnd, dead_letter_reason, epoch_end
from spindown.domain.fleet import Lease
from spindown.domain.policy import Policy
from spindown.job.fence import Fence, first_sent
from spindown.job.held import SlotId, WorkPorts, lease_key, read_lease
from spindown.port import Key, Message
from spindown.wording import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The epochs of a message's job, as a slot would begin them."""

    message: Message
    job: JobMessage
    slot_id: SlotId
    ports: WorkPorts
    policy: Policy

    def begin_first(self) -> Manifest:
        """Return the manifest of a job that nobody has claimed before."""
        job_id = self.job.job_id or ""
        return self._owned(Manifest(job_id=job_id, epoch=0, owner="", state=JobState.RUNNING), 1)

    def begin_next(self, fence: Fence) -> Manifest:
        """Return the manifest of the next epoch; it has failed if no further try is worth it."""
        counted = _of_same_code(self._count_end(fence.manifest), self.slot_id.code_digest)
        manifest = self._owned(counted, max(fence.epoch_floor, counted.epoch) + 1)
        reason = dead_letter_reason(manifest.failures, self.policy)
        if not reason:
            return manifest
        ended = {
            "state": JobState.FAILED,
            "reason": say(reason),
            "finished_at": self.ports.clock.now(),
            "released": True,
        }
        return replace_fields(manifest, ended)

    def _owned(self, manifest: Manifest, epoch: int) -> Manifest:
        """Return the manifest as the beginning of an epoch of ours."""
        count = None if self.job.items is None else len(self.job.items)
        changes = {
            "epoch": epoch,
            "owner": self.slot_id.owner,
            "released": False,
            "epoch_first": manifest.next_item,
            "items": manifest.items if count is None else count,
            "batch_id": self.job.batch_id or manifest.batch_id,
            "tenant": self.job.tenant or manifest.tenant,
            "parent": self.job.parent or manifest.parent,
            "code_digest": self.slot_id.code_digest or manifest.code_digest,
            "claimed_at": self.ports.clock.now(),
        }
        if self.policy.finish_within is not None:
            changes["sent_at"] = manifest.sent_at or first_sent(self.message, self.job, self.ports)
        return replace_fields(manifest, changes)

    def _count_end(self, manifest: Manifest) -> Manifest:
        if manifest.epoch == 0:
            return manifest
        is_taken = not manifest.released and self._was_interrupted(manifest)
        match epoch_end(manifest, interrupted=is_taken):
            case EpochEnd.INTERRUPTED:
                return replace(manifest, interruptions=manifest.interruptions + 1)
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

    def _was_interrupted(self, manifest: Manifest) -> bool:
        """Tell whether the ledger knows of an interruption of the last owner."""
        sort = worker_sort(manifest.owner.rpartition("/")[0])
        for partition in (workload_partition, history_partition):
            row = self.ports.table.get(Key(partition=partition(self.slot_id.workload), sort=sort))
            if row is not None:
                return row.get("interrupted_at") is not None
        return False


def find_freed_lease(manifest: Manifest, workload: str, ports: WorkPorts) -> Lease | None:
    """Return what the last owner held when the control plane freed it: how far it was."""
    if not manifest.owner or manifest.released:
        return None
    live = lease_key(workload, manifest.owner)
    past = live._replace(partition=history_partition(workload))
    freed = read_lease(ports.table, past)
    return freed if freed is not None and freed.epoch == manifest.epoch else None


def _of_same_code(manifest: Manifest, digest: str) -> Manifest:
    """Return a manifest without results of other code: one job never mixes two versions."""
    if not digest or not manifest.code_digest or manifest.code_digest == digest:
        return manifest
    return replace(manifest, next_item=0, parts=(), user_state=())
