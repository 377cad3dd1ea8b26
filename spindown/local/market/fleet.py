"""Instant fleets: one synchronous attempt over overrides, with one error for each that failed.

The allocation strategy orders the overrides; each is used for as long as its pool gives
instances. A dry pool therefore shows in `Errors` beside the instances of a later one, and a
fleet without any instance is still an answer with HTTP 200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from spindown.local.market.instance import MarketInstance
from spindown.local.market.market import LaunchOrder, Market
from spindown.local.market.pool import Refusal
from spindown.local.market.wire.error import ApiError

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One override, resolved: what would be launched, and what the answer echoes."""

    order: LaunchOrder
    specification: Mapping[str, Any]
    override: Mapping[str, Any]

    @property
    def echo(self) -> Answer:
        """Return the LaunchTemplateAndOverrides of an answer."""
        return {"LaunchTemplateSpecification": self.specification, "Overrides": self.override}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """An instant fleet that was made, whatever came of it."""

    fleet_id: str
    region: str
    created_at: datetime
    request: Mapping[str, Any]
    answer: Answer
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fleets:
    """Every fleet of a market, and the client tokens that were used for them."""

    market: Market
    _by_id: dict[str, Fleet] = field(default_factory=dict)
    _by_token: dict[tuple[str, str], Fleet] = field(default_factory=dict)

    def create(
        self,
        candidates: Sequence[Candidate],
        *,
        region: str,
        request: Mapping[str, Any],
        strategy: str,
        tags: Mapping[str, str],
    ) -> Answer:
        """Launch `TotalTargetCapacity` instances, or return what the same token got before."""
        token = request.get("ClientToken")
        with self.market.held():
            if token:
                earlier = self._by_token.get((region, token))
                if earlier is not None:
                    return _replayed(earlier, request)
            fleet_id = f"fleet-{self.market.new_id('')[1:]}"
            target = request["TargetCapacitySpecification"]["TotalTargetCapacity"]
            ordered = self._ordered(candidates, strategy)
            answer = {"FleetId": fleet_id, **self._filled(ordered, target, fleet_id)}
            fleet = Fleet(
                fleet_id=fleet_id,
                region=region,
                created_at=self.market.now(),
                request=request,
                answer=answer,
                tags=tags,
            )
            self._by_id[fleet_id] = fleet
            if token:
                self._by_token[region, token] = fleet
            return answer

    def find(self, fleet_id: str, *, region: str) -> Fleet:
        """Return a fleet; raise `ApiError` when there is none of this id in the region."""
        fleet = self._by_id.get(fleet_id)
        if fleet is None or fleet.region != region:
            message = f"The fleet ID '{fleet_id}' does not exist"
            raise ApiError("InvalidFleetId.NotFound", message)
        return fleet

    def _ordered(self, candidates: Sequence[Candidate], strategy: str) -> list[Candidate]:
        """Return the overrides in the order in which EC2 would use them."""
        now, prices = self.market.now(), self.market.prices
        last = float("inf")

        def price(candidate: Candidate) -> float:
            known = prices.current(candidate.order.pool, now)
            return last if known is None else known

        def priority(candidate: Candidate) -> float:
            stated = candidate.override.get("Priority")
            return last if stated is None else float(stated)

        def scarcity(candidate: Candidate) -> float:
            return -self.market.headroom(candidate.order.pool)

        if strategy in {"capacity-optimized-prioritized", "prioritized"}:
            return sorted(candidates, key=priority)
        if strategy == "capacity-optimized":
            return sorted(candidates, key=scarcity)
        return sorted(candidates, key=price)

    def _filled(self, ordered: Sequence[Candidate], target: int, fleet_id: str) -> Answer:
        instances: list[Answer] = []
        errors: list[Answer] = []
        wanted = target
        for candidate in ordered:
            launched, refusal = self._drawn(candidate, wanted, fleet_id)
            wanted -= len(launched)
            if launched:
                instances.append(_launched(candidate, launched))
            if refusal is not None:
                errors.append(_refused(candidate, refusal))
            if wanted == 0:
                break
        return {"Instances": instances, "Errors": errors}

    def _drawn(
        self, candidate: Candidate, wanted: int, fleet_id: str
    ) -> tuple[list[MarketInstance], Refusal | None]:
        """Launch up to `wanted` instances of one override, until its pool refuses."""
        order = candidate.order
        template = order.template
        order = replace(
            order,
            fleet_id=fleet_id,
            tags={
                **order.tags,
                "aws:ec2:fleet-id": fleet_id,
                "aws:ec2launchtemplate:id": template.template_id,
                "aws:ec2launchtemplate:version": str(template.version),
            },
        )
        launched: list[MarketInstance] = []
        while len(launched) < wanted:
            outcome = self.market.launch(order)
            if isinstance(outcome, Refusal):
                return launched, outcome
            launched.append(outcome)
        return launched, None


def _launched(candidate: Candidate, instances: Sequence[MarketInstance]) -> Answer:
    order = candidate.order
    return {
        "LaunchTemplateAndOverrides": candidate.echo,
        "Lifecycle": order.pool.capacity_type.value,
        "InstanceIds": [instance.instance_id for instance in instances],
        "InstanceType": order.pool.instance_type,
        "AvailabilityZone": order.pool.zone,
        "SubnetId": order.subnet.subnet_id,
    }


def _refused(candidate: Candidate, refusal: Refusal) -> Answer:
    return {
        "LaunchTemplateAndOverrides": candidate.echo,
        "Lifecycle": candidate.order.pool.capacity_type.value,
        "ErrorCode": refusal.code,
        "ErrorMessage": refusal.message,
    }


def _replayed(earlier: Fleet, request: Mapping[str, Any]) -> Answer:
    if earlier.request != request:
        raise ApiError(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in "
            "previous request(s).",
        )
    return earlier.answer
