"""How many hours EC2 charges for a worker's share of the backlog: the heart of the ranking."""

from dataclasses import dataclass

from spindown.domain.checkpointing import interval_hours, slowdown
from spindown.domain.interruption import free_hours
from spindown.domain.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one new worker would do on one kind of instance."""

    #: Throughput of the whole instance, r.
    items_per_hour: float
    #: How many such workers share the backlog, n.
    workers: int
    #: Items of each, W.
    items: float
    #: Throughput of one slot: turns a checkpoint every N items into a time.
    slot_items_per_hour: float

    @property
    def work_hours(self) -> float:
        """Return the hours of useful work of each worker, W/r."""
        return self.items / self.items_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
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


#: A refund offsets at most this share of what interruptions cost in hours. The dollars are real,
#: but a reclaimed pool also costs waiting, which no dollar in the formula shows; and a pool must
#: never climb the list *because* it throws us out. Redone hours grow at least with the square
#: root of the rate (Young's interval) and the refund at most in proportion to it, so below one
#: half the sum never falls as the rate rises.
REFUND_SHARE_AT_MOST = 0.4


def bill(
    load: Load, *, rate: float, boot: float, idle: float, checkpoint: float, policy: Policy
) -> Bill:
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
        rate: interruptions per hour; 0 on demand.
        boot: billed hours of one boot, b.
        idle: hours of the idle tail, t.
        checkpoint: hours that computing stands still for one checkpoint, C.
        policy: the checkpoint interval.
    """
    work = load.work_hours
    calm = _slowdown(load, 0.0, boot, checkpoint, policy)
    if rate <= 0.0:
        return Bill(work=work, redo=work * (calm - 1.0), boot=boot, idle=idle, refund=0.0)
    factor = _slowdown(load, rate, boot, checkpoint, policy)
    free = free_hours(rate, work * factor + boot + idle)
    return Bill(
        work=work,
        redo=work * (factor - 1.0),
        boot=boot,
        idle=idle,
        refund=min(free, REFUND_SHARE_AT_MOST * work * max(0.0, factor - calm)),
    )


def _slowdown(load: Load, rate: float, boot: float, checkpoint: float, policy: Policy) -> float:
    interval = interval_hours(policy, cost_hours=checkpoint, rate=rate)
    if policy.checkpoint_items is not None:
        interval = min(interval, max(1, policy.checkpoint_items) / load.slot_items_per_hour)
    return slowdown(rate=rate, boot=boot, interval=interval, cost=checkpoint)
