"""Where traffic comes from: a file, the queue's own past, or a generator."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spindown.cli.history.row import ROWS_AT_MOST, HistoryRow, read_rows
from spindown.domain.lease import RELEASE_AFTER
from spindown.error import BadInput
from spindown.port import Sent, TrafficHistory
from spindown.reason_text import say_count
from spindown.simulator import Arrival
from spindown.simulator.sample import daily_stream, office_batches, rare_bursts
from spindown.simulator.scenario import DAY

#: Where a made-up month begins: a Monday.
_MADE_UP_START = datetime(2026, 1, 5, tzinfo=UTC)
_MADE_UP_DAYS = 30
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
#: Columns of a row of traffic.
_COLUMNS = ("timestamp", "items", "item_seconds")
#: Items of one job: the limit of `max_items_per_job`; a message has no room for more.
_ITEMS_AT_MOST = 100_000
#: Seconds on the reference GPU: a job of more than thirty years must be an error.
_WORK_AT_MOST = 1e9
#: Shorter traffic is shown with a part of a day.
_MANY_DAYS = 100.0
#: Longer traffic has a wrong time, or would take hours to simulate.
_DAYS_AT_MOST = 731


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalHistory:
    """Jobs over a span of time."""

    #: Their source, for people.
    source: str
    #: Times are seconds since ``start``.
    arrivals: tuple[Arrival, ...]
    start: datetime
    #: Seconds.
    length: float
    #: Whether the dates are real, so that prices of the same days apply.
    is_dated: bool
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> datetime:
        """Return the end of the span."""
        return self.start + timedelta(seconds=self.length)

    @property
    def items(self) -> int:
        """Return how many items arrive."""
        return sum(arrival.items for arrival in self.arrivals)


def keep_last(traffic: ArrivalHistory, days: float) -> ArrivalHistory:
    """Return the last days of the traffic, or all of it if it is shorter."""
    begin = traffic.length - days * DAY
    if begin <= 0.0:
        return traffic
    whole = traffic.length / DAY
    text = f"{whole:,.0f}" if whole >= _MANY_DAYS else f"{whole:.3g}"
    left_out = f"of {say_count(text, 'day')} of history the last {days:g} are used"
    return replace(
        traffic,
        arrivals=tuple(replace(x, at=x.at - begin) for x in traffic.arrivals if x.at >= begin),
        start=traffic.start + timedelta(seconds=begin),
        length=days * DAY,
        notes=(left_out, *traffic.notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """The size of a job where the history does not give it."""

    items: float
    #: Seconds of one item on one slot of the reference.
    item_seconds: float
    #: Where both come from, for people.
    source: str
    #: What an item takes ``item_seconds`` on (``domain.relative_throughput.reference_machine``).
    reference: str = "a T4"


def _office(seed: int) -> tuple[Arrival, ...]:
    return office_batches(seed=seed, days=_MADE_UP_DAYS)


def _stream(seed: int) -> tuple[Arrival, ...]:
    return daily_stream(seed=seed, days=_MADE_UP_DAYS)


def _bursts(seed: int) -> tuple[Arrival, ...]:
    return rare_bursts(seed=seed, days=_MADE_UP_DAYS)


#: Name -> (what it is, how it is made).
GENERATORS: Mapping[str, tuple[str, Callable[[int], tuple[Arrival, ...]]]] = {
    "office": ("a made-up month of office batches", _office),
    "stream": ("a made-up month of 4,000 jobs a day", _stream),
    "bursts": ("a made-up month of bursts that are hours apart", _bursts),
}


def generate(name: str, seed: int) -> ArrivalHistory:
    """Return a month from a generator; ``name`` is one of ``GENERATORS``."""
    source, make = GENERATORS[name]
    return ArrivalHistory(
        source=source,
        arrivals=make(seed),
        start=_MADE_UP_START,
        length=_MADE_UP_DAYS * DAY,
        is_dated=False,
    )


def check_span(traffic: ArrivalHistory) -> None:
    """Refuse traffic without a job, or over years: one time is wrong (raises BadInput)."""
    if not traffic.arrivals:
        remedy = "take more of them: no job came in so few"
        raise BadInput("--days", round(traffic.length / DAY, 3), remedy)
    if traffic.length > _DAYS_AT_MOST * DAY:
        span = f"{traffic.start:%Y-%m-%d} to {traffic.end:%Y-%m-%d}"
        remedy = f"fix the times, or take the last days alone with --days, {_DAYS_AT_MOST} at most"
        raise BadInput(f"--arrivals {traffic.source}", span, remedy)


def read_arrivals(path: Path, shape: JobShape) -> ArrivalHistory:
    """Return the jobs of a file: ``timestamp``, optionally ``items`` and ``item_seconds``.

    Args:
        path: CSV with a header, JSON Lines or a list in JSON, oldest first; a row is a job.
        shape: used for rows without ``items`` or ``item_seconds``.

    Raises:
        BadInput: names the line, the column and the remedy.
    """
    rows = read_rows(path, option="--arrivals", columns=("timestamp",))
    instants: list[datetime] = []
    for row in rows:
        at = row.instant("timestamp")
        if instants and at < instants[-1]:
            raise row.bad("timestamp", "sort the file by time, oldest first")
        instants.append(at)
    start = instants[0].replace(minute=0, second=0, microsecond=0)
    arrivals = tuple(
        _arrival(row, (at - start).total_seconds(), shape)
        for at, row in zip(instants, rows, strict=True)
    )
    return ArrivalHistory(
        source=str(path),
        arrivals=arrivals,
        start=start,
        length=(_ceil_hour(instants[-1]) - start).total_seconds(),
        is_dated=True,
        notes=(*_assumed(rows, shape), *_unread(rows)),
    )


def _arrival(row: HistoryRow, at: float, shape: JobShape) -> Arrival:
    items = _items(row) or max(1, round(shape.items))
    seconds = row.optional_amount("item_seconds") or shape.item_seconds
    if items * seconds > _WORK_AT_MOST:
        raise row.bad("item_seconds", f"write at most {_WORK_AT_MOST / items:,.0f} s an item")
    return _job(at, items, seconds)


def _job(at: float, items: int, item_seconds: float) -> Arrival:
    """Return a job. Code of longer items than a job may be held for must keep a checkpoint."""
    keeps_state = item_seconds >= RELEASE_AFTER.total_seconds()
    return Arrival(at=at, items=items, item_seconds=item_seconds, keeps_state=keeps_state)


def _items(row: HistoryRow) -> int | None:
    items = row.count("items")
    if items is not None and items > _ITEMS_AT_MOST:
        raise row.bad("items", f"write at most {_ITEMS_AT_MOST:,}, and the rest as further jobs")
    return items


def read_queue(
    history: TrafficHistory, queue: str, shape: JobShape, *, until: datetime, days: float
) -> ArrivalHistory:
    """Return the jobs that were sent to a queue, each of the usual shape.

    Raises:
        BadInput: nothing was sent, or more than can be simulated.
    """
    # The current minute counts: a local system may have no other past.
    end = until + (datetime.min.replace(tzinfo=UTC) - until) % _MINUTE
    start = end - timedelta(days=days)
    sent = history.sent(queue, since=start, until=end)
    messages = sum(period.messages for period in sent)
    if not messages:
        remedy = f"nothing was sent to it in {say_count(f'{days:g}', 'day')}; give a file"
        raise BadInput("--arrivals cloudwatch", queue, remedy)
    if messages > ROWS_AT_MOST:
        raise BadInput("--days", days, f"take fewer: {messages:,} messages came to {queue}")
    arrivals = _spread(sent, start, shape)
    return ArrivalHistory(
        source=f"{say_count(messages, 'message')} that came to {queue} in "
        f"{say_count(f'{days:g}', 'day')}",
        arrivals=arrivals,
        start=start,
        length=days * DAY,
        is_dated=True,
        notes=(*_silence(arrivals[0].at / DAY, days), *_assumed((), shape)),
    )


def _silence(silent: float, days: float) -> Iterator[str]:
    """Say that nothing came for days: the queue may be newer, and a month would look cheap."""
    if silent >= 1.0:
        whole = say_count(f"{days:g}", "day")
        said = f"nothing was sent in the first {silent:.3g} of {whole}, which count"
        rest = math.ceil((days - silent) * 10) / 10
        yield f"{said}; of a queue that is newer take --days {rest:g}"


def _spread(sent: Sequence[Sent], start: datetime, shape: JobShape) -> tuple[Arrival, ...]:
    """Return the messages of each period, evenly over it."""
    items = max(1, round(shape.items))
    return tuple(
        _job(
            max((one.at - start).total_seconds(), 0.0) + one.period * (number + 0.5) / one.messages,
            items,
            shape.item_seconds,
        )
        for one in sent
        for number in range(one.messages)
    )


def _assumed(rows: Sequence[HistoryRow], shape: JobShape) -> Iterator[str]:
    """Yield what was assumed because the rows do not say it; without rows, everything."""
    items = say_count(max(1, round(shape.items)), "item")
    taken = {
        "items": f"a job is taken for {items}",
        "item_seconds": f"an item is taken for {shape.item_seconds:.3g} s on {shape.reference}",
    }
    for column, said in taken.items():
        silent = sum(row.is_empty(column) for row in rows)
        if silent == len(rows):
            yield f"{said} ({shape.source})"
        elif silent:
            share = f"in {silent:,} of {len(rows):,} rows, which do not say it"
            yield f"{said} {share} ({shape.source})"


def _unread(rows: Sequence[HistoryRow]) -> Iterator[str]:
    others = dict.fromkeys(name for row in rows for name in row.cells if name not in _COLUMNS)
    if others:
        yield f"nothing is read from other columns: {', '.join(others)}"


def _ceil_hour(at: datetime) -> datetime:
    floor = at.replace(minute=0, second=0, microsecond=0)
    return floor + _HOUR
