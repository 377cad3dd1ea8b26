"""Read what AWS and Spindown send to the functions: alarm, tick, nudge, EC2's events, stacks.

Total: any JSON value becomes an event or a ContractError that says what is wrong with it.
Only what a use case needs is read; the rest of an envelope may change without notice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from spindown.contract.codec import decode_instant
from spindown.contract.name import SEPARATOR, queue_name
from spindown.domain.notice_time import deadline_after
from spindown.error import ContractError

TICK = "spindown.tick"
NUDGE = "spindown.nudge"
ALARM = "aws.cloudwatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUp:
    """Somebody asks for a tick of one workload; nothing else in the payload is trusted."""

    source: str
    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEvent:
    """Something happened to one instance, perhaps not one of ours."""

    instance_id: str
    region: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionWarning(InstanceEvent):
    """EC2 takes a spot instance back in two minutes (tests/events/spot_interruption.json)."""

    @property
    def deadline(self) -> datetime:
        """Return when EC2 takes the instance away; the event itself does not say."""
        return deadline_after(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRecommendation(InstanceEvent):
    """A spot instance is at elevated risk (tests/events/rebalance_recommendation.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange(InstanceEvent):
    """An instance has changed its state (tests/events/instance_state_change.json)."""

    #: pending, running, stopping, stopped, shutting-down, terminated.
    state: str

    @property
    def is_end(self) -> bool:
        """Tell whether the instance is gone for good."""
        return self.state in {"shutting-down", "terminated"}


class StackChange(StrEnum):
    """What CloudFormation does with a resource."""

    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What of a deployment goes: all of it, or some of its workloads and subnets."""

    deployment: str
    #: Its home region.
    home: str
    #: Where instances of it may run.
    regions: tuple[str, ...]
    workloads: tuple[str, ...]
    #: Every instance of the deployment, whatever its workload; else those of the workloads.
    is_whole: bool
    #: The ledger; "": there is none to stop launches with.
    table: str
    #: Subnets that are taken away, with whatever runs in them.
    subnets: tuple[str, ...] = ()
    #: Workloads that go on.
    staying: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEvent:
    """CloudFormation waits for us (tests/events/stack_delete.json)."""

    change: StackChange
    #: Where the answer goes, by an HTTP PUT.
    answer_to: str
    stack_id: str
    request_id: str
    logical_id: str
    #: "fleet" or "subnets".
    stands_for: str
    leaving: Leaving


def parse_wake_up(event: object, *, deployment: str) -> WakeUp:
    """Read a tick, a nudge or an alarm (tests/events/{tick,nudge,queue_alarm}.json).

    Raises:
        ContractError: it is none of these, or it names no queue of this deployment.
    """
    body = _mapping("event", event)
    source = _text("source", body.get("source"))
    if source in {TICK, NUDGE}:
        return WakeUp(source=source, workload=_text("workload", body.get("workload")))
    if source == ALARM:
        return WakeUp(source=source, workload=_alarmed_workload(body, deployment))
    raise ContractError("event.source", source, f"send {TICK}, {NUDGE} or a CloudWatch alarm")


def parse_instance_event(event: object) -> InstanceEvent:
    """Read one of the three EC2 events that Spindown subscribes to.

    Raises:
        ContractError: it is another event, or a field of it is missing or malformed.
    """
    body = _mapping("event", event)
    detail = _mapping("detail", body.get("detail"))
    instance_id = _text("detail.instance-id", detail.get("instance-id"))
    if not _INSTANCE_ID.fullmatch(instance_id):
        raise ContractError("event.detail.instance-id", instance_id, "send an EC2 instance id")
    region = _text("region", body.get("region"))
    at = _instant("time", body.get("time"))
    match body.get("detail-type"):
        case "EC2 Spot Instance Interruption Warning":
            return InterruptionWarning(instance_id=instance_id, region=region, at=at)
        case "EC2 Instance Rebalance Recommendation":
            return RebalanceRecommendation(instance_id=instance_id, region=region, at=at)
        case "EC2 Instance State-change Notification":
            state = _text("detail.state", detail.get("state"))
            return StateChange(instance_id=instance_id, region=region, at=at, state=state)
    raise ContractError("event.detail-type", body.get("detail-type"), "route only EC2's own events")


def parse_stack_event(event: object) -> StackEvent:
    """Read what CloudFormation sends about what stands for the fleet, or for its subnets.

    Raises:
        ContractError: it is something else.
    """
    body = _mapping("event", event)
    change = _text("RequestType", body.get("RequestType"))
    if change not in set(StackChange):
        raise ContractError("event.RequestType", change, "send Create, Update or Delete")
    new = _mapping("ResourceProperties", body.get("ResourceProperties"))
    old = _mapping("OldResourceProperties", body.get("OldResourceProperties") or new)
    of_subnets = "Subnets" in new
    leaving = _subnets_leaving if of_subnets else _fleet_leaving
    return StackEvent(
        change=StackChange(change),
        answer_to=_text("ResponseURL", body.get("ResponseURL")),
        stack_id=_text("StackId", body.get("StackId")),
        request_id=_text("RequestId", body.get("RequestId")),
        logical_id=_text("LogicalResourceId", body.get("LogicalResourceId")),
        stands_for="subnets" if of_subnets else "fleet",
        leaving=leaving(StackChange(change), new, old),
    )


def _fleet_leaving(change: StackChange, new: Mapping[str, Any], old: Mapping[str, Any]) -> Leaving:
    """Return what of the fleet goes: all with the stack, or workloads that have left the file."""
    workloads, is_whole = _texts("Workloads", new.get("Workloads")), change is StackChange.DELETE
    before = _texts("Workloads", old.get("Workloads"))
    return Leaving(
        deployment=_text("Deployment", new.get("Deployment")),
        home=_text("Home", new.get("Home")),
        # A region that has just left the file may still have instances.
        regions=_union(
            _texts("Regions", new.get("Regions")), _texts("Regions", old.get("Regions"))
        ),
        workloads=workloads if is_whole else tuple(x for x in before if x not in workloads),
        is_whole=is_whole,
        table=str(new.get("Table", "")),
    )


def _subnets_leaving(
    change: StackChange, new: Mapping[str, Any], old: Mapping[str, Any]
) -> Leaving:
    """Return which subnets go while the rest stays; with the stack goes the whole fleet anyway."""
    subnets = _texts("Subnets", new.get("Subnets"))
    before = () if change is StackChange.DELETE else _texts("Subnets", old.get("Subnets"))
    return Leaving(
        deployment=_text("Deployment", new.get("Deployment")),
        home=_text("Home", new.get("Home")),
        regions=(_text("Region", new.get("Region")),),
        workloads=(),
        is_whole=False,
        table=str(new.get("Table", "")),
        subnets=tuple(x for x in before if x not in subnets),
        staying=_texts("Staying", new.get("Staying")),
    )


_INSTANCE_ID = re.compile(r"i-[0-9a-f]{1,17}")


def _alarmed_workload(body: Mapping[str, Any], deployment: str) -> str:
    name = _dimension(body, "QueueName")
    owner, *rest = (name or "").split(SEPARATOR)
    if owner != deployment or len(rest) != 1 or not rest[0]:
        wanted = queue_name(deployment, "WORKLOAD")
        raise ContractError("event.alarmData", name, f"alarm on a queue named {wanted}")
    return _text("alarmData", rest[0])


def _dimension(body: Mapping[str, Any], wanted: str) -> str | None:
    """Return a dimension of the alarm's first metric that has it; None if none has."""
    found = body.get("alarmData")
    for step in ("configuration", "metrics"):
        found = found.get(step) if isinstance(found, Mapping) else None
    for metric in found if isinstance(found, list) else []:
        at: Any = metric
        for step in ("metricStat", "metric", "dimensions", wanted):
            at = at.get(step) if isinstance(at, Mapping) else None
        if isinstance(at, str):
            return at
    return None


def _mapping(field: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ContractError(field, value, "send a JSON object")
    return value


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ContractError(f"event.{field}", value, "send a text of printable characters")
    return value


def _texts(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ContractError(f"event.{field}", value, "send a list of texts")
    return tuple(_text(field, one) for one in value)


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _instant(field: str, value: object) -> datetime:
    try:
        text = _text(field, value)
        # EventBridge's are in UTC; some services leave the zone out.
        has_zone = datetime.fromisoformat(text).tzinfo is not None
        return decode_instant(text if has_zone else f"{text}+00:00")
    except ValueError:
        raise ContractError(f"event.{field}", value, "send an ISO 8601 instant") from None
