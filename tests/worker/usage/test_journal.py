"""Records wait for others and go into few objects."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.usage import OBJECT_BYTES_MAX, UsageSeries, measured_key
from spindown.ec2sim import MemoryClock
from spindown.error import Unreachable
from spindown.memory.interception import PortCall, intercept
from spindown.memory.store import MemoryObjectStore
from spindown.worker.usage.journal import UsageJournal
from spindown.worker.usage.tally import SeriesMaker
from tests.builders import a_usage_record
from tests.slot import SlotWorld
from tests.work import WORKLOAD
from tests.worker.usage.machine import read_all

RECORD = a_usage_record(job_id="j", workload=WORKLOAD, started_at=MemoryClock().now())


class Shelf:
    """A journal over a store that can be broken."""

    def __init__(self, log: Any) -> None:
        self.clock = MemoryClock()
        self.store = MemoryObjectStore(self.clock)
        self.is_broken = False
        self.puts = 0
        self.journal = UsageJournal(intercept(self.store, "objects", self._pass), self.clock, log)

    def _pass(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        if self.is_broken:
            raise Unreachable("no S3")
        self.puts += 1
        return proceed()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(SlotWorld(tmp_path).log)


def test_records_wait_for_others_and_go_into_one_object(shelf: Shelf) -> None:
    for epoch in (1, 2):
        shelf.journal.add(replace(RECORD, epoch=epoch))
        shelf.clock.advance(timedelta(minutes=4))
        shelf.journal.write_if_due()
        assert shelf.puts == epoch - 1
    shelf.journal.write_if_due()
    shelf.journal.write()
    assert shelf.puts == 1
    assert [record.epoch for record in read_all(shelf.store)] == [1, 2]


def test_many_records_do_not_wait(shelf: Shelf) -> None:
    for epoch in range(400):
        shelf.journal.add(replace(RECORD, epoch=epoch))
    shelf.journal.write_if_due()
    assert shelf.puts == 1


def test_records_lie_below_the_day_of_their_write(shelf: Shelf) -> None:
    shelf.journal.add(RECORD)
    shelf.clock.advance(timedelta(days=2))
    shelf.journal.write()
    (found,) = shelf.store.list("")
    assert found.key == measured_key(RECORD, RECORD.started_at.date() + timedelta(days=2))


def test_no_object_is_larger_than_readers_take(shelf: Shelf) -> None:
    points = tuple(9999.1234 for _ in range(SeriesMaker.POINTS))
    columns = {one.name: points for one in fields(UsageSeries)}
    largest = replace(RECORD, series=UsageSeries(**columns))
    for epoch in range(900):
        shelf.journal.add(replace(largest, epoch=epoch))
    shelf.journal.write()
    assert len(read_all(shelf.store)) == 900
    assert max(found.bytes for found in shelf.store.list("")) < OBJECT_BYTES_MAX


def test_what_cannot_be_written_waits_for_the_next_time(shelf: Shelf) -> None:
    shelf.is_broken = True
    shelf.journal.add(RECORD)
    shelf.journal.write()
    shelf.is_broken = False
    shelf.journal.write()
    assert read_all(shelf.store) == [RECORD]
