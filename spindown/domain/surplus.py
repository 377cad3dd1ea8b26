"""Which machines end first when there are more, or dearer ones, than the policy allows by now.

A limit may be lowered while machines run, and a spot price may rise. What no longer fits takes no
new job and ends after those in hand.
"""

from collections.abc import Collection, Sequence

from spindown.domain.budget import ROUNDING
from spindown.domain.fleet import Worker
from spindown.domain.learning import Knowledge, worker_throughput
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.wasted_work import is_ever_allowed

#: Above a ceiling of dollars by less than this share nothing is ended: a price that wobbles about
#: the ceiling would end machines and launch them again.
_ABOVE = 0.1


def find_surplus(
    workers: Sequence[Worker],
    *,
    for_particular_jobs: Collection[str],
    knowledge: Knowledge,
    policy: Policy,
) -> dict[str, Reason]:
    """Return instance id -> why a worker must end; no more than must.

    A machine dearer than the ceilings allow must. Of the rest those stay that cost least per item,
    of equal ones the youngest, as long as number and dollars an hour allow.

    Args:
        workers: of one workload; those that leave anyway do not count.
        for_particular_jobs: those launched for particular jobs that have none yet. They do not
            count: the worker that holds such a job leaves as soon as they are up.
        knowledge: how fast workers are.
        policy: in force.
    """
    staying = [worker for worker in workers if worker.takes_jobs]
    dear = {w.instance_id: _too_dear(w) for w in staying if not _is_allowed(w, policy)}
    counted = [w for w in staying if w.instance_id not in {*dear, *for_particular_jobs}]
    present, most = sum(w.price_per_hour for w in counted), policy.max_dollars_per_hour
    is_over = most is not None and present > most * (1.0 + _ABOVE)
    if not is_over and len(counted) <= policy.max_workers:
        return dear
    counted.sort(key=lambda w: w.launched_at, reverse=True)
    counted.sort(key=lambda w: _item_cost(w, knowledge, policy))
    kept, dollars, found = 0, 0.0, dear
    for worker in counted:
        after = dollars + worker.price_per_hour
        if kept >= policy.max_workers:
            about = {"max_workers": policy.max_workers, "workers": len(counted)}
            found[worker.instance_id] = Reason(ReasonCode.SURPLUS_WORKER, about)
        elif most is not None and is_over and after > most * (1.0 + ROUNDING):
            spent = {"max_dollars_per_hour": most, "dollars_per_hour": present}
            found[worker.instance_id] = Reason(ReasonCode.SURPLUS_DOLLARS, spent)
        else:
            kept, dollars = kept + 1, after
    return found


def _is_allowed(worker: Worker, policy: Policy) -> bool:
    price = worker.price_per_hour / (1.0 + _ABOVE)
    return is_ever_allowed(policy, worker.capacity_type, price, worker.gpu_count)


def _item_cost(worker: Worker, knowledge: Knowledge, policy: Policy) -> float:
    return worker.price_per_hour / worker_throughput(knowledge, worker, policy).items_per_hour


def _too_dear(worker: Worker) -> Reason:
    return Reason(ReasonCode.TOO_DEAR_BY_NOW, {"price_per_hour": worker.price_per_hour})
