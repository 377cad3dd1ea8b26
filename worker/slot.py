"""One slot: does what the lifecycle commands: poll, claim and work, put back, end."""

import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial

from spindown.contract.metric import class_of
from spindown.contract.usage import UsageEnd
from spindown.domain.lease import outage_wait
from spindown.domain.worker_lifecycle import (
    EndSlot,
    Poll,
    Polled,
    PutBack,
    SlotCommand,
    SlotDone,
    SlotEnded,
    SlotFailed,
    SlotFaulted,
    SlotReady,
    Take,
    WasCondemned,
)
from spindown.error import NewerSchema, SpindownError
from spindown.job.cancel import count_cancelled
from spindown.job.claim import ClaimOutcome, Declined, claim
from spindown.job.claimed_job import ClaimedJob
from spindown.job.manifest_store import load_manifest
from spindown.job.message import put_back
from spindown.job.route import settle_message
from spindown.job.work_done import Progress
from spindown.port import Message
from spindown.worker.attempt import Attempt
from spindown.worker.job_ending import AttemptEnd, SlotContext, announce
from spindown.worker.process_tree.process_tree import Wedged

_ENDS = {
    AttemptEnd.COMPLETED: UsageEnd.COMPLETED,
    AttemptEnd.OUTGROWN: UsageEnd.OUTGROWN,
    AttemptEnd.OUTGROWN_GPU: UsageEnd.OUTGROWN_GPU,
    AttemptEnd.RELEASED: UsageEnd.RELEASED,
    AttemptEnd.FAILED: UsageEnd.FAILED,
    AttemptEnd.DEAD_LETTERED: UsageEnd.FAILED,
    AttemptEnd.LOST: UsageEnd.LOST,
}
#: Of a poll that did not have to wait for a message.
_AT_ONCE = timedelta(seconds=2)
_COUNTED = {AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.DEAD_LETTERED}


