"""Tell of jobs whose messages are gone: a purge of the queue deletes them and tells nobody."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.control.alert.tell import measure, of_workload, remember, tell
from spindown.domain.alert import Alert, review
from spindown.error import SpindownError
from spindown.ledger import Ledger, LedgerView
from spindown.port import ControlPorts, ObjectStore
from spindown.reason_text import say_count

#: Name of the alert.
LOST = "lost-jobs"
#: Counting reads thousands of manifests. It is done each hour while there are lost jobs, so that
#: the alert lasts; a little less, since the hours of a schedule vary.
_NEXT = timedelta(hours=6) - timedelta(minutes=10)
_AGAIN = timedelta(minutes=50)
#: Longer than to the next count: SQS's numbers are approximate, and a single count may err.
_FOR = timedelta(minutes=40)


#: What reads a workload's part of the bucket.
_StoreOf = Callable[[str], ObjectStore]


def tell_lost(
    workload: str,
    ports: ControlPorts,
    count: Callable[[str, ControlPorts, _StoreOf], int],
    store_of: _StoreOf,
) -> int:
    """Tell people that jobs of a workload have no message; return how many, at least.

    Args:
        workload: whose.
        ports: the world.
        count: returns how many jobs have no message, at least (``job.lost_message.count_recent``).
        store_of: a workload's part of the bucket.
    """
    ledger, now = Ledger(ports.table, workload), ports.clock.now()
    view = ledger.read()
    lost = _count(view, ledger, now, lambda: count(workload, ports, store_of))
    known = {name: state for name, state in view.alerts.items() if name == LOST}
    found = review(list(_alerts(workload, lost)), known, now)
    for write in remember(found, ledger):
        ledger.write(write)
    untold = tell(found, workload, ports, ledger)
    ports.metrics.emit(measure(found.standing, untold, of_workload(ports.name, workload)))
    return lost


def _count(view: LedgerView, ledger: Ledger, now: datetime, count: Callable[[], int]) -> int:
    """Return how many jobs are lost, 0 if it is not time to count them.

    When to count again is noted before: a count that takes all the time or memory there is must
    not be what each hour ends with.
    """
    if view.backlog.count_lost_at is not None and now < view.backlog.count_lost_at:
        return 0
    ledger.write(ledger.change(rows.BACKLOG, {"count_lost_at": now + _NEXT}))
    again = ledger.change(rows.BACKLOG, {"count_lost_at": now + _AGAIN})
    try:
        lost = count()
    except SpindownError:
        ledger.write(again)
        raise
    if lost:
        ledger.write(again)
    return lost


def _alerts(workload: str, lost: int) -> Iterator[Alert]:
    if lost:
        are, have, them = ("is", "has", "it") if lost == 1 else ("are", "have", "them")
        yield Alert(
            name=LOST,
            says=f"At least {say_count(lost, 'job')} of {workload} {are} not done and {have} no "
            f"message any more, as after a purge of the queue. Nobody works on {them}.",
            remedy=f"run `spindown redrive {workload} --lost`, which sends {them} again; what was "
            "committed stays.",
            for_=_FOR,
        )
