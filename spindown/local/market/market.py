"""The EC2 of the local system: the model of ``spindown.ec2sim`` by a real clock, with guests.

Nothing here opens a socket, starts a thread or reads a clock of its own. Time passes when the
owner calls `run_due`: all that was due by then happens, in its order and dated to its moment.
What the outside must hear of (guests to start or stop, events) is delivered after the lock is
released, in order.
"""

import math
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from spindown.domain.offer import CapacityType, Pool
from spindown.ec2sim import (
    Agenda,
    CapacityLimit,
    Ec2,
    Ec2Bill,
    Ec2Fleet,
    Ec2Instance,
    EndReason,
    InstanceState,
    LaunchOrder,
    Turn,
)
from spindown.local.market.price import open_listings
from spindown.local.market.scenario import LognormalDuration, ReclaimRule, Scenario
from spindown.port import Refusal

#: The 95 % quantile of the standard normal distribution, in standard deviations.
_Z95 = 1.6449
_ZERO = timedelta(0)


class InstanceDriver(Protocol):
    """What runs the guests: in the local system the hypervisor.

    The market calls it without holding its own lock, in the order of the instance's life.
    """

    def start(self, instance_id: str, *, speed: float) -> None:
        """Boot the guest of an instance, which computes at a speed relative to 1.0."""

    def stop(self, instance_id: str) -> None:
        """Take the hardware away at once; a guest that already ended is fine."""

    def console(self, instance_id: str) -> str:
        """Return what the guest has printed so far."""


class NoGuests:
    """A driver for markets without guests: tests and price studies."""

    def start(self, instance_id: str, *, speed: float) -> None:
        """Do nothing: there is no guest."""

    def stop(self, instance_id: str) -> None:
        """Do nothing: there is no guest."""

    def console(self, instance_id: str) -> str:
        """Return an empty console."""
        del instance_id
        return ""


class EmitEvent(Protocol):
    """Put one event on the account's default EventBridge bus."""

    def __call__(
        self, *, source: str, detail_type: str, detail: Mapping[str, str], resources: list[str]
    ) -> None:
        """Deliver the event; the market does not wait for targets."""


def no_events(
    *, source: str, detail_type: str, detail: Mapping[str, str], resources: list[str]
) -> None:
    """Drop the event: the `EmitEvent` of markets that nobody listens to."""
    del source, detail_type, detail, resources


