"""The worker's log: one JSON object a line on standard output, an event name and its fields."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from spindown.contract.codec import encode_instant

_WRITER = json.JSONEncoder(default=str)
_LOGGER = "spindown.worker"


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
        return _WRITER.encode(line)


class EventLog:
    """Writes events with the fields that all of them share, such as the instance."""

    def __init__(self, logger: logging.Logger, **fields: Any) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> "EventLog":
        """Return a log whose events carry these fields too."""
        return EventLog(self._logger, **{**self._fields, **fields})

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
        record.fields = {**self._fields, **fields}
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
