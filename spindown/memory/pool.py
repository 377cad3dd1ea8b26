"""Whether a capacity pool gives an instance: on sale, within quota, not dry."""

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from spindown.app.port import Refusal, RefusalKind
from spindown.domain.offer import CapacityType, Pool
from spindown.memory.instance import MemoryInstance
from spindown.memory.market import MemoryMarket, quota_code


class CapacityPools:
    """Every capacity pool of EC2; one that nobody limited has no end."""

    def __init__(self, market: MemoryMarket) -> None:
        self._market = market
        self._capacity: dict[Pool, int] = {}
        #: None: of the whole request.
        self._injected: dict[Pool | None, deque[Refusal]] = {}

    def set_capacity(self, pool: Pool, instances: int | None) -> None:
        """Let a pool give so many more instances; None: it has no end."""
        if instances is None:
            self._capacity.pop(pool, None)
        else:
            self._capacity[pool] = instances

    def refuse_next(self, kind: RefusalKind, code: str, *, pool: Pool | None, times: int) -> None:
        """Put refusals in the way of the next tries of a pool (None: of whole requests)."""
        refusal = Refusal(
            kind=kind,
            code=code,
            message=f"{code}: refused on purpose",
            instance_type=pool.instance_type if pool else None,
            zone=pool.zone if pool else None,
        )
        self._injected.setdefault(pool, deque()).extend([refusal] * times)

    def injected(self, pool: Pool | None) -> Refusal | None:
        """Return and use up the next refusal put in the way."""
        waiting = self._injected.get(pool)
        return waiting.popleft() if waiting else None

    def refusal(
        self, region: str, pool: Pool, using: Sequence[MemoryInstance], now: datetime
    ) -> Refusal | None:
        """Return why the pool gives none; ``using`` is what counts against the quotas."""
        injected = self.injected(pool)
        if injected is not None:
            return injected
        if not self._is_sold(region, pool, now):
            return _refuse(pool, RefusalKind.CAPACITY, "Unsupported", "not sold in this zone")
        if self._is_over_quota(region, pool, using):
            is_spot = pool.capacity_type is CapacityType.SPOT
            code = "MaxSpotInstanceCountExceeded" if is_spot else "VcpuLimitExceeded"
            return _refuse(pool, RefusalKind.QUOTA, code, "the vCPU quota is full")
        if self._capacity.get(pool, 1) < 1:
            return _refuse(
                pool, RefusalKind.CAPACITY, "InsufficientInstanceCapacity", "the pool is dry"
            )
        return None

    def take(self, pool: Pool) -> None:
        """Take an instance out of a pool."""
        if pool in self._capacity:
            self._capacity[pool] -= 1

    def vcpus(self, pool: Pool) -> int:
        """Return the vCPUs of an instance of a pool."""
        found = self._market.instance_type(pool.instance_type)
        return 0 if found is None else found.vcpus

    def _is_sold(self, region: str, pool: Pool, now: datetime) -> bool:
        found = self._market.instance_type(pool.instance_type)
        return (
            found is not None
            and pool.capacity_type in found.capacity_types
            and self._market.is_offered(pool.instance_type, region=region, zone=pool.zone)
            and self._market.price_at(pool, region=region, at=now) is not None
        )

    def _is_over_quota(self, region: str, pool: Pool, using: Sequence[MemoryInstance]) -> bool:
        code = quota_code(pool.instance_type, pool.capacity_type)
        limit = self._market.limit_of(code, region=region)
        if limit is None:
            return False
        used = sum(
            instance.vcpus
            for instance in using
            if quota_code(instance.pool.instance_type, instance.pool.capacity_type) == code
        )
        return used + self.vcpus(pool) > limit


def _refuse(pool: Pool, kind: RefusalKind, code: str, message: str) -> Refusal:
    return Refusal(
        kind=kind, code=code, message=message, instance_type=pool.instance_type, zone=pool.zone
    )
