"""EC2's port in memory, over the model of ``spindown.ec2sim``.

Everything that the real one does seldom can be made to happen at will: refusals, answers that
are lost after their effect, instances that take a while to appear.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import Pool
from spindown.ec2sim import (
    Ec2,
    Ec2Bill,
    Ec2Fleet,
    Ec2Instance,
    InstanceState,
    LaunchOrder,
    LaunchTemplate,
    Subnet,
)
from spindown.ec2sim.engine import Capacity
from spindown.error import NotFound, Unreachable
from spindown.memory.market import MemoryMarket
from spindown.memory.metadata import MemoryMetadata
from spindown.port import (
    Clock,
    Identity,
    InstanceView,
    LaunchAnswer,
    LaunchedInstance,
    LaunchRequest,
    Refusal,
    RefusalKind,
)

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
        capacity: Capacity | None = None,
    ) -> None:
        """Begin with no instance.

        Args:
            clock: the time that everything follows.
            market: what is offered, at what price, within what quotas.
            pending: how long an instance is pending.
            ending: how long it is shutting down, during which its quota is still used.
            lag: how long after its launch an instance is described for the first time.
            extra_price_per_hour: USD for root volume and public IPv4.
            template_tags: tags of each launch template by id; with it, another is refused.
            capacity: how many instances a pool may hold now; None: pools have no end.
        """
        #: The model, to be looked into and moved by hand.
        self.ec2 = Ec2(
            listings=market.listings,
            now=clock.now,
            capacity=capacity,
            pending=pending,
            ending=ending,
            lag=lag,
            extra_price_per_hour=extra_price_per_hour,
        )
        self._template_tags = template_tags
        self._lock = threading.RLock()
        self._metadata: dict[str, MemoryMetadata] = {}
        #: For each of the next launches whose answer is lost: whether it is carried out.
        self._lost: deque[bool] = deque()
        #: What EC2 refuses for good -> why.
        self._forbidden: dict[Pool, Refusal] = {}
        self.rehearsed: list[LaunchRequest] = []

    # The port.

    def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """Give instances from the overrides in their order, once for each client token."""
        with self._lock:
            lost = self._lost.popleft() if self._lost else None
            if lost is False:
                raise Unreachable("no answer from EC2")
            # Who launches by the thousand and never asks what runs would keep all of them.
            self.ec2.forget_past()
            answer = self._launch(request)
            if lost:
                raise Unreachable("no answer from EC2")
            return answer

    def rehearse(self, request: LaunchRequest) -> Refusal | None:
        """Note a launch without making it."""
        with self._lock:
            self.rehearsed.append(request)
            (order,) = _orders(request, {})
            return self._no_template(request) or self._forbidden.get(order.pool)

    def instances(self, *, region: str, tags: Mapping[str, str]) -> Sequence[InstanceView]:
        """Return the instances that carry all these tags."""
        with self._lock:
            self.ec2.forget_past()
            found = self.ec2.described(region)
            return [_view(one) for one in found if tags.items() <= one.tags.items()]

    def described(self, *, region: str, instance_ids: Sequence[str]) -> Sequence[InstanceView]:
        """Return those of these instances that are described."""
        with self._lock:
            found = (self.ec2.find_described(instance_id, region) for instance_id in instance_ids)
            return [_view(one) for one in found if one is not None]

    def instance(self, *, region: str, instance_id: str) -> InstanceView:
        """Return one instance."""
        with self._lock:
            found = self.ec2.find_described(instance_id, region)
            if found is None:
                raise NotFound(f"no instance {instance_id} in {region}")
            return _view(found)

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> Mapping[str, str]:
        """Terminate instances; an unknown one is no error."""
        with self._lock:
            known = self._known(region, instance_ids)
            for found in known:
                self.ec2.terminate(found.instance_id)
            states = {found.instance_id: _view(found).state for found in known}
            return {each: states.get(each, "") for each in instance_ids}

    def reclaimed(self, *, region: str, instance_ids: Sequence[str]) -> frozenset[str]:
        """Return those that EC2 is taking away."""
        with self._lock:
            known = self._known(region, instance_ids)
            return frozenset(one.instance_id for one in known if one.notice is not None)

    # What EC2 does by itself, done by hand.

    def set_capacity(self, pool: Pool, instances: int | None) -> None:
        """Let a pool give so many more instances; 0: it is dry, None: it has no end."""
        with self._lock:
            self.ec2.set_capacity(pool, instances)

    def refuse_next(
        self, kind: RefusalKind, code: str, *, pool: Pool | None = None, times: int = 1
    ) -> None:
        """Refuse the next tries of a pool, or without one the next whole requests."""
        refusal = Refusal(
            kind=kind,
            code=code,
            message=f"{code}: refused on purpose",
            instance_type=pool.instance_type if pool else None,
            zone=pool.zone if pool else None,
        )
        with self._lock:
            self.ec2.refuse_next(refusal, pool=pool, times=times)

    def forbid(self, pool: Pool, code: str) -> None:
        """Let rehearsals hear that the account may not have a pool."""
        with self._lock:
            self._forbidden[pool] = Refusal(kind=RefusalKind.ACCOUNT, code=code, message="no")

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
            due_at = self.ec2.reclaim(instance_id, notice=notice)
            if notice and self.ec2.instances[instance_id].ended_at is None:
                self.metadata(instance_id).announce_interruption(due_at)
            return due_at

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within; its template says that this terminates it."""
        with self._lock:
            self.ec2.power_off(instance_id)

    def metadata(self, instance_id: str) -> MemoryMetadata:
        """Return the metadata that an instance sees."""
        if instance_id not in self._metadata:
            self._metadata[instance_id] = _metadata(self.ec2.instances[instance_id])
        return self._metadata[instance_id]

    def bills(self) -> Sequence[Ec2Bill]:
        """Return what every instance that ever ran costs up to now."""
        with self._lock:
            return self.ec2.bills()

    def _known(self, region: str, instance_ids: Sequence[str]) -> list[Ec2Instance]:
        found = (self.ec2.instances.get(instance_id) for instance_id in instance_ids)
        return [one for one in found if one is not None and one.region == region]

    def _launch(self, request: LaunchRequest) -> LaunchAnswer:
        if absent := self._no_template(request):
            return LaunchAnswer(refusals=(absent,))
        fleet = self.ec2.create_fleet(
            _orders(request, (self._template_tags or {}).get(request.template.id, {})),
            count=request.count,
            region=request.region,
            request=request,
            token=request.client_token,
        )
        return LaunchAnswer(refusals=(fleet,)) if isinstance(fleet, Refusal) else _answer(fleet)

    def _no_template(self, request: LaunchRequest) -> Refusal | None:
        known = self._template_tags
        if known is None or request.template.id in known:
            return None
        code = "InvalidLaunchTemplateId.NotFound"
        return Refusal(kind=RefusalKind.ACCOUNT, code=code, message=request.template.id)


