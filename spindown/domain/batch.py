"""How a batch has ended, who is told, and what it means for the batch that waits for it.

A batch is over once each of its jobs is. ``job.batch_end`` looks at them in their order, and
``is_forgotten`` says when it gives up. The topic tells people, and
``functions.webhook`` posts the same to an address of theirs. What ``spindown batches`` shows is
worked out in ``operate.batch_status``.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

#: The messages of a submit are kept for as long; after that nobody could start the batch any more.
FORGOTTEN_AFTER = timedelta(days=30)


class OnFailure(StrEnum):
    """What becomes of a batch whose predecessor did not succeed whole."""

    START = "start"
    CANCEL = "cancel"


class BatchEnd(StrEnum):
    """How a batch ended."""

    COMPLETED = "completed"
    #: An item failed, or a job was given up.
    FAILED = "failed"
    #: Neither, and a job was cancelled.
    CANCELLED = "cancelled"


class EndsTold(StrEnum):
    """Which ends of batches people are told."""

    ALL = "all"
    FAILED = "failed"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTally:
    """What the jobs of a batch have come to, as far as they are over."""

    #: Failed ones included.
    items: int = 0
    items_failed: int = 0
    given_up: int = 0
    cancelled: int = 0
    #: USD, of machines' time at work on it. Workers write what is summed: the sum has no bounds.
    dollars: float = 0.0

    def with_job(
        self, state: str, *, items: int, failed: int, dollars: float = 0.0
    ) -> "BatchTally":
        """Return the tally with one more job that is over."""
        return replace(
            self,
            items=self.items + items,
            items_failed=self.items_failed + failed,
            given_up=self.given_up + (state == "failed"),
            cancelled=self.cancelled + (state == "cancelled"),
            dollars=self.dollars + dollars,
        )

    @property
    def end(self) -> BatchEnd:
        """Return how it ended, once all jobs are over."""
        if self.items_failed or self.given_up:
            return BatchEnd.FAILED
        return BatchEnd.CANCELLED if self.cancelled else BatchEnd.COMPLETED


def end_of_job(state: str, *, items_failed: int) -> BatchEnd:
    """Return how a job ended that is over, as everybody is told: like a batch of it alone.

    Its manifest says ``completed`` once each of its items has a result, which may be a failure.

    Args:
        state: ``completed``, ``failed`` (it was given up) or ``cancelled``, as its manifest says.
        items_failed: how many of its items failed.
    """
    return BatchTally().with_job(state, items=items_failed, failed=items_failed).end


def is_forgotten(since: datetime, now: datetime) -> bool:
    """Tell whether a batch that is not over is forgotten now: nobody could start it any more."""
    return now - since >= FORGOTTEN_AFTER


def is_told(end: BatchEnd | None, told: EndsTold, *, is_waited_for: bool) -> bool:
    """Tell whether people are told of an end; None: of a batch that is given up.

    Of a batch whose results a program waits for, only that it has failed or is given up: the
    program knows the rest, and may send very many.
    """
    if end is None or end is BatchEnd.FAILED:
        return told is not EndsTold.NONE
    return told is EndsTold.ALL and not is_waited_for


def start_or_cancel(before: BatchTally, on_failure: OnFailure) -> OnFailure:
    """Return what becomes of a batch once the one before it is over."""
    return OnFailure.START if before.end is BatchEnd.COMPLETED else on_failure
