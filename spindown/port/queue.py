"""The queue that carries jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from spindown.domain.fleet import Backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One receipt of one message."""

    message_id: str
    body: str
    receipt_handle: str
    receive_count: int
    #: When it was first sent; a re-sent copy starts anew.
    sent_at: datetime
    received_at: datetime
    tenant: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message to send."""

    body: str
    #: Fair-queue group (SQS MessageGroupId on a standard queue).
    tenant: str | None = None
    #: At most 15 minutes.
    delay: timedelta = timedelta(0)
    #: At most 10, sent as message attributes of type String.
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Return its size as SQS counts it: body, and each attribute's name, type and value."""
        texts = [self.body]
        for name, value in self.attributes.items():
            texts += [name, "String", value]
        return sum(len(text.encode()) for text in texts)


class JobQueue(Protocol):
    """A standard SQS queue: at least once, in no order."""

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send any number of messages; raise if one was not accepted."""
        ...

    def receive(self, *, wait: timedelta, visibility: timedelta) -> Message | None:
        """Take one message, waiting at most 20 s; None when there is none."""
        ...

    def extend(self, receipt_handle: str, visibility: timedelta) -> None:
        """Hide the message for ``visibility`` from now; zero requeues it.

        Raises:
            StaleHandle: it was received again since, deleted, or its timeout has passed.
        """
        ...

    def delete(self, receipt_handle: str) -> None:
        """Delete the message for good.

        Raises:
            StaleHandle: as for ``extend`` (AWS itself may report success instead).
        """
        ...

    def backlog(self) -> Backlog:
        """Return the approximate numbers of messages."""
        ...
