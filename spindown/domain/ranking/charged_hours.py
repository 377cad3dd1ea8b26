"""How many hours EC2 charges for a worker's share of the backlog: the heart of the ranking."""

from dataclasses import dataclass

from spindown.domain.commit_interval import interval_hours, slowdown
from spindown.domain.machine_count import Load
from spindown.domain.notice_time import free_hours
from spindown.domain.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHours:
    """The hours of one worker, by what they are for. ``refund`` is subtracted."""

    work: float
    #: Checkpoints, repeated work, and the boots that interruptions cost.
    redo: float
    boot: float
    idle: float
    refund: float

    @property
    def lived(self) -> float:
        """Return the hours that the worker runs."""
        return self.work + self.redo + self.boot + self.idle

    @property
    def charged(self) -> float:
        """Return the hours that EC2 charges."""
        return self.lived - self.refund


#: A refund offsets at most this share of the hours that interruptions cost. The refund is real, but
#: a reclaim also costs waiting time, which the formula does not contain; and a pool must never rank
#: higher *because* it is reclaimed more often. Redone hours grow at least with the square root of
#: the rate (Young's interval) and the refund at most in proportion to it. So with a share below one
#: half, the sum never falls as the rate rises.
REFUND_SHARE_AT_MOST = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What every worker of a ranking pays besides its work, in hours."""

    #: Billed hours of one boot, b.
    boot: float
    #: The idle tail, t.
    idle: float
    #: Time for which computing stands still during one checkpoint, C.
    checkpoint: float
    policy: Policy


def worker_hours(
    load: Load, overhead: Overhead, rate: float, factors: tuple[float, float] | None = None
) -> WorkerHours:
    """Return the hours of one worker: W/r F + b + t - free.

    Worked, a T4 at 0.23 USD/h: r = 1000, W = 2000 items, so 2 h of work; boot 0.05 h, idle tail
    0.05 h, checkpoint every 0.25 h at 0.005 h each.

    * Never interrupted: F = 1 + 0.005/0.25 = 1.02, hours 2.04 + 0.1 = 2.14,
      0.23 x 2.14 / 2000 = 0.00024610 USD an item.
    * 0.5 interruptions an hour: F = 1.112153, hours 2.224306 + 0.1 = 2.324306. EC2 does not
      charge 0.180408 h (see ``free_hours``), of which 0.4 x 2 x (1.112153 - 1.02) = 0.073722
      count. 0.23 x (2.324306 - 0.073722) / 2000 = 0.00025882 USD an item.

    Args:
        load: what the worker does.
        overhead: boot, idle tail and checkpoints.
        rate: interruptions per hour; 0 on demand.
        factors: ``pace(load, overhead, rate)`` when the caller has it already.
    """
    factor, calm = factors or pace(load, overhead, rate)
    work, boot, idle = load.work_hours, overhead.boot, overhead.idle
    return WorkerHours(
        work=work,
        redo=work * (factor - 1.0),
        boot=boot,
        idle=idle,
        refund=_refund(work, factor, calm, boot + idle, rate),
    )


def charged_hours(work: float, rest: float, rate: float, factors: tuple[float, float]) -> float:
    """Return ``worker_hours(...).charged`` from parts that a ranking has at hand.

    Args:
        work: hours of useful work, W/r.
        rest: boot and idle tail, hours.
        rate: interruptions per hour.
        factors: what ``pace`` says for that rate.
    """
    factor, calm = factors
    return work * factor + rest - _refund(work, factor, calm, rest, rate)


def _refund(work: float, factor: float, calm: float, rest: float, rate: float) -> float:
    if rate <= 0.0:
        return 0.0
    free = free_hours(rate, work * factor + rest)
    return min(free, REFUND_SHARE_AT_MOST * work * max(0.0, factor - calm))


def pace(load: Load, overhead: Overhead, rate: float) -> tuple[float, float]:
    """Return F at a rate of interruptions and F without any.

    It depends on the load only where checkpoints are counted in items.
    """
    calm = _slowdown(load, overhead, 0.0)
    return (_slowdown(load, overhead, rate) if rate > 0.0 else calm), calm


def _slowdown(load: Load, overhead: Overhead, rate: float) -> float:
    policy, cost = overhead.policy, overhead.checkpoint
    pace_of_slot = load.slot_items_per_hour
    interval = interval_hours(policy, cost_hours=cost, rate=rate, items_per_hour=pace_of_slot)
    return slowdown(rate=rate, boot=overhead.boot, interval=interval, cost=cost)
