"""What the control plane's use cases are given: their ports, and what they may remember.

Everything here is passed in by an entry point (``spindown.aws.wiring``, a test); a function's
container keeps one ``ControlPorts`` from one event to the next.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Generic, TypeVar

from spindown.contract.settings import DeploymentSettings
from spindown.port import (
    Advisor,
    Clock,
    Compute,
    JobQueue,
    Market,
    MetricSink,
    Nobody,
    ObjectStore,
    SettingsStore,
    Table,
    Topic,
)

T = TypeVar("T")

#: How long an answer is used again. Settings: an edit by ``spindown policy`` is seen at once
#: all the same, through the ledger. Prices: what the offers are ranked by may be this old.
SETTINGS_FOR = timedelta(minutes=5)
CATALOGUE_FOR = timedelta(minutes=10)
SPOT_PRICES_FOR = timedelta(minutes=5)


@dataclass(slots=True)
class Cache:
    """Answers kept between events, each with the time at which it was read. Not thread-safe."""

    _kept: dict[tuple[str, ...], tuple[datetime, object]] = field(default_factory=dict)

    def recall(self, kind: "AnswerKind[T]", key: str, now: datetime, read: Callable[[], T]) -> T:
        """Return what was read no longer ago than its kind allows, else read it now."""
        kept = self._kept.get((kind.name, key))
        if kept is None or now - kept[0] >= kind.keep_for or now < kept[0]:
            kept = (now, read())
            self._kept[kind.name, key] = kept
        return kept[1]  # type: ignore[return-value]  # written under the same kind

    def last(self, kind: "AnswerKind[T]", key: str) -> tuple[datetime, T] | None:
        """Return what was read last and when, however long ago; None: nothing yet."""
        kept = self._kept.get((kind.name, key))
        return None if kept is None else (kept[0], kept[1])  # type: ignore[return-value]  # as above

    def keep(self, kind: "AnswerKind[T]", key: str, now: datetime, value: T) -> T:
        """Remember what was read for another reason; return it."""
        self._kept[kind.name, key] = (now, value)
        return value

    def forget(self, kind: "AnswerKind[T]", key: str) -> None:
        """Read it anew the next time."""
        self._kept.pop((kind.name, key), None)


@dataclass(frozen=True, slots=True)
class AnswerKind(Generic[T]):
    """A kind of answer, and how long it may be used again."""

    name: str
    keep_for: timedelta


DEPLOYMENT: AnswerKind[DeploymentSettings] = AnswerKind("deployment", SETTINGS_FOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPorts:
    """The ports of reconcile, interrupt and offers."""

    clock: Clock
    random: Random
    table: Table
    objects: ObjectStore
    settings: SettingsStore
    compute: Compute
    market: Market
    metrics: MetricSink
    #: Queue URL -> queue.
    queue: Callable[[str], JobQueue]
    #: Whom to tell of what only a person can fix.
    topic: Topic = field(default_factory=Nobody)
    cache: Cache = field(default_factory=Cache)
    #: None: nothing published is read, and the prior of every pool stands.
    advisor: Advisor | None = None

    def deployment(self) -> DeploymentSettings:
        """Return the deployment's settings, remembered for a while."""
        return self.cache.recall(DEPLOYMENT, "", self.clock.now(), self.settings.deployment)
