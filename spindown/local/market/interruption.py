"""When EC2 takes spot instances back: the scenario's rules turned into dates.

Draws from its own source of randomness, so other draws do not shift an instance's fate.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType
from spindown.local.market.instance import MarketInstance
from spindown.local.market.scenario import Interruption


@dataclass(frozen=True, slots=True, kw_only=True)
class Doom:
    """One instance will be warned (or, with no notice, taken) at a moment under a rule."""

    instance_id: str
    strikes_at: datetime
    rule: Interruption


class Interruptions:
    """The rules of one scenario and how often each has struck."""

    def __init__(self, rules: Sequence[Interruption], *, seed: int) -> None:
        """Take the rules; `seed` feeds the Poisson ones."""
        self._rules = rules
        self._random = random.Random(f"{seed}/interruption")
        self._seen: Counter[int] = Counter()
        self._struck: Counter[int] = Counter()
        self._meant: dict[tuple[int, str], bool] = {}

    def enrol(self, instance: MarketInstance) -> None:
        """Note a launch: `nth` counts launches, in their order."""
        if instance.capacity_type is not CapacityType.SPOT:
            return
        for index, rule in enumerate(self._rules):
            if rule.covers(instance.instance_type, instance.zone):
                self._seen[index] += 1
                is_nth = rule.nth is None or rule.nth == self._seen[index]
                self._meant[index, instance.instance_id] = is_nth

    def dooms(self, instance: MarketInstance, *, running_at: datetime) -> Iterator[Doom]:
        """Yield what the running-time rules have in store for an instance that now runs."""
        for index, rule in enumerate(self._rules):
            if rule.at is not None or not self._meant.get((index, instance.instance_id), False):
                continue
            delay = rule.after
            if rule.rate_per_hour is not None:
                delay = timedelta(hours=self._random.expovariate(rule.rate_per_hour))
            if delay is not None:
                yield Doom(
                    instance_id=instance.instance_id, strikes_at=running_at + delay, rule=rule
                )

    def appointments(self, started_at: datetime) -> Iterator[tuple[datetime, Interruption]]:
        """Yield the rules with a fixed time."""
        for rule in self._rules:
            if rule.at is not None:
                yield started_at + rule.at, rule

    def targets(
        self, rule: Interruption, instances: Sequence[MarketInstance]
    ) -> Iterator[MarketInstance]:
        """Yield the instances that a rule with a fixed time means, oldest first."""
        index = self._rules.index(rule)
        for instance in sorted(instances, key=lambda one: one.launched_at):
            if self._meant.get((index, instance.instance_id), False):
                yield instance

    def strike(self, rule: Interruption) -> bool:
        """Count a strike; False once the rule has struck as often as it may."""
        index = self._rules.index(rule)
        if rule.count is not None and self._struck[index] >= rule.count:
            return False
        self._struck[index] += 1
        return True
