"""One slot: receive, claim, work, and again, until the worker finishes."""

import math
import threading
from contextlib import suppress
from datetime import datetime, timedelta

from spindown.app.port import Message
from spindown.app.work.claim import ClaimOutcome, Declined, claim
from spindown.app.work.fence import read_fence
from spindown.app.work.held import Held
from spindown.app.work.message import put_back
from spindown.contract.usage import UsageEnd
from spindown.domain.idle import poll_wait
from spindown.domain.lease import is_quarantined, outage_wait
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import SpindownError
from worker.attempt import Attempt
from worker.child.ending import Wedged
from worker.handover import Bench, Ending, announce

_FIRST_BACK_OFF = timedelta(seconds=1)
_LONGEST_BACK_OFF = timedelta(seconds=30)
#: Faults of our own code or machine, one job after the other, after which neither is trusted.
_CRASHES_AT_MOST = 3
_ENDS = {
    Ending.COMPLETED: UsageEnd.COMPLETED,
    Ending.RELEASED: UsageEnd.RELEASED,
    Ending.FAILED: UsageEnd.FAILED,
    Ending.DEAD_LETTERED: UsageEnd.FAILED,
    Ending.LOST: UsageEnd.LOST,
}
_COUNTED = {Ending.COMPLETED, Ending.FAILED, Ending.DEAD_LETTERED}


