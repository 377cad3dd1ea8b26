"""The market itself: every instance, its life in time, and the one lock around them.

Nothing here opens a socket, starts a thread or reads a clock of its own. Time passes when the
owner calls `run_due`: all that was due by then happens, in its order and dated to its moment.
What the outside must hear of (guests to start or stop, events) is delivered after the lock is
released, in order.
"""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType, Pool
from spindown.local.market.bill import BillLine, bill_line
from spindown.local.market.catalogue import instance_types
from spindown.local.market.instance import (
    EmitEvent,
    InstanceDriver,
    LaunchTemplate,
    MarketInstance,
    NoGuests,
    Reason,
    State,
    Subnet,
    no_events,
)
from spindown.local.market.life import Lives
from spindown.local.market.pool import Refusal, headroom, refusal
from spindown.local.market.price import PriceBook
from spindown.local.market.scenario import Interruption, Scenario

#: What EC2 says to an on-demand launch whose template tags spot requests
#: (github.com/aws/karpenter-provider-aws/issues/5850).
_TAGS_WITHOUT_REQUEST = Refusal(
    code="InvalidParameterValue",
    message="You cannot specify tags for Spot instances requests if there are no Spot instances "
    "requests being created by the request.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One instance to launch, with everything decided but whether EC2 has it."""

    pool: Pool
    subnet: Subnet
    template: LaunchTemplate
    image_id: str
    user_data: bytes = b""
    tags: Mapping[str, str] = field(default_factory=dict)
    max_price: float | None = None
    fleet_id: str | None = None


class Market:
    """The state of EC2 as far as Spindown touches it."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        clock: Callable[[], datetime],
        driver: InstanceDriver | None = None,
        emit: EmitEvent = no_events,
        account: str = "000000000000",
    ) -> None:
        """Open the market now, by `clock`; the scenario's times count from this moment."""
        self.scenario = scenario
        self.account = account
        self.started_at = clock()
        self.prices = PriceBook(scenario, started_at=self.started_at)
        self.driver: InstanceDriver = driver or NoGuests()
        self._clock = clock
        self._lock = threading.RLock()
        self._depth = 0
        self._delivering = threading.Lock()
        # The start is part of the source: a market opened anew must not reuse instance ids.
        self._random = random.Random(f"{scenario.seed}/{self.started_at.isoformat()}")
        self._lives = Lives(
            scenario,
            started_at=self.started_at,
            driver=self.driver,
            emit=emit,
            account=account,
        )

    def now(self) -> datetime:
        """Return the market's time."""
        return self._clock()

    def run_due(self) -> None:
        """Carry out everything that is due; call it often, from any thread."""
        with self.held():
            now = self._clock()
            self._lives.agenda.carry_out(now)
            self._lives.notify_outbid(lambda pool: self.prices.current(pool, now), now)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the market still; deliver what happened once it is let go."""
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                is_outermost = self._depth == 0
        if is_outermost:
            self._deliver()

    def _deliver(self) -> None:
        # One delivers at a time, so a guest is never stopped before it was started. What others
        # add meanwhile is delivered here too, at the latest by the next `run_due`.
        if not self._delivering.acquire(blocking=False):
            return
        try:
            while self._lives.outbox:
                self._lives.outbox.popleft()()
        finally:
            self._delivering.release()

    def instances(self, region: str | None = None) -> tuple[MarketInstance, ...]:
        """Return every instance that ever was, oldest first, optionally of one region."""
        with self._lock:
            return tuple(
                one for one in self._lives.instances.values() if region in {None, one.region}
            )

    def visible(self, region: str) -> dict[str, MarketInstance]:
        """Return the instances that the describe calls show in a region now, by id."""
        now, delay = self._clock(), self.scenario.delay
        return {
            one.instance_id: one
            for one in self.instances(region)
            if one.launched_at + delay.visible <= now
            and (one.terminated_at is None or now < one.terminated_at + delay.forgotten)
        }

    def find(self, instance_id: str) -> MarketInstance | None:
        """Return an instance's present state, or None when there never was one."""
        with self._lock:
            return self._lives.instances.get(instance_id)

    def headroom(self, pool: Pool) -> float:
        """Return how many more instances the pool holds now."""
        with self._lock:
            now = self._clock()
            if now < self._lives.dry_until.get(pool, now):
                return 0.0
            alive = [one for one in self._lives.instances.values() if one.state.is_alive]
            return headroom(self.scenario, pool, since_start=now - self.started_at, alive=alive)[0]

    def bill(self) -> tuple[BillLine, ...]:
        """Return what AWS would charge for every instance so far."""
        with self._lock:
            now = self._clock()
            return tuple(bill_line(one, self.prices, now=now) for one in self.instances())

    def new_id(self, prefix: str) -> str:
        """Return a fresh EC2 id: the prefix and 17 hexadecimal digits."""
        return f"{prefix}-{self._random.getrandbits(68):017x}"

    def launch(self, order: LaunchOrder) -> MarketInstance | Refusal:
        """Launch one instance, or say why EC2 would not."""
        with self.held():
            now, pool = self._clock(), order.pool
            is_spot = pool.capacity_type is CapacityType.SPOT
            if order.template.spot_request_tags and not is_spot:
                return _TAGS_WITHOUT_REQUEST
            price = self.prices.current(pool, now)
            max_price = order.max_price
            if max_price is None and is_spot:
                max_price = self.prices.on_demand(pool.instance_type, pool.zone[:-1])
            refused = refusal(
                self.scenario,
                pool,
                now=now,
                started_at=self.started_at,
                price=price,
                max_price=max_price,
                instances=self._lives.instances,
                dry_until=self._lives.dry_until,
            )
            if refused is not None:
                return refused
            instance = self._built(order, now=now, price=price or 0.0, max_price=max_price)
            self._lives.begin(instance)
            return instance

    def _built(
        self, order: LaunchOrder, *, now: datetime, price: float, max_price: float | None
    ) -> MarketInstance:
        pool, facts = order.pool, instance_types()[order.pool.instance_type]
        is_spot = pool.capacity_type is CapacityType.SPOT
        number = len(self._lives.instances)
        return MarketInstance(
            instance_id=self.new_id("i"),
            instance_type=pool.instance_type,
            region=pool.zone[:-1],
            zone=pool.zone,
            capacity_type=pool.capacity_type,
            state=State.PENDING,
            launched_at=now,
            image_id=order.image_id,
            subnet_id=order.subnet.subnet_id,
            vpc_id=order.subnet.vpc_id,
            private_ip=f"10.0.{number // 250 % 250}.{number % 250 + 4}",
            profile_arn=order.template.profile_arn,
            security_groups=order.template.security_groups,
            user_data=order.user_data,
            tags=order.tags,
            shutdown_behaviour=order.template.shutdown_behaviour,
            metadata_tags=order.template.metadata_tags,
            reservation_id=self.new_id("r"),
            fleet_id=order.fleet_id,
            spot_request_id=f"sir-{self._random.getrandbits(32):08x}" if is_spot else None,
            spot_request_tags=order.template.spot_request_tags,
            max_price=max_price if is_spot else None,
            price_per_hour=price,
            vcpus=facts.vcpus,
            memory_mib=facts.memory_mib,
            gpu_name=facts.gpu_name,
            gpu_count=facts.gpu_count,
            gpu_memory_mib=facts.gpu_memory_mib,
            speed=self.scenario.type[pool.instance_type].speed,
        )

    def terminate(self, instance_id: str) -> MarketInstance:
        """End an instance as TerminateInstances does; harmless when it has already ended."""
        with self.held():
            self._lives.end(instance_id, Reason.API_CALL, self._clock())
            return self._lives.instances[instance_id]

    def guest_powered_off(self, instance_id: str) -> None:
        """Note that the guest shut itself down: EC2 terminates or stops the instance.

        A one-time spot instance cannot be stopped, so it is terminated either way.
        """
        with self.held():
            instance = self._lives.instances[instance_id]
            is_spot = instance.capacity_type is CapacityType.SPOT
            if is_spot or instance.shutdown_behaviour == "terminate":
                self._lives.end(instance_id, Reason.GUEST, self._clock())
            else:
                self._lives.stop(instance_id, self._clock())

    def interrupt(
        self, instance_id: str, *, notice: timedelta, dry_for: timedelta = timedelta(0)
    ) -> None:
        """Take a spot instance back by hand, as a scenario's rule would."""
        rule = Interruption(after=timedelta(0), notice=notice, dry_for=dry_for)
        with self.held():
            self._lives.strike(instance_id, rule, self._clock())

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Replace an instance's tags."""
        with self.held():
            self._lives.change(instance_id, tags=dict(tags))

    def set_shutdown_behaviour(self, instance_id: str, behaviour: str) -> None:
        """Change what the guest's own shutdown does: "stop" or "terminate"."""
        with self.held():
            self._lives.change(instance_id, shutdown_behaviour=behaviour)
