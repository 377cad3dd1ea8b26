"""The life of instances: every change of state, in time order, with what the outside must hear.

pending -> running -> shutting-down -> terminated, or stopping -> stopped for an on-demand guest
that shuts down without the terminate behaviour. All methods run under the market's lock; calls
to the driver and events wait in `outbox` until it is released.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from spindown.domain.offer import CapacityType, Pool
from spindown.local.market.instance import (
    EmitEvent,
    InstanceDriver,
    MarketInstance,
    Notice,
    Reason,
    State,
)
from spindown.local.market.interruption import Doom, Interruptions
from spindown.local.market.scenario import Interruption, Scenario, Spread

#: The 95 % quantile of the standard normal distribution, in standard deviations.
_Z95 = 1.6449

Action = Callable[[datetime], None]


@dataclass(slots=True)
class Agenda:
    """What is due when; actions of one moment keep their order."""

    _entries: list[tuple[datetime, int, Action]] = field(default_factory=list)
    _order: "count[int]" = field(default_factory=count)

    def add(self, at: datetime, action: Action) -> None:
        """Carry out `action` once time has reached `at`; it is told that moment."""
        heapq.heappush(self._entries, (at, next(self._order), action))

    def carry_out(self, now: datetime) -> None:
        """Carry out everything due by `now`, including what that brings about."""
        while self._entries and self._entries[0][0] <= now:
            at, _, action = heapq.heappop(self._entries)
            action(at)


class Lives:
    """All instances, and the only code that changes them."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        started_at: datetime,
        driver: InstanceDriver,
        emit: EmitEvent,
        account: str,
    ) -> None:
        """Begin without instances; the scenario's fixed interruptions are on the agenda."""
        self.instances: dict[str, MarketInstance] = {}
        self.dry_until: dict[Pool, datetime] = {}
        self.agenda = Agenda()
        self.outbox: deque[Callable[[], None]] = deque()
        self._scenario = scenario
        self._driver = driver
        self._emit = emit
        self._account = account
        self._random = random.Random(f"{scenario.seed}/boot")
        self._interruptions = Interruptions(scenario.interruption, seed=scenario.seed)
        for at, rule in self._interruptions.appointments(started_at):
            self.agenda.add(at, partial(self._strike_many, rule))

    def begin(self, instance: MarketInstance) -> None:
        """Take a newly launched instance in as pending."""
        self.instances[instance.instance_id] = instance
        self._interruptions.enrol(instance)
        self._announce(instance)
        running_at = instance.launched_at + self._scenario.delay.pending
        self.agenda.add(running_at, partial(self._run, instance.instance_id))

    def change(self, instance_id: str, **changes: Any) -> MarketInstance:
        """Replace fields of an instance; a new state is announced."""
        before = self.instances[instance_id]
        after = replace(before, **changes)
        self.instances[instance_id] = after
        if after.state is not before.state:
            self._announce(after)
        return after

    def end(self, instance_id: str, reason: Reason, at: datetime) -> None:
        """Begin to terminate an instance; nothing happens to one that is already ending."""
        instance = self.instances[instance_id]
        if instance.state in {State.SHUTTING_DOWN, State.TERMINATED}:
            return
        ended_at = instance.ended_at or at
        self.change(instance_id, state=State.SHUTTING_DOWN, reason=reason, ended_at=ended_at)
        self.outbox.append(partial(self._driver.stop, instance_id))
        self.agenda.add(at + self._scenario.delay.ending, partial(self._finish, instance_id))

    def stop(self, instance_id: str, at: datetime) -> None:
        """Begin to stop an instance whose guest shut down; it keeps its disk and its id."""
        if not self.instances[instance_id].state.is_alive:
            return
        self.change(instance_id, state=State.STOPPING, reason=Reason.GUEST, ended_at=at)
        self.outbox.append(partial(self._driver.stop, instance_id))
        self.agenda.add(at + self._scenario.delay.ending, partial(self._halt, instance_id))

    def strike(
        self, instance_id: str, rule: Interruption, at: datetime, *, cause: str = "no-capacity"
    ) -> None:
        """Give an instance notice, or take it at once where the rule gives none."""
        instance = self.instances[instance_id]
        if not instance.state.is_alive or instance.notice is not None:
            return
        if rule.notice <= timedelta(0):
            self.change(instance_id, notice=Notice(given_at=at, due_at=at, cause=cause))
            self._take(instance_id, rule, at)
            return
        due_at = at + rule.notice
        self.change(instance_id, notice=Notice(given_at=at, due_at=due_at, cause=cause))
        if rule.event:
            self._tell(
                instance,
                "EC2 Spot Instance Interruption Warning",
                {"instance-id": instance_id, "instance-action": "terminate"},
            )
        self.agenda.add(due_at, partial(self._take, instance_id, rule))

    def _run(self, instance_id: str, at: datetime) -> None:
        if self.instances[instance_id].state is not State.PENDING:
            return
        instance = self.change(instance_id, state=State.RUNNING, running_at=at)
        boot = self._boot_time(instance.instance_type)
        self.agenda.add(at + boot, partial(self._start_guest, instance_id))
        for doom in self._interruptions.dooms(instance, running_at=at):
            self._foretell(doom, at)

    def _foretell(self, doom: Doom, now: datetime) -> None:
        if doom.rule.rebalance is not None:
            recommended_at = max(doom.strikes_at - doom.rule.rebalance, now)
            self.agenda.add(recommended_at, partial(self._recommend, doom.instance_id))
        self.agenda.add(doom.strikes_at, partial(self._strike_one, doom))

    def _strike_one(self, doom: Doom, at: datetime) -> None:
        is_alive = self.instances[doom.instance_id].state.is_alive
        if is_alive and self._interruptions.strike(doom.rule):
            self.strike(doom.instance_id, doom.rule, at)

    def _strike_many(self, rule: Interruption, at: datetime) -> None:
        alive = [one for one in self.instances.values() if one.state.is_alive]
        for instance in self._interruptions.targets(rule, alive):
            if self._interruptions.strike(rule):
                self.strike(instance.instance_id, rule, at)

    def _recommend(self, instance_id: str, at: datetime) -> None:
        instance = self.instances[instance_id]
        if instance.state.is_alive and instance.rebalance_at is None:
            self.change(instance_id, rebalance_at=at)
            self._tell(
                instance, "EC2 Instance Rebalance Recommendation", {"instance-id": instance_id}
            )

    def _take(self, instance_id: str, rule: Interruption, at: datetime) -> None:
        instance = self.instances[instance_id]
        if instance.state.is_alive:
            self.end(instance_id, Reason.RECLAIMED, at)
            if rule.dry_for:
                self.dry_until[instance.pool] = at + rule.dry_for

    def _start_guest(self, instance_id: str, _at: datetime) -> None:
        instance = self.instances[instance_id]
        if instance.state is State.RUNNING:
            self.outbox.append(partial(self._driver.start, instance))

    def _finish(self, instance_id: str, at: datetime) -> None:
        self.change(instance_id, state=State.TERMINATED, terminated_at=at)

    def _halt(self, instance_id: str, _at: datetime) -> None:
        if self.instances[instance_id].state is State.STOPPING:
            self.change(instance_id, state=State.STOPPED)

    def _boot_time(self, instance_type: str) -> timedelta:
        boot = self._scenario.type[instance_type].boot or self._scenario.delay.boot
        if isinstance(boot, Spread):
            # Log-normal: 40 s median and 90 s at 95 % give a sigma of ln(90/40) / 1.6449 = 0.49.
            deviations = self._random.gauss(0.0, 1.0) / _Z95
            return boot.median * math.pow(boot.p95 / boot.median, deviations)
        return boot

    def _announce(self, instance: MarketInstance) -> None:
        self._tell(
            instance,
            "EC2 Instance State-change Notification",
            {"instance-id": instance.instance_id, "state": instance.state.value},
        )

    def _tell(self, instance: MarketInstance, detail_type: str, detail: dict[str, str]) -> None:
        arn = f"arn:aws:ec2:{instance.region}:{self._account}:instance/{instance.instance_id}"
        self.outbox.append(
            partial(
                self._emit,
                source="aws.ec2",
                detail_type=detail_type,
                detail=detail,
                resources=[arn],
            )
        )

    def notify_outbid(self, price_of: Callable[[Pool], float | None], at: datetime) -> None:
        """Give notice to running spot instances whose maximum price is below the price now."""
        outbid = Interruption(after=timedelta(0))
        for instance in tuple(self.instances.values()):
            if (
                instance.capacity_type is CapacityType.SPOT
                and instance.state.is_alive
                and instance.notice is None
                and (price_of(instance.pool) or 0.0) > (instance.max_price or float("inf"))
            ):
                self.strike(instance.instance_id, outbid, at, cause="price")