class LocalMarket:
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
        self.driver: InstanceDriver = driver or NoGuests()
        self.listings = open_listings(scenario, started_at=self.started_at)
        self._clock = clock
        self._emit = emit
        self._agenda = Agenda(self.started_at)
        # The start is part of the source: a market opened anew must not reuse instance ids.
        self._ids = random.Random(f"{scenario.seed}/{self.started_at.isoformat()}")
        self._boots = random.Random(f"{scenario.seed}/boot")
        self._ec2 = Ec2(
            listings=self.listings,
            now=self._agenda.clock.now,
            new_id=self.new_id,
            capacity=self._limit,
            pending=scenario.delay.pending,
            ending=scenario.delay.ending,
            lag=scenario.delay.visible,
            described_for=scenario.delay.forgotten,
            # An hour is played in seconds here, so prices count as they move.
            price_held_for=_ZERO,
        )
        self._rules = ReclaimDraws(scenario.interruption, seed=scenario.seed)
        for rule in scenario.interruption:
            if rule.at is not None:
                self._plan(self.started_at + rule.at, self._strike_many, rule)
        self._lock = threading.RLock()
        self._depth = 0
        self._outbox: deque[Callable[[], None]] = deque()
        self._delivering = threading.Lock()

    # Time.

    def now(self) -> datetime:
        """Return the time up to which the market has been played."""
        return self._agenda.now

    def run_due(self) -> None:
        """Carry out everything that is due; call it often, from any thread."""
        with self.held():
            self._reclaim_outbid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the market still at the present; deliver what happened once it is let go."""
        with self._lock:
            self._depth += 1
            try:
                if self._depth == 1:
                    self._agenda.run_to(self._clock())
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
            while self._outbox:
                self._outbox.popleft()()
        finally:
            self._delivering.release()

    def _plan(self, at: datetime, action: Callable[..., None], *about: object) -> None:
        self._agenda.plan(at, Turn.MARKET, partial(action, *about))

    # What there is.

    def instances(self) -> tuple[Ec2Instance, ...]:
        """Return every instance that ever was, oldest first."""
        with self._lock:
            return tuple(self._ec2.instances.values())

    def visible(self, region: str) -> dict[str, Ec2Instance]:
        """Return the instances that the describe calls show in a region now, by id."""
        with self.held():
            return {one.instance_id: one for one in self._ec2.described(region)}

    def find(self, instance_id: str) -> Ec2Instance | None:
        """Return an instance, or None when there never was one."""
        with self._lock:
            return self._ec2.instances.get(instance_id)

    def capacity_left(self, pool: Pool) -> float:
        """Return how many more instances the pool holds now."""
        with self.held():
            return self._ec2.capacity_left(pool)

    def bill(self) -> list[Ec2Bill]:
        """Return what AWS would charge for every instance so far, without volumes."""
        with self.held():
            return self._ec2.bills()

    def new_id(self, prefix: str) -> str:
        """Return a fresh EC2 id: the prefix and 17 hexadecimal digits."""
        return f"{prefix}-{self._ids.getrandbits(68):017x}"

    # What callers do.

    def create_fleet(
        self,
        orders: Sequence[LaunchOrder],
        *,
        count: int,
        region: str,
        request: object,
        token: str,
        tags: Mapping[str, str],
    ) -> Ec2Fleet | Refusal:
        """Launch up to `count` instances from the orders in turn, once for each token."""
        with self.held():
            known = len(self._ec2.instances)
            fleet = self._ec2.create_fleet(
                [self._with_max_price(order) for order in orders],
                count=count,
                region=region,
                request=request,
                token=token,
                tags=tags,
            )
            for instance in list(self._ec2.instances.values())[known:]:
                self._begin(instance)
            return fleet

    def _with_max_price(self, order: LaunchOrder) -> LaunchOrder:
        """Return the order with the maximum price that EC2 assumes: the on-demand price."""
        if order.max_price is not None or order.pool.capacity_type is not CapacityType.SPOT:
            return order
        on_demand = replace(order.pool, capacity_type=CapacityType.ON_DEMAND)
        price = self.listings.price_at(on_demand, region=order.region, at=self.now())
        return replace(order, max_price=price)

    def terminate(self, instance_id: str) -> Ec2Instance:
        """End an instance as TerminateInstances does; harmless when it has already ended."""
        with self.held():
            instance = self._ec2.instances[instance_id]
            if instance.state not in {InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED}:
                self._ec2.terminate(instance_id)
                self._ended(instance)
            return instance

    def guest_powered_off(self, instance_id: str) -> None:
        """Note that the guest shut itself down: EC2 terminates or stops the instance."""
        with self.held():
            instance = self._ec2.instances[instance_id]
            if instance.state.is_alive:
                self._ec2.power_off(instance_id)
                self._ended(instance)

    def interrupt(self, instance_id: str, *, notice: timedelta, dry_for: timedelta = _ZERO) -> None:
        """Take a spot instance back by hand, as a scenario's rule would."""
        rule = ReclaimRule(after=_ZERO, notice=notice, dry_for=dry_for)
        with self.held():
            self._strike(self._ec2.instances[instance_id], rule)

    # What happens by itself.

    def _limit(self, pool: Pool) -> CapacityLimit | None:
        """Return the tightest of the limits that the scenario sets to a pool now."""
        since = self.now() - self.started_at
        limits = [
            CapacityLimit(dry.capacity, dry.code)
            for dry in self.scenario.dry
            if dry.from_ <= since
            and (dry.until is None or since < dry.until)
            and dry.capacity_type in {"*", pool.capacity_type}
            and dry.covers(pool.instance_type, pool.zone)
        ]
        return min(limits, key=lambda limit: limit.most, default=None)

    def _begin(self, instance: Ec2Instance) -> None:
        self._rules.enrol(instance)
        self._announce(instance)
        self._plan(instance.runs_at, self._run, instance)

    def _run(self, instance: Ec2Instance) -> None:
        if instance.state is not InstanceState.RUNNING:
            return
        self._announce(instance)
        now = self.now()
        self._plan(now + self._boot_time(instance.instance_type), self._start_guest, instance)
        for rule, delay in self._rules.draw(instance):
            strikes_at = now + delay
            if rule.rebalance is not None:
                self._plan(strikes_at - rule.rebalance, self._recommend, instance)
            self._plan(strikes_at, self._strike_by_rule, instance, rule)

    def _start_guest(self, instance: Ec2Instance) -> None:
        if instance.state is InstanceState.RUNNING:
            speed = self.scenario.type[instance.instance_type].speed
            self._outbox.append(partial(self.driver.start, instance.instance_id, speed=speed))

    def _boot_time(self, instance_type: str) -> timedelta:
        boot = self.scenario.type[instance_type].boot or self.scenario.delay.boot
        if isinstance(boot, LognormalDuration):
            # 40 s median and 90 s at 95 % give a sigma of ln(90/40) / 1.6449 = 0.49.
            deviations = self._boots.gauss(0.0, 1.0) / _Z95
            return boot.median * math.pow(boot.p95 / boot.median, deviations)
        return boot

    def _strike_many(self, rule: ReclaimRule) -> None:
        for instance in list(self._ec2.instances.values()):
            if self._rules.is_meant(rule, instance):
                self._strike_by_rule(instance, rule)

    def _strike_by_rule(self, instance: Ec2Instance, rule: ReclaimRule) -> None:
        if instance.state.is_alive and self._rules.count_strike(rule):
            self._strike(instance, rule)

    def _strike(
        self, instance: Ec2Instance, rule: ReclaimRule, *, cause: str = "no-capacity"
    ) -> None:
        """Give an instance notice, or take it at once where the rule gives none."""
        if not instance.state.is_alive or instance.notice is not None:
            return
        due_at = self._ec2.reclaim(instance.instance_id, notice=rule.notice, cause=cause)
        if not rule.notice:
            self._take(instance, rule)
            return
        if rule.event:
            detail = {"instance-id": instance.instance_id, "instance-action": "terminate"}
            self._tell(instance, "EC2 Spot Instance Interruption Warning", detail)
        self._plan(due_at, self._take, instance, rule)

    def _take(self, instance: Ec2Instance, rule: ReclaimRule) -> None:
        """Carry a reclaim out, unless the instance has ended before."""
        if instance.reason is EndReason.RECLAIMED:
            self._ended(instance)
            if rule.dry_for:
                self._ec2.dry_up(instance.pool, until=self.now() + rule.dry_for)

    def _reclaim_outbid(self) -> None:
        """Give notice to spot instances whose maximum price is below the price now."""
        outbid, now = ReclaimRule(after=_ZERO), self.now()
        for instance in list(self._ec2.instances.values()):
            most = instance.order.max_price
            if instance.is_spot and most is not None and instance.state.is_alive:
                price = self.listings.price_at(instance.pool, region=instance.region, at=now)
                if price is not None and price > most:
                    self._strike(instance, outbid, cause="price")

    def _ended(self, instance: Ec2Instance) -> None:
        """Say that an instance has begun to end or to stop, and plan what follows."""
        self._announce(instance)
        self._outbox.append(partial(self.driver.stop, instance.instance_id))
        is_stop = instance.state is InstanceState.STOPPING
        last = InstanceState.STOPPED if is_stop else InstanceState.TERMINATED
        self._plan(self.now() + instance.ending, self._settle, instance, last)

    def _settle(self, instance: Ec2Instance, state: InstanceState) -> None:
        if instance.state is state:
            self._announce(instance)

    def _recommend(self, instance: Ec2Instance) -> None:
        if instance.state.is_alive and instance.rebalance_at is None:
            instance.rebalance_at = self.now()
            detail = {"instance-id": instance.instance_id}
            self._tell(instance, "EC2 Instance Rebalance Recommendation", detail)

    def _announce(self, instance: Ec2Instance) -> None:
        detail = {"instance-id": instance.instance_id, "state": instance.state.value}
        self._tell(instance, "EC2 Instance State-change Notification", detail)

    def _tell(self, instance: Ec2Instance, detail_type: str, detail: dict[str, str]) -> None:
        arn = f"arn:aws:ec2:{instance.region}:{self.account}:instance/{instance.instance_id}"
        self._outbox.append(
            partial(
                self._emit,
                source="aws.ec2",
                detail_type=detail_type,
                detail=detail,
                resources=[arn],
            )
        )


