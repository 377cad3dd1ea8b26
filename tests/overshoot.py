"""By how much a month may cost more than its budget."""

from collections.abc import Iterable
from datetime import timedelta

from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.worker_lifecycle import POWER_OFF, hang_grace

_HOUR = timedelta(hours=1)


def overshoot_at_most(
    prices: Iterable[float],
    policy: Policy,
    *,
    longest_job: timedelta,
    until_idle: timedelta,
    stop_grace: timedelta = timedelta(0),
) -> float:
    """Return by how many USD a budget is exceeded at most, however wrong every estimate was.

    Each worker bills on, from the tick at which the budget was not used up yet: for a tick, the
    heartbeat by which it hears, and its power-off; and before that for what it still may do. That
    is all that waits (stop launches), a job that it had just taken (finish jobs in hand), or its
    last commit (stop). Refunds and charges that EC2 makes later are not in it.

    Worked: four machines at 0.20 USD/h, tick and heartbeat 60 s, jobs of 1 h at most, finish jobs
    in hand: 4 x 0.20 x (1 + 3/60) = 0.84 USD; stop: 4 x 0.20 x 3.5/60 = 0.047 USD.

    Args:
        prices: USD an hour of each worker that runs, in the whole deployment.
        policy: ``when_spent``, tick and heartbeat.
        longest_job: of any worker, from claim to release; ``job_timeout`` bounds it, else the 11
            hours for which a message is held.
        until_idle: until the last worker has ended for want of work.
        stop_grace: ``run.stop_grace`` of a program.
    """
    word = policy.tick + policy.heartbeat_interval + POWER_OFF
    spans = {
        WhenSpent.STOP_LAUNCHES: max(until_idle, word),
        WhenSpent.FINISH_JOBS: word + longest_job,
        WhenSpent.STOP: word + hang_grace(stop_grace),
    }
    return sum(prices) * (spans[policy.when_spent] / _HOUR)