def _orders(request: LaunchRequest, template_tags: Mapping[str, str]) -> list[LaunchOrder]:
    template = LaunchTemplate(
        template_id=request.template.id,
        version=request.template.version,
        shutdown_behaviour="terminate",
        instance_tags=template_tags,
    )
    tags = {**template_tags, **request.tags}
    return [
        LaunchOrder(
            pool=Pool(
                instance_type=override.instance_type,
                zone=override.zone,
                capacity_type=request.capacity_type,
            ),
            region=request.region,
            subnet=Subnet(subnet_id=override.subnet_id, zone=override.zone),
            template=template,
            tags=tags,
        )
        for override in request.overrides
    ]


def _answer(fleet: Ec2Fleet) -> LaunchAnswer:
    return LaunchAnswer(
        instances=tuple(
            LaunchedInstance(
                instance_id=one.instance_id,
                instance_type=one.instance_type,
                zone=one.zone,
                capacity_type=one.capacity_type,
            )
            for part in fleet.parts
            for one in part.instances
        ),
        refusals=tuple(part.refusal for part in fleet.parts if part.refusal is not None),
    )


def _view(instance: Ec2Instance) -> InstanceView:
    state, reason, pool = instance.state, instance.reason, instance.order.pool
    return InstanceView(
        instance_id=instance.instance_id,
        instance_type=pool.instance_type,
        region=instance.order.region,
        zone=pool.zone,
        capacity_type=pool.capacity_type,
        state=state.value,
        launched_at=instance.launched_at,
        tags=dict(instance.tags),
        state_reason=reason.value if reason else "",
        subnet_id="" if state is InstanceState.TERMINATED else instance.order.subnet.subnet_id,
    )


def _metadata(instance: Ec2Instance) -> MemoryMetadata:
    return MemoryMetadata(
        Identity(
            instance_id=instance.instance_id,
            instance_type=instance.instance_type,
            region=instance.region,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            tags=instance.order.tags,
        )
    )