class Slot:
    """A slot of the worker, driven by its own thread or, in tests, step by step."""

    def __init__(self, context: SlotContext) -> None:
        self._context = context
        self._life = context.life
        self._number = context.slot_id.slot
        #: A message that is not dealt with yet.
        self._message: Message | None = None
        self._has_dealt = self._has_ended = False
        #: Whether it has stood without work, or has begun some: no boot is timed from then on.
        self._is_past_boot = False
        self.renewer = context.renewer
        self.thread = threading.Thread(target=self._run, name=f"slot-{self._number}")
        self.thread.daemon = True

    def _run(self) -> None:
        context = self._context
        try:
            context.runner.warm()
        except Exception:
            # The first job finds it again, and ends with the reason.
            context.log.exception("code_not_warmed")
        context.on_ready()
        self._life.tell(SlotReady, self._number)
        while not self._has_ended:
            try:
                self.carry_out(self._life.await_slot_command(self._number))
            except SpindownError as exc:
                context.log.warning("slot_backs_off", reason=str(exc))
            except Exception:
                context.log.exception("slot_crashed")

    def step(self) -> bool:
        """Ask for one message and deal with it; tell whether there was one."""
        self._life.tell(SlotReady, self._number)
        return self.go_on()

    def go_on(self) -> bool:
        """Carry out what is commanded, up to one message; tell whether there was one."""
        self._has_dealt = False
        while not self._has_dealt:
            command = self._life.take_slot_command(self._number)
            if command is None:
                break
            self.carry_out(command)
        return self._has_dealt

    def carry_out(self, command: SlotCommand) -> None:
        """Carry a command out, and tell the lifecycle; what goes wrong is raised besides."""
        try:
            match command:
                case Poll(wait=wait):
                    self._poll(wait)
                case Take():
                    self._deal()
                case PutBack():
                    self._put_back()
                case EndSlot():
                    self._end()
        except SpindownError:
            self._life.tell(SlotFailed, self._number)
            raise
        except Exception as exc:
            # What cannot be killed keeps its GPU for good.
            self._life.tell(SlotFaulted, self._number, isinstance(exc, Wedged))
            raise

    def _poll(self, wait: timedelta) -> None:
        # What a job that went wrong had received ahead comes first.
        self._message = self._take_ahead()
        if self._message is None and not self._life.is_finishing:
            clock = self._context.ports.clock
            asked_at = clock.elapsed()
            self._message = self._context.ports.queue.receive(
                wait=wait, visibility=self._context.policy.lease_duration
            )
            if self._message is None or clock.elapsed() - asked_at > _AT_ONCE:
                self._is_past_boot = True
        self._life.tell(Polled, self._number, self._message is not None)

    def _deal(self) -> None:
        """Deal with the message of the slot's own poll, or of the worker's last."""
        message, self._message = self._message or self._life.last_message, None
        if message is None:
            raise AssertionError
        self._has_dealt = True
        worked, outcome = self._take(message)
        self._message = self._take_ahead()
        has_next = self._message is not None
        self._life.tell(SlotDone, self._number, worked, outcome, has_next)

    def _take_ahead(self) -> Message | None:
        """Return the message that was received ahead, if there is one; its input may take long."""
        return None if self._context.next_message is None else self._context.next_message.take()

    def _put_back(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            self._has_dealt = True
            put_back(message, timedelta(0), self._context.ports.queue)

    def _end(self) -> None:
        context, self._has_ended = self._context, True
        if context.next_message is not None:
            context.next_message.drop()
        with suppress(Wedged):
            context.runner.kill()
        context.transfers.shutdown(wait=False, cancel_futures=True)
        self._life.tell(SlotEnded, self._number)

    def _take(self, message: Message) -> tuple[bool, tuple[str, bool] | None]:
        """Claim a message's job and work on it.

        Tell whether it was ours to work on, which no job is that was only split, and if its end
        says anything of the machine, which job it was and whether it failed.
        """
        context = self._context
        try:
            claimed = claim(
                message,
                slot_id=context.slot_id,
                worker_row=context.worker_row,
                ports=context.ports,
                policy=context.policy,
            )
        except SpindownError:
            self._leave(message)
            raise
        if isinstance(claimed, Declined):
            self._note(claimed)
            return False, None
        return self._work(claimed)

    def _leave(self, message: Message) -> None:
        """Let others see a message soon whose job could not be claimed for want of an answer."""
        context = self._context
        wait = outage_wait(message.receive_count, context.ports.random.random())
        # If it cannot be shown it shows itself, when what hid it is over.
        with suppress(SpindownError):
            put_back(message, min(wait, context.policy.lease_duration), context.ports.queue)

    def _work(self, held: ClaimedJob) -> tuple[bool, tuple[str, bool] | None]:
        context = self._context
        manifest = held.manifest
        context.log.info(
            "job_claimed",
            job_id=held.job_id,
            epoch=manifest.epoch,
            next_item=manifest.next_item,
            receive_count=held.message.receive_count,
        )
        attempt = Attempt(held, context, on_begun=partial(self._note_begin, held))
        if context.recorder is not None:
            context.recorder.begin()
        ending = attempt.run()
        self._record(held, attempt, ending)
        if ending not in _COUNTED:
            return ending is not AttemptEnd.SPLIT, None
        is_useless = attempt.all_failed and context.is_judged_by_items
        return True, (held.job_id, ending is not AttemptEnd.COMPLETED or is_useless)

    def _note_begin(self, held: ClaimedJob) -> None:
        """Tell how long a job has waited, and the machine's boot, now that its code has an item."""
        context = self._context
        if held.manifest.epoch == 1:
            waited = context.ports.clock.now() - held.message.sent_at
            context.reporter.emit({"WaitSeconds": waited.total_seconds()})
        if not self._is_past_boot:
            context.on_first_item()
        self._is_past_boot = True

    def _record(self, taken: ClaimedJob, attempt: Attempt, ending: AttemptEnd) -> None:
        """Note how the machine was used; a job that was only split has not used it.

        It was at work as long as its manifest says, so that all who ask are told the same dollars.
        Of a lease that was lost the manifest knows nothing after the last commit; of a job that was
        cancelled it is told.
        """
        context = self._context
        if context.recorder is None or ending is AttemptEnd.SPLIT:
            return
        end = _ENDS[ending]
        if end is UsageEnd.RELEASED and context.life.state.is_interrupted:
            end = UsageEnd.INTERRUPTED
        since, until = attempt.span
        if end is UsageEnd.LOST:
            until = context.ports.clock.now()
            if self._was_cancelled(taken, until - since):
                end = UsageEnd.CANCELLED
        # As people ask for it, whatever is learned.
        asked = settle_message(taken.job, context.policy).needs
        context.recorder.end(
            taken,
            attempt.held.manifest,
            end,
            asked,
            since=since,
            until=until,
            error=attempt.first_error,
        )

    def _was_cancelled(self, taken: ClaimedJob, held_for: timedelta) -> bool:
        """Tell whether a lost job was cancelled, and count in its manifest what it took."""
        hours = held_for / timedelta(hours=1)
        dollars = hours * self._context.slot_id.price_per_hour
        # Who gets no answer tells that it was lost, which it was.
        with suppress(SpindownError):
            seconds = held_for.total_seconds()
            return count_cancelled(taken.manifest, seconds, dollars, self._context.ports)
        return False

    def _note(self, declined: Declined) -> None:
        context = self._context
        context.log.info(
            "job_declined",
            job_id=declined.job_id,
            outcome=declined.outcome.value,
            reason=declined.reason,
        )
        if declined.outcome is ClaimOutcome.MALFORMED:
            context.reporter.emit({"DeadLettered": 1}, reason="malformed")
        elif declined.outcome is ClaimOutcome.DEAD_LETTERED:
            context.reporter.emit({"DeadLettered": 1}, reason=class_of(declined.code))
            self._announce(declined.job_id or "")
        elif declined.outcome in {ClaimOutcome.OTHER_BODY, ClaimOutcome.FORBIDDEN}:
            context.reporter.emit({"DeadLettered": 1}, reason=declined.code)
            if declined.outcome is ClaimOutcome.FORBIDDEN:
                self._announce(declined.job_id or "", only=declined.code)
        elif declined.outcome is ClaimOutcome.OTHER_SHAPE:
            context.reporter.emit({"JobsRerouted": 1})
        elif declined.outcome is ClaimOutcome.CONDEMNED:
            context.life.tell(WasCondemned)

    def _announce(self, job_id: str, *, only: str = "") -> None:
        """Tell of a job that was given up at its claim; with ``only``, for no other code.

        A message may be refused while its job is another's, or over.
        """
        stored = None
        # A later version's has another code: it was left as it is.
        with suppress(NewerSchema):
            stored = load_manifest(job_id, self._context.ports.objects)
        if stored is None or (only and stored.manifest.code != only):
            return
        announce(stored.manifest, self._context)
        if not stored.manifest.batch_id:
            with suppress(SpindownError):
                self._context.reporter.report(Progress(failed_alone=1))
