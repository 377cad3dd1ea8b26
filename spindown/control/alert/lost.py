"""Tell of jobs whose messages are gone: a purge of the queue deletes them and tells nobody."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.domain.alert import Alert
from spindown.ledger import Ledger, LedgerView

#: Name of the alert.
LOST = "lost-jobs"
#: Counting reads the manifest of every job that is not over. It is done each hour while there are
#: lost ones, so that the alert lasts; a little less, since the hours of a schedule vary.
_NEXT = timedelta(hours=6) - timedelta(minutes=10)
_AGAIN = timedelta(minutes=50)
#: Longer than to the next count: SQS's numbers are approximate, and a single count may err.
_FOR = timedelta(minutes=40)


def find_lost(
    workload: str, view: LedgerView, ledger: Ledger, now: datetime, count: Callable[[str], int]
) -> Iterator[Alert]:
    """Yield that jobs have no message, if it is time to count them.

    Args:
        workload: whose.
        view: its rows.
        ledger: where it is noted when to count again.
        now: the time.
        count: returns how many jobs have no message, at least.
    """
    if view.backlog.count_lost_at is not None and now < view.backlog.count_lost_at:
        return
    lost = count(workload)
    again = now + (_AGAIN if lost else _NEXT)
    ledger.write(ledger.change(rows.BACKLOG, {"count_lost_at": again}))
    if lost:
        number = "1 job" if lost == 1 else f"{lost:,} jobs"
        yield Alert(
            name=LOST,
            says=f"At least {number} of {workload} are not done and have no message any more, as "
            "after a purge of the queue. Nobody works on them.",
            remedy=f"run `spindown redrive {workload} --lost`, which sends them again; what was "
            "committed stays.",
            for_=_FOR,
        )
