"""A bill counts all that a span has cost, however long ago it was."""

from datetime import timedelta

import pytest

from spindown.cli.demo.bill import read_bill
from spindown.ledger import Ledger
from tests.control import WORKLOAD, ControlWorld

DAYS = 70


def test_days_that_the_ledger_has_put_away_are_in_the_bill() -> None:
    world = ControlWorld()
    end = world.now
    start = end - timedelta(days=DAYS - 1)
    ledger = Ledger(world.table, WORKLOAD)
    for back in range(DAYS + 20):
        world.put_day(end - timedelta(days=back), dollars=1.0, items=10)
    world.run(5)
    assert len(ledger.read().spend) < DAYS

    bill = read_bill(WORKLOAD, ledger=ledger, store=world.objects, start=start, end=end)

    assert bill.spend.dollars == pytest.approx(DAYS)
    assert bill.spend.items == 10 * DAYS
