"""Records wait for others and go into few objects."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.ec2sim import MemoryClock
from spindown.error import Unreachable
from spindown.memory.interception import PortCall, intercept
from spindown.memory.store import MemoryObjectStore
from spindown.worker.usage.journal import UsageJournal
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
    for epoch in range(1000):
        shelf.journal.add(replace(RECORD, epoch=epoch))
    shelf.journal.write_if_due()
    assert shelf.puts == 1


def test_records_of_two_days_lie_in_two_partitions(shelf: Shelf) -> None:
    tomorrow = RECORD.started_at + timedelta(days=1)
    for started_at in (tomorrow, RECORD.started_at, tomorrow):
        shelf.journal.add(replace(RECORD, started_at=started_at))
    shelf.journal.write()
    objects = [shelf.store.get(found.key).data for found in shelf.store.list("")]
    assert [len(data.splitlines()) for data in objects] == [1, 2]


def test_what_cannot_be_written_waits_for_the_next_time(shelf: Shelf) -> None:
    shelf.is_broken = True
    shelf.journal.add(RECORD)
    shelf.journal.write()
    shelf.is_broken = False
    shelf.journal.write()
    assert read_all(shelf.store) == [RECORD]
