"""One EC2 instance in memory: its life by the clock, and what it truly costs.

Worked example of a bill: running from 10:00 to 11:30 at a spot price of $0.40 at 10:00 and
$0.60 at 11:00 costs 0.40 + 0.60 / 2 = $0.70, since an hour is sold at the price of its
beginning. Had EC2 reclaimed it before 11:00 it would have cost nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.app.port import InstanceView
from spindown.domain.offer import Pool
from spindown.memory.market import MemoryMarket
from spindown.memory.metadata import MemoryMetadata

#: StateReason.Code, as EC2 gives it.
SPOT_TERMINATION = "Server.SpotInstanceTermination"
POWERED_OFF = "Client.InstanceInitiatedShutdown"
TERMINATED_BY_CALL = "Client.UserInitiatedShutdown"

#: A spot instance that EC2 itself takes within this long of its start is free (AWS, "Billing
#: for interrupted Spot Instances"); any other is billed by the second, at least a minute.
FREE_WITHIN = timedelta(hours=1)
BILLED_AT_LEAST = timedelta(minutes=1)

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one instance costs up to now, USD."""

    instance_id: str
    pool: Pool
    #: Time run, whether charged or not.
    seconds: float
    instance_dollars: float
    #: Root volume and public IPv4: never free.
    extra_dollars: float
    is_free: bool

    @property
    def dollars(self) -> float:
        """Return the whole cost."""
        return self.instance_dollars + self.extra_dollars


@dataclass(slots=True, eq=False, kw_only=True)
class MemoryInstance:
    """An instance; its state follows from its times."""

    instance_id: str
    pool: Pool
    region: str
    vcpus: int
    tags: dict[str, str]
    launched_at: datetime
    running_at: datetime
    #: How long it is shutting down.
    ending: timedelta
    metadata: MemoryMetadata
    subnet_id: str = ""
    #: When it begins to shut down, which may lie ahead.
    ends_at: datetime | None = None
    state_reason: str = ""
    #: Since when EC2 is taking it away.
    reclaimed_at: datetime | None = None

    def end(self, at: datetime, reason: str) -> None:
        """Let it shut down at an instant, unless it does so before."""
        if self.ends_at is None or at < self.ends_at:
            self.ends_at = at
            self.state_reason = reason

    def state(self, now: datetime) -> str:
        """Return EC2's name of its state."""
        if self.ends_at is not None and now >= self.ends_at:
            return "terminated" if now >= self.ends_at + self.ending else "shutting-down"
        return "pending" if now < self.running_at else "running"

    def has_ended(self, now: datetime) -> bool:
        """Tell whether it has begun to shut down."""
        return self.ends_at is not None and now >= self.ends_at

    def is_terminated(self, now: datetime) -> bool:
        """Tell whether it is gone."""
        return self.ends_at is not None and now >= self.ends_at + self.ending

    def view(self, now: datetime) -> InstanceView:
        """Return it as EC2 describes it."""
        return InstanceView(
            instance_id=self.instance_id,
            instance_type=self.pool.instance_type,
            region=self.region,
            zone=self.pool.zone,
            capacity_type=self.pool.capacity_type,
            state=self.state(now),
            launched_at=self.launched_at,
            tags=dict(self.tags),
            state_reason=self.state_reason if self.has_ended(now) else "",
            subnet_id="" if self.is_terminated(now) else self.subnet_id,
        )

    def bill(self, now: datetime, market: MemoryMarket, extra_price_per_hour: float) -> Bill:
        """Return what it costs up to ``now``."""
        until = self.ends_at if self.ends_at is not None and self.ends_at < now else now
        run = max(until - self.running_at, timedelta(0))
        is_free = (
            self.has_ended(now) and self.state_reason == SPOT_TERMINATION and run < FREE_WITHIN
        )
        charged = max(run, BILLED_AT_LEAST) if run and not is_free else timedelta(0)
        kept = until - self.launched_at
        return Bill(
            instance_id=self.instance_id,
            pool=self.pool,
            seconds=run.total_seconds(),
            instance_dollars=self._charge(charged, market),
            extra_dollars=kept / _HOUR * extra_price_per_hour,
            is_free=is_free,
        )

    def _charge(self, charged: timedelta, market: MemoryMarket) -> float:
        dollars, price, begins = 0.0, 0.0, self.running_at
        left = charged
        while left > timedelta(0):
            now_due = market.price_at(self.pool, region=self.region, at=begins)
            # A price that is withdrawn while the instance runs stays what it was.
            price = price if now_due is None else now_due
            part = min(left, _HOUR)
            dollars += part / _HOUR * price
            left -= part
            begins += part
        return dollars
