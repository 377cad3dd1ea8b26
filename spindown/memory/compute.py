"""EC2 in memory: pools that run dry, quotas, idempotent launches, reclaims and a true bill.

Everything that the real one does seldom can be made to happen at will: refusals, answers that
are lost after their effect, instances that take a while to appear.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from spindown.app.port import (
    Clock,
    Identity,
    InstanceView,
    LaunchAnswer,
    LaunchedInstance,
    LaunchOverride,
    LaunchRequest,
    Refusal,
    RefusalKind,
)
from spindown.domain.offer import CapacityType, Pool
from spindown.error import NotFound, Unreachable
from spindown.memory.instance import (
    POWERED_OFF,
    SPOT_TERMINATION,
    TERMINATED_BY_CALL,
    Bill,
    MemoryInstance,
)
from spindown.memory.market import MemoryMarket
from spindown.memory.metadata import MemoryMetadata
from spindown.memory.pool import CapacityPools

#: EC2 remembers a ClientToken at least this long.
TOKEN_FOR = timedelta(hours=24)
#: EC2 describes a terminated instance for about this long.
DESCRIBED_FOR = timedelta(hours=1)
#: The interruption notice of a spot instance.
NOTICE = timedelta(minutes=2)

_ZERO = timedelta(0)


class MemoryCompute:
    """Compute in memory, on the types, zones, prices and quotas of a ``MemoryMarket``."""

    def __init__(
        self,
        clock: Clock,
        market: MemoryMarket,
        *,
        pending: timedelta = _ZERO,
        ending: timedelta = _ZERO,
        lag: timedelta = _ZERO,
        extra_price_per_hour: float = 0.0,
        template_tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Begin with no instance and with pools without end.

        Args:
            clock: the time that everything follows.
            market: what is offered, at what price, within what quotas.
            pending: how long an instance is pending.
            ending: how long it is shutting down, during which its quota is still used.
            lag: how long after its launch an instance is described for the first time.
            extra_price_per_hour: USD for root volume and public IPv4.
            template_tags: tags of each launch template by id; with it, another is refused.
        """
        self._clock = clock
        self._market = market
        self._pending = pending
        self._ending = ending
        self._lag = lag
        self._extra_price_per_hour = extra_price_per_hour
        self._template_tags = template_tags
        self._lock = threading.RLock()
        self._launched = 0
        self._instances: dict[str, MemoryInstance] = {}
        self._past_bills: list[Bill] = []
        self._tokens: dict[str, tuple[datetime, LaunchRequest, LaunchAnswer]] = {}
        self._pools = CapacityPools(market)
        #: For each of the next launches whose answer is lost: whether it is carried out.
        self._lost: deque[bool] = deque()

    # The port.

    def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """Give instances from the overrides in their order, once for each client token."""
        with self._lock:
            lost = self._lost.popleft() if self._lost else None
            if lost is False:
                raise Unreachable("no answer from EC2")
            answer = self._answer(request)
            if lost:
                raise Unreachable("no answer from EC2")
            return answer

    def instances(self, *, region: str, tags: Mapping[str, str]) -> Sequence[InstanceView]:
        """Return the instances that carry all these tags."""
        with self._lock:
            now = self._forget_past()
            return [
                instance.view(now)
                for instance in self._instances.values()
                if instance.region == region
                and now >= instance.launched_at + self._lag
                and tags.items() <= instance.tags.items()
            ]

    def instance(self, *, region: str, instance_id: str) -> InstanceView:
        """Return one instance."""
        with self._lock:
            now = self._forget_past()
            found = self._instances.get(instance_id)
            if found is None or found.region != region or now < found.launched_at + self._lag:
                raise NotFound(f"no instance {instance_id} in {region}")
            return found.view(now)

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> None:
        """Terminate instances; an unknown one is no error."""
        with self._lock:
            now = self._clock.now()
            for instance_id in instance_ids:
                found = self._instances.get(instance_id)
                if found is not None and found.region == region:
                    found.end(now, TERMINATED_BY_CALL)

    def reclaimed(self, *, region: str, instance_ids: Sequence[str]) -> frozenset[str]:
        """Return those that EC2 is taking away."""
        with self._lock:
            return frozenset(
                instance_id
                for instance_id in instance_ids
                if (found := self._instances.get(instance_id)) is not None
                and found.region == region
                and found.reclaimed_at is not None
            )

    # What EC2 does by itself, done by hand.

    def set_capacity(self, pool: Pool, instances: int | None) -> None:
        """Let a pool give so many more instances; 0: it is dry, None: it has no end."""
        with self._lock:
            self._pools.set_capacity(pool, instances)

    def refuse_next(
        self, kind: RefusalKind, code: str, *, pool: Pool | None = None, times: int = 1
    ) -> None:
        """Refuse the next tries of a pool, or without one the next whole requests."""
        with self._lock:
            self._pools.refuse_next(kind, code, pool=pool, times=times)

    def lose_next_answer(self, *, is_carried_out: bool = True) -> None:
        """Let the next launch end without an answer, after its effect or before it."""
        with self._lock:
            self._lost.append(is_carried_out)

    def reclaim(self, instance_id: str, *, notice: timedelta = NOTICE) -> datetime:
        """Take a spot instance away after a notice (none: at once); return when it goes.

        Raises:
            ValueError: it is on-demand, which EC2 does not take away.
        """
        with self._lock:
            found = self._instances[instance_id]
            if found.pool.capacity_type is not CapacityType.SPOT:
                raise ValueError(f"{instance_id} is not a spot instance")
            now = self._clock.now()
            if not found.has_ended(now):
                found.reclaimed_at = now
                found.end(now + notice, SPOT_TERMINATION)
                if notice:
                    found.metadata.announce_interruption(now + notice)
            return now + notice

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within; its template says that this terminates it."""
        with self._lock:
            self._instances[instance_id].end(self._clock.now(), POWERED_OFF)

    def metadata(self, instance_id: str) -> MemoryMetadata:
        """Return the metadata that an instance sees."""
        return self._instances[instance_id].metadata

    def bills(self) -> Sequence[Bill]:
        """Return what every instance that ever ran costs up to now."""
        with self._lock:
            now = self._forget_past()
            return [*self._past_bills, *(self._bill(i, now) for i in self._instances.values())]

    def _answer(self, request: LaunchRequest) -> LaunchAnswer:
        now = self._clock.now()
        while self._tokens and next(iter(self._tokens.values()))[0] + TOKEN_FOR < now:
            del self._tokens[next(iter(self._tokens))]
        if request.client_token in self._tokens:
            _, first, answer = self._tokens[request.client_token]
            if first == request:
                return answer
            return _refuse_all("IdempotentParameterMismatch", "the token has another request")
        injected = self._pools.injected(None)
        if injected is not None:
            return LaunchAnswer(refusals=(injected,))
        if not request.overrides or request.count < 1:
            return _refuse_all("MissingParameter", "overrides and a count of 1 are required")
        if self._template_tags is not None and request.template.id not in self._template_tags:
            return _refuse_all("InvalidLaunchTemplateId.NotFound", request.template.id)
        answer = self._fill(request)
        self._tokens[request.client_token] = (now, request, answer)
        return answer

    def _fill(self, request: LaunchRequest) -> LaunchAnswer:
        given: list[LaunchedInstance] = []
        refusals: list[Refusal] = []
        # Who launches by the thousand and never asks what runs would have all of them searched.
        now = self._forget_past()
        for override in request.overrides:
            pool = _pool(request, override)
            while len(given) < request.count:
                using = [
                    instance
                    for instance in self._instances.values()
                    if instance.region == request.region and not instance.is_terminated(now)
                ]
                refusal = self._pools.refusal(request.region, pool, using, now)
                if refusal is not None:
                    refusals.append(refusal)
                    break
                given.append(self._give(request, pool, override.subnet_id))
        return LaunchAnswer(instances=tuple(given), refusals=tuple(refusals))

    def _give(self, request: LaunchRequest, pool: Pool, subnet_id: str) -> LaunchedInstance:
        self._pools.take(pool)
        self._launched += 1
        now = self._clock.now()
        tags = {**(self._template_tags or {}).get(request.template.id, {}), **request.tags}
        given = LaunchedInstance(
            instance_id=f"i-{self._launched:017x}",
            instance_type=pool.instance_type,
            zone=pool.zone,
            capacity_type=pool.capacity_type,
        )
        self._instances[given.instance_id] = MemoryInstance(
            instance_id=given.instance_id,
            pool=pool,
            region=request.region,
            vcpus=self._pools.vcpus(pool),
            tags=tags,
            launched_at=now,
            running_at=now + self._pending,
            ending=self._ending,
            metadata=_metadata(given, request.region, tags),
            subnet_id=subnet_id,
        )
        return given

    def _forget_past(self) -> datetime:
        """Keep of instances that EC2 describes no more only their bill; return the time."""
        now = self._clock.now()
        past = [i for i in self._instances.values() if i.is_terminated(now - DESCRIBED_FOR)]
        for instance in past:
            self._past_bills.append(self._bill(instance, now))
            del self._instances[instance.instance_id]
        return now

    def _bill(self, instance: MemoryInstance, now: datetime) -> Bill:
        return instance.bill(now, self._market, self._extra_price_per_hour)


def _pool(request: LaunchRequest, override: LaunchOverride) -> Pool:
    return Pool(
        instance_type=override.instance_type,
        zone=override.zone,
        capacity_type=request.capacity_type,
    )


def _metadata(given: LaunchedInstance, region: str, tags: Mapping[str, str]) -> MemoryMetadata:
    return MemoryMetadata(
        Identity(
            instance_id=given.instance_id,
            instance_type=given.instance_type,
            region=region,
            zone=given.zone,
            capacity_type=given.capacity_type,
            tags=tags,
        )
    )


def _refuse_all(code: str, message: str) -> LaunchAnswer:
    refusal = Refusal(kind=RefusalKind.ACCOUNT, code=code, message=message)
    return LaunchAnswer(refusals=(refusal,))