class ReclaimDraws:
    """When EC2 takes spot instances back: the scenario's rules, and how often each has struck.

    Draws from its own source of randomness, so other draws do not shift an instance's fate.
    """

    def __init__(self, rules: Sequence[ReclaimRule], *, seed: int) -> None:
        """Take the rules; `seed` feeds the Poisson ones."""
        self._rules = rules
        self._random = random.Random(f"{seed}/interruption")
        self._seen: Counter[int] = Counter()
        self._strikes: Counter[int] = Counter()
        self._meant: set[tuple[int, str]] = set()

    def enrol(self, instance: Ec2Instance) -> None:
        """Note a launch: `nth` counts launches, in their order."""
        if not instance.is_spot:
            return
        for index, rule in enumerate(self._rules):
            if rule.covers(instance.instance_type, instance.zone):
                self._seen[index] += 1
                if rule.nth is None or rule.nth == self._seen[index]:
                    self._meant.add((index, instance.instance_id))

    def is_meant(self, rule: ReclaimRule, instance: Ec2Instance) -> bool:
        """Tell whether a rule speaks of an instance."""
        return (self._rules.index(rule), instance.instance_id) in self._meant

    def draw(self, instance: Ec2Instance) -> Iterator[tuple[ReclaimRule, timedelta]]:
        """Yield what the rules without a fixed time have in store: after how long which strikes."""
        for rule in self._rules:
            if rule.at is None and self.is_meant(rule, instance):
                if rule.rate_per_hour is not None:
                    yield rule, timedelta(hours=self._random.expovariate(rule.rate_per_hour))
                elif rule.after is not None:
                    yield rule, rule.after

    def count_strike(self, rule: ReclaimRule) -> bool:
        """Count a strike; False once the rule has struck as often as it may."""
        index = self._rules.index(rule)
        if rule.count is not None and self._strikes[index] >= rule.count:
            return False
        self._strikes[index] += 1
        return True