class Slot:
    """A slot of the worker, driven by its own thread or, in tests, step by step."""

    def __init__(self, bench: Bench, *, poll_at_most: timedelta) -> None:
        self._bench = bench
        self._poll_at_most = poll_at_most
        self._back_off = _FIRST_BACK_OFF
        self._crashes = 0
        self.keeper = bench.keeper
        #: Since when it has had no job; None while it deals with a message.
        self.free_since: datetime | None = bench.ports.clock.now()
        self.thread = threading.Thread(target=self._run, name=f"slot-{bench.seat.slot}")
        self.thread.daemon = True

    def _run(self) -> None:
        bench = self._bench
        try:
            bench.runner.warm()
        except Exception:
            # The first job finds it again, and ends with the reason.
            bench.log.exception("code_not_warmed")
        while not bench.life.is_finishing:
            try:
                had_message = self.step()
                self._back_off = _FIRST_BACK_OFF
            except SpindownError as exc:
                bench.log.warning("slot_backs_off", reason=str(exc))
                self._wait_longer()
            except Exception as exc:
                bench.log.exception("slot_crashed")
                self._note_crash(exc)
                self._wait_longer()
            else:
                # News that came while it polled has woken somebody else.
                is_pausing = not (bench.life.is_warm or bench.life.is_finishing)
                if is_pausing and not had_message:
                    bench.life.wait(poll_wait(self._idle_for()))
        if bench.ahead is not None:
            bench.ahead.drop()
        with suppress(Wedged):
            bench.runner.kill()
        bench.transfers.shutdown(wait=False, cancel_futures=True)
        bench.life.wake()

    def step(self) -> bool:
        """Deal with one message, if there is one; tell whether there was."""
        since = self.free_since
        if since is not None:
            # Somebody may have set the clock back.
            self.free_since = since = min(since, self._bench.ports.clock.now())
        message = self._receive()
        if message is None:
            return False
        try:
            if self._bench.life.is_finishing:
                put_back(message, timedelta(0), self._bench.ports.queue)
            elif self._take(message):
                since = None
        finally:
            self.free_since = since or self._bench.ports.clock.now()
            self._bench.life.wake()
        return True

    def _receive(self) -> Message | None:
        """Wait for a message, alone among the slots; none can come unseen past ``polling``."""
        bench = self._bench
        ahead = self._take_ahead()
        if ahead is not None:
            return ahead
        with bench.life.polling:
            if bench.life.is_finishing:
                return None
            if bench.life.inbox:
                message: Message | None = bench.life.inbox.pop()
            else:
                message = bench.ports.queue.receive(
                    wait=self._poll_length(), visibility=bench.policy.lease_duration
                )
            if message is not None:
                self.free_since = None
            return message

    def _take_ahead(self) -> Message | None:
        """Return the message that was received ahead, if there is one; its input may take long."""
        ahead, since = self._bench.ahead, self.free_since
        if ahead is None:
            return None
        if ahead.is_looking:
            # Else the worker might end as idle meanwhile.
            self.free_since = None
        message = None
        try:
            message = ahead.take()
        finally:
            if message is None:
                self.free_since = since
        return message

    def _poll_length(self) -> timedelta:
        """Return how long to poll: not past the idle timeout, in whole seconds as SQS counts."""
        if self._bench.life.is_warm:
            return self._poll_at_most
        rest = self._bench.life.standing.idle_timeout - self._idle_for()
        seconds = math.ceil(max(rest, timedelta(0)).total_seconds())
        return min(timedelta(seconds=seconds), self._poll_at_most)

    def _idle_for(self) -> timedelta:
        now = self._bench.ports.clock.now()
        return now - (self.free_since or now)

    def _take(self, message: Message) -> bool:
        """Claim a message's job and work on it; tell whether it was ours to work on."""
        bench = self._bench
        try:
            claimed = claim(
                message,
                seat=bench.seat,
                presence=bench.presence,
                ports=bench.ports,
                policy=bench.policy,
            )
        except SpindownError:
            self._leave(message)
            raise
        if isinstance(claimed, Declined):
            self._note(claimed)
            return False
        self._work(claimed)
        return True

    def _leave(self, message: Message) -> None:
        """Let others see a message soon whose job could not be claimed for want of an answer."""
        bench = self._bench
        wait = outage_wait(message.receive_count, bench.ports.random.random())
        # If it cannot be shown it shows itself, when what hid it is over.
        with suppress(SpindownError):
            put_back(message, min(wait, bench.policy.lease_duration), bench.ports.queue)

    def _work(self, held: Held) -> None:
        bench = self._bench
        manifest = held.manifest
        bench.log.info(
            "job_claimed",
            job_id=held.job_id,
            epoch=manifest.epoch,
            next_item=manifest.next_item,
            receive_count=held.message.receive_count,
        )
        if manifest.epoch == 1:
            waited = bench.ports.clock.now() - held.message.sent_at
            bench.reporter.emit({"WaitSeconds": waited.total_seconds()})
        attempt = Attempt(held, bench)
        since = bench.ports.clock.now()
        if bench.recorder is not None:
            bench.recorder.begin()
        ending = attempt.run()
        # A message that was only put back says nothing of the machine.
        self._crashes = 0
        self._record(held, attempt, ending, since)
        if ending in _COUNTED:
            failed = ending is not Ending.COMPLETED or attempt.all_failed
            bench.life.outcomes.append((held.job_id, failed))
            # A copy: the other slots add to it.
            if is_quarantined(tuple(bench.life.outcomes), bench.policy):
                bench.log.warning("quarantined", jobs=bench.policy.failures_to_quarantine)
                bench.life.finish(ReasonCode.JOBS_FAILED)
                bench.presence.mark_unfit(Reason(ReasonCode.JOBS_FAILED))

    def _note_crash(self, fault: Exception) -> None:
        """Take no more jobs if the last ones all met a fault of this machine or of ours."""
        # What cannot be killed keeps its GPU for good.
        self._crashes += _CRASHES_AT_MOST if isinstance(fault, Wedged) else 1
        if self._crashes >= _CRASHES_AT_MOST:
            self._bench.life.finish(ReasonCode.FAULTY)
            with suppress(SpindownError):
                self._bench.presence.mark_unfit(Reason(ReasonCode.FAULTY))

    def _record(self, taken: Held, attempt: Attempt, ending: Ending, since: datetime) -> None:
        """Note how the machine was used; a job that was only split has not used it."""
        bench = self._bench
        if bench.recorder is None or ending is Ending.SPLIT:
            return
        end = _ENDS[ending]
        if end is UsageEnd.RELEASED and bench.life.interrupted:
            end = UsageEnd.INTERRUPTED
        now = bench.ports.clock.now()
        bench.recorder.end(taken, attempt.held.manifest, end, since=since, until=now)

    def _note(self, declined: Declined) -> None:
        bench = self._bench
        bench.log.info(
            "job_declined",
            job_id=declined.job_id,
            outcome=declined.outcome.value,
            reason=declined.reason,
        )
        if declined.outcome is ClaimOutcome.MALFORMED:
            bench.reporter.emit({"DeadLettered": 1}, reason="malformed")
        elif declined.outcome is ClaimOutcome.DEAD_LETTERED:
            bench.reporter.emit({"DeadLettered": 1}, reason="failures")
            self._announce(declined.job_id or "")
        elif declined.outcome is ClaimOutcome.CONDEMNED:
            bench.life.leave(bench.ports.clock.now(), ReasonCode.CONDEMNED)

    def _announce(self, job_id: str) -> None:
        """Tell of a job that was given up at its claim."""
        fence = read_fence(job_id, self._bench.ports.objects) if self._bench.outbox else None
        if fence is not None:
            announce(fence.manifest, self._bench)

    def _wait_longer(self) -> None:
        life, clock = self._bench.life, self._bench.ports.clock
        ends_at = clock.now() + self._back_off
        # Whatever else happens wakes it too, first of all its own last step. No longer, if somebody
        # sets the clock back meanwhile.
        while not life.is_finishing and (
            timedelta(0) < (rest := ends_at - clock.now()) < 2 * self._back_off
        ):
            life.wait(rest)
        self._back_off = min(2 * self._back_off, _LONGEST_BACK_OFF)
