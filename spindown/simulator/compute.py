"""EC2 in a simulated world: instances that boot, are taken away, and end, by the scenario.

The rules of launching, quotas and billing are those of ``spindown.memory``; this adds what
happens by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from spindown.app.port import InstanceView, LaunchAnswer, LaunchedInstance, LaunchRequest
from spindown.contract.event import InstanceEvent, InterruptionWarning, StateChange
from spindown.domain.interruption import NOTICE
from spindown.domain.offer import CapacityType, Pool
from spindown.memory import MemoryCompute
from spindown.simulator.agenda import Agenda, Planned, Turn
from spindown.simulator.result import Recorder
from spindown.simulator.scenario import Delays, Steps, value_at

_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What a pool does to its instances."""

    reclaims_per_hour: float
    capacity: Steps


@dataclass(slots=True)
class _Living:
    pool: Pool
    region: str
    reclaim: Planned | None = None
    is_leaving: bool = False


class SimCompute:
    """Compute of a simulated world."""

    def __init__(  # noqa: PLR0913 - what happens to an instance, each part by its name
        self,
        inner: MemoryCompute,
        *,
        agenda: Agenda,
        random: Random,
        record: Recorder,
        fates: Mapping[Pool, Fate],
        delays: Delays,
        notice_missing: float,
        launched: Callable[[LaunchedInstance], None],
        gone: Callable[[str], None],
        warned: Callable[[str], None],
        tell: Callable[[InstanceEvent], None],
    ) -> None:
        """Begin with no instance.

        Args:
            inner: gives and bills the instances.
            agenda: where what happens by itself is planned.
            random: draws lives, and whom a falling capacity hits.
            record: where it is noted.
            fates: pool -> what it does.
            delays: how slow the world is.
            notice_missing: share of reclaims without a notice.
            launched: called with each new instance.
            gone: called when an instance has ended.
            warned: called when an instance's metadata announces its end.
            tell: gives an event to the functions.
        """
        self._inner = inner
        self._agenda = agenda
        self._random = random
        self._record = record
        self._fates = fates
        self._delays = delays
        self._notice_missing = notice_missing
        self._launched = launched
        self._gone = gone
        self._warned = warned
        self._tell = tell
        self._living: dict[str, _Living] = {}
        self._running: dict[Pool, int] = {}
        for pool, fate in fates.items():
            for begins, _ in fate.capacity:
                agenda.plan_at(begins, Turn.MARKET, lambda p=pool: self._settle(p))  # type: ignore[misc]
            self._settle(pool)

    @property
    def running(self) -> int:
        """Return how many instances there are."""
        return len(self._living)

    # The port.

    def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """Ask once; what is given lives from now on."""
        answer = self._inner.launch(request)
        self._record.counts["refusals"] += len(answer.refusals)
        for given in answer.instances:
            if given.instance_id not in self._living:
                self._live(given, request.region)
        return answer

    def instances(self, *, region: str, tags: Mapping[str, str]) -> Sequence[InstanceView]:
        """Return the instances that carry all these tags."""
        return self._inner.instances(region=region, tags=tags)

    def instance(self, *, region: str, instance_id: str) -> InstanceView:
        """Return one instance."""
        return self._inner.instance(region=region, instance_id=instance_id)

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> None:
        """Terminate instances."""
        self._inner.terminate(region=region, instance_ids=instance_ids)
        for instance_id in instance_ids:
            self._record.note("terminated", instance_id)
            self._end(instance_id)

    def reclaimed(self, *, region: str, instance_ids: Sequence[str]) -> frozenset[str]:
        """Return those that EC2 is taking away."""
        return self._inner.reclaimed(region=region, instance_ids=instance_ids)

    # What happens by itself.

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within."""
        if instance_id in self._living:
            self._inner.power_off(instance_id)
            self._end(instance_id)

    def _live(self, given: LaunchedInstance, region: str) -> None:
        pool = Pool(
            instance_type=given.instance_type, zone=given.zone, capacity_type=given.capacity_type
        )
        living = self._living[given.instance_id] = _Living(pool, region)
        self._running[pool] = self._running.get(pool, 0) + 1
        self._record.note("launched", f"{given.instance_id} {pool}")
        self._record.types[given.instance_type] += 1
        self._record.peak = max(self._record.peak, len(self._living))
        rate = self._fates[pool].reclaims_per_hour if pool in self._fates else 0.0
        if rate > 0.0:
            lives = self._random.expovariate(rate) * 3600.0
            living.reclaim = self._agenda.plan_in(
                lives, Turn.MARKET, lambda: self._reclaim(given.instance_id)
            )
        self._launched(given)

    def _reclaim(self, instance_id: str) -> None:
        living = self._living.get(instance_id)
        if living is None or living.is_leaving:
            return
        living.is_leaving = True
        if living.reclaim is not None:
            living.reclaim.call_off()
        self._record.note("reclaimed", instance_id)
        if self._random.random() < self._notice_missing:
            self._inner.reclaim(instance_id, notice=_ZERO)
            self._end(instance_id)
            return
        ends = self._inner.reclaim(instance_id, notice=NOTICE)
        warning = InterruptionWarning(
            instance_id=instance_id, region=living.region, at=self._agenda.now
        )
        self._agenda.plan_in(self._delays.event, Turn.EVENT, lambda: self._tell(warning))
        seen_in = self._random.random() * self._delays.metadata
        self._agenda.plan_in(seen_in, Turn.WORKER, lambda: self._warned(instance_id))
        self._agenda.plan(ends, Turn.END, lambda: self._end(instance_id))

    def _end(self, instance_id: str) -> None:
        living = self._living.pop(instance_id, None)
        if living is None:
            return
        if living.reclaim is not None:
            living.reclaim.call_off()
        self._running[living.pool] -= 1
        self._settle(living.pool)
        self._record.note("gone", instance_id)
        self._gone(instance_id)
        for wait, state in ((0.0, "shutting-down"), (self._delays.ending, "terminated")):
            event = StateChange(
                instance_id=instance_id,
                region=living.region,
                at=self._agenda.now + timedelta(seconds=wait),
                state=state,
            )
            self._agenda.plan_in(
                wait + self._delays.event,
                Turn.EVENT,
                lambda event=event: self._tell(event),  # type: ignore[misc]
            )

    def _settle(self, pool: Pool) -> None:
        """Let a pool give what its capacity leaves; take away what exceeds it."""
        fate = self._fates.get(pool)
        if fate is None or not fate.capacity:
            return
        most = value_at(fate.capacity, self._agenda.seconds)
        if most is None:
            return
        here = [i for i, living in self._living.items() if living.pool == pool]
        self._inner.set_capacity(pool, max(0, int(most) - len(here)))
        if pool.capacity_type is CapacityType.SPOT:
            staying = [i for i in here if not self._living[i].is_leaving]
            for _ in range(len(here) - int(most)):
                if staying:
                    self._reclaim(staying.pop(int(self._random.random() * len(staying))))
