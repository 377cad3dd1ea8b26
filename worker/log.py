"""The worker's log: one JSON object a line, an event name and its fields.

Each line goes to standard output at once and, as soon as the worker knows its home, to the
workload's log group in batches.
"""

import itertools
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Protocol, TextIO

from spindown.contract.codec import encode_instant
from spindown.contract.log import AWAITED, JOB_USED

_WRITER = json.JSONEncoder(default=str)
_LOGGER = "spindown.worker"
#: Counts the events of this process: of two that are equal one was sent again.
_NUMBERS = itertools.count(1)


def write_json(value: object) -> str:
    """Return a value as it stands in a line, each character one byte."""
    return _WRITER.encode(value)


class Shipment(Protocol):
    """Lines that wait to be sent together; neither method may fail, nor ``add`` wait."""

    def add(self, message: str, at: datetime) -> None:
        """Let a line wait."""
        ...

    def flush(self) -> None:
        """Send what waits."""
        ...

    def take_dropped(self) -> int:
        """Return how many lines could not wait any longer since the last call."""
        ...


class _JsonFormatter(logging.Formatter):
    """Formats a record as JSON; what is not JSON is shown as text."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": encode_instant(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return write_json(line)


class _ShippingHandler(logging.Handler):
    """Lets events wait in a shipment."""

    def __init__(self, shipment: Shipment) -> None:
        super().__init__()
        self.shipment = shipment
        #: Whether somebody may be waiting to see what waits here.
        self.is_awaited = False
        #: Jobs that have printed and have not ended.
        self._printing: set[object] = set()
        self.setFormatter(_JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.shipment.add(self.format(record), datetime.fromtimestamp(record.created, UTC))
            self._note(record)
        except Exception:  # noqa: BLE001 - the edge of the log, as in the handlers of the stdlib
            self.handleError(record)

    def _note(self, record: logging.LogRecord) -> None:
        """Note whether somebody may be waiting for an event: a job that prints, or its end."""
        event, job_id = record.getMessage(), getattr(record, "fields", {}).get("job_id")
        if event in AWAITED:
            self._printing.add(job_id)
            self.is_awaited = True
        elif event == JOB_USED and job_id in self._printing:
            self._printing.discard(job_id)
            self.is_awaited = True


class EventLog:
    """Writes events with the fields that all of them share, such as the instance."""

    def __init__(self, logger: logging.Logger, **fields: Any) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> "EventLog":
        """Return a log whose events carry these fields too."""
        return EventLog(self._logger, **{**self._fields, **fields})

    def ship(self, shipment: Shipment) -> None:
        """Let every event from now on, whoever writes it, go by a shipment too."""
        self._logger.addHandler(_ShippingHandler(shipment))

    def flush(self) -> None:
        """Send what waits to be shipped, if anything does; what was dropped is told."""
        for handler in self._logger.handlers:
            if not isinstance(handler, _ShippingHandler):
                continue
            handler.is_awaited = False
            dropped = handler.shipment.take_dropped()
            if dropped:
                self.warning("log_lines_dropped", lines=dropped)
            try:
                handler.shipment.flush()
            except Exception:  # noqa: BLE001 - the edge of the log: no work may fail for it
                self.exception("log_not_shipped")

    def flush_awaited(self) -> None:
        """Send what waits if somebody may be waiting to see it; else it goes with a heartbeat."""
        if any(isinstance(x, _ShippingHandler) and x.is_awaited for x in self._logger.handlers):
            self.flush()

    def info(self, event: str, **fields: Any) -> None:
        """Write what happened in the course of things."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write what should be looked at if it repeats."""
        self._write(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Write what must be looked at, with the traceback of the exception in hand."""
        self._write(logging.ERROR, event, fields, with_trace=True)

    def _write(
        self, level: int, event: str, fields: dict[str, Any], *, with_trace: bool = False
    ) -> None:
        # Made here, since the logger would look for its caller in the stack first.
        exc_info = sys.exc_info() if with_trace else None
        record = logging.LogRecord(self._logger.name, level, "", 0, event, (), exc_info)
        record.fields = {**self._fields, **fields, "number": next(_NUMBERS)}
        self._logger.handle(record)


def open_log(stream: TextIO) -> EventLog:
    """Send the worker's events to a stream."""
    logger = logging.getLogger(_LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    logger.handlers = [handler]
    return EventLog(logger)
