"""What a tick knows: rows, settings and queue as read once, and what EC2 and its market said.

A call that fails becomes a reason. What it would have told is missing, and the plan goes by the
rows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from spindown.contract import tag
from spindown.contract.codec import decode, encode, from_json, replace_fields
from spindown.contract.queue import queue_of_shape
from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.control.market import PriceList, read_prices
from spindown.control.policy_edit import EffectivePolicy, effective_policy
from spindown.control.unresponsive_region import SLOW
from spindown.domain.fleet import NOTHING_WAITS, Backlog, Launch, Worker, all_of
from spindown.domain.idle import timeout_told
from spindown.domain.learning import Knowledge
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.shape import Shape, is_possible, own_shape, parse_shape, slots_of
from spindown.domain.warm import at_hour
from spindown.error import (
    AccessDenied,
    ContractError,
    NotFound,
    SpindownError,
    Throttled,
    Unreachable,
)
from spindown.ledger import AccountView, Ledger, LedgerView, RowWrites
from spindown.ledger.knowledge import read_knowledge, starts_baked
from spindown.port import (
    SETTINGS_FOR,
    AnswerKind,
    ControlPorts,
    InstanceView,
    LaunchRequest,
    LiveEdit,
    read_backlogs,
)

_WORKLOAD: AnswerKind[tuple[WorkloadSettings, LiveEdit | None, int]] = AnswerKind(
    "workload", SETTINGS_FOR
)
#: How old the rows may be that all workloads share, for metrics; a launch reads its own.
ACCOUNT: AnswerKind[AccountView] = AnswerKind("account", timedelta(minutes=15))


#: Rows that nobody reads, and that workers have written by no mistake.
_FLOOD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Answers:
    """What EC2 said in this tick. A region that did not answer is missing."""

    #: Region -> our instances; None: EC2 was not asked for them.
    instances: Mapping[str, tuple[InstanceView, ...]] | None = None
    #: Instances whose spot request says that EC2 takes them away; None: EC2 was not asked.
    reclaimed: frozenset[str] | None = None
    #: Id of an open launch -> the instances with its tag.
    of_launches: Mapping[str, tuple[InstanceView, ...]] = field(default_factory=dict)
    #: Whether every region was asked for our instances.
    is_sweep: bool = False
    failures: tuple[Reason, ...] = ()
    #: Regions that asked to slow down.
    throttled: frozenset[str] = frozenset()
    #: Between 0 and 1, drawn once: spreads what backs off.
    jitter: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class TickFacts:
    """All that a tick knows before it looks at prices."""

    now: datetime
    workload: str
    #: What woke it, for the record only.
    source: str
    deployment: DeploymentSettings
    settings: WorkloadSettings
    effective: EffectivePolicy
    view: LedgerView
    #: All queues of the workload together.
    queue: Backlog
    knowledge: Knowledge
    #: Of a workload with types: the entry queue, and by name of its shape each other.
    entry_backlog: Backlog = NOTHING_WAITS
    shapes: Mapping[str, Backlog] = field(default_factory=dict)
    #: The shape that they are of (``shape.of_shape``); "": of the whole workload.
    shape: str = ""
    ec2: Ec2Answers = Ec2Answers()
    notes: tuple[Reason, ...] = ()

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.effective.policy

    @cached_property
    def rows(self) -> RowWrites:
        """Return what makes the writes of the workload's rows."""
        return RowWrites(self.workload)

    @cached_property
    def idle_timeout(self) -> timedelta:
        """Return the idle timeout that workers are told."""
        return timeout_told(self.view.policy.idle_timeout, self.knowledge, self.policy)

    @property
    def queue_missing(self) -> Reason:
        """Return that the workload's queue is not there; NO_REASON: it is."""
        found = (note for note in self.notes if note.code is ReasonCode.QUEUE_MISSING)
        return next(found, NO_REASON)

    def launch_version(self, region: str) -> str:
        """Return one text that changes when templates, subnets or code change there."""
        place = self.settings.regions.get(region)
        if place is None:
            return self.settings.run.code_digest
        templates = sorted(f"{one.id}@{one.version}" for one in place.templates.values())
        subnets = sorted(place.subnets.values())
        return " ".join([*templates, *subnets, self.settings.run.code_digest])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """All that a tick knows."""

    facts: TickFacts
    #: Prices and quotas; None: nobody needs them, or they could not be read.
    prices: PriceList | None = None
    #: Why prices could not be read at all.
    prices_failure: Reason = NO_REASON
    #: What all workloads share; None: nobody needs it, or it could not be read.
    account: AccountView | None = None
    notes: tuple[Reason, ...] = ()


def read_rows(workload: str, ports: ControlPorts, *, source: str, now: datetime) -> TickFacts:
    """Read what every tick needs: the ledger, the settings, the queue.

    Raises:
        NotFound: there is no such workload.
        SpindownError: the ledger, the settings or the queue could not be read.
    """
    view = Ledger(ports.table, workload).read()
    deployment = ports.deployment()
    settings, edit = _read_settings(workload, ports, view, now)
    effective = effective_policy(settings, edit, view.policy)
    effective = replace_fields(effective, {"policy": at_hour(effective.policy, now)})
    entry_backlog, shapes, missing = _read_queues(ports, settings, effective.policy, view)
    return TickFacts(
        now=now,
        workload=workload,
        source=source,
        deployment=deployment,
        settings=settings,
        effective=effective,
        view=view,
        queue=all_of([entry_backlog, *shapes.values()]) if shapes else entry_backlog,
        entry_backlog=entry_backlog,
        shapes=shapes,
        knowledge=read_knowledge(
            view.rates,
            slots=slots_of(effective.policy, settings.run.slots),
            stop_grace=settings.run.stop_grace,
            workers=view.workers.values(),
            is_baked=starts_baked(view.images, settings, deployment.region, now),
        ),
        notes=(
            *missing,
            *((Reason(ReasonCode.LOCK_DAMAGED),) if view.is_lock_damaged(now) else ()),
            *_flood(view),
            *(
                Reason(ReasonCode.REGION_UNREAD, {"region": region, "said": why})
                for region, why in settings.unread.items()
            ),
        ),
    )


def _read_queues(
    ports: ControlPorts, settings: WorkloadSettings, policy: Policy, view: LedgerView
) -> tuple[Backlog, Mapping[str, Backlog], Sequence[Reason]]:
    """Return what waits to be routed, and in the queue of each shape in use; which is missing.

    What waits for a shape to which no job comes any more is routed again: no machine is for it.
    In a queue that is not there nothing waits, and the tick goes on: what runs costs money.
    """
    missing: list[Reason] = []
    try:
        entry_backlog = ports.queue(settings.queue_url).backlog()
    except NotFound:
        entry_backlog = NOTHING_WAITS
        missing.append(Reason(ReasonCode.QUEUE_MISSING, {"url": settings.queue_url}))
    if not policy.types:
        return entry_backlog, {}, missing
    # There is always one, so that a plan says what it would buy.
    found = {own_shape(policy).name: NOTHING_WAITS}
    queues = [ports.queue(queue_of_shape(settings.queue_url, name)) for name in view.shapes]
    for (name, row), backlog in zip(view.shapes.items(), read_backlogs(queues), strict=True):
        if backlog is None:
            continue
        if is_possible(parse_shape(name) or Shape(), policy, row.types):
            found[name] = backlog
        else:
            entry_backlog = all_of([entry_backlog, backlog])
    return entry_backlog, found, missing


def with_jobs(facts: TickFacts, jobs: int) -> TickFacts:
    """Return facts in which so many jobs wait; with types, such that state no needs."""
    name = own_shape(facts.policy).name
    own = facts.shapes.get(name)
    shapes = {**facts.shapes, name: replace(own, visible=jobs)} if own is not None else {}
    return replace(facts, queue=replace(facts.queue, visible=jobs), shapes=shapes)


def _flood(view: LedgerView) -> list[Reason]:
    """Return what is to be said of rows that no honest worker writes, or not so many."""
    rows = len(view.ignored_rows)
    # A large fleet has many rows, and all of them are its own.
    is_flood = rows >= (1 if view.is_flooded else _FLOOD)
    return [Reason(ReasonCode.ROWS_FLOODED, {"rows": rows})] if is_flood else []


def _read_settings(
    workload: str, ports: ControlPorts, view: LedgerView, now: datetime
) -> tuple[WorkloadSettings, LiveEdit | None]:
    """Recall the settings, unless the ledger says that they were edited since."""
    # What is remembered with an outpost unread took long to read.
    is_slow = True

    def read() -> tuple[WorkloadSettings, LiveEdit | None, int]:
        nonlocal is_slow
        begun = ports.clock.now()
        settings, edit = ports.settings.workload(workload)
        is_slow = ports.clock.now() - begun > SLOW
        return settings, edit, view.policy.edits

    found = ports.cache.recall(_WORKLOAD, workload, now, read)
    if found[2] != view.policy.edits:
        forget_settings(ports, workload)
        found = ports.cache.recall(_WORKLOAD, workload, now, read)
    if found[0].unread and not is_slow:
        # An outpost that is just being deployed, or is refused, is asked again at once; not one
        # that keeps the tick waiting.
        forget_settings(ports, workload)
    return found[0], found[1]


def forget_settings(ports: ControlPorts, workload: str) -> None:
    """Have the next tick read the settings again: what is remembered may be minutes old."""
    ports.cache.forget(_WORKLOAD, workload)


def failure_of(error: SpindownError, asked: str, **about: str) -> Reason:
    """Return a call that failed as a reason; ``asked`` is what was asked for."""
    match error:
        case Unreachable():
            code = ReasonCode.NO_ANSWER
        case AccessDenied():
            code = ReasonCode.GRANT_MISSING
        case Throttled():
            code = ReasonCode.CALL_THROTTLED
        case _:
            code = ReasonCode.CALL_FAILED
    return Reason(code, {"asked": asked, "said": str(error), **about})


def decode_request(launch: Launch) -> LaunchRequest | None:
    """Return the request of a launch; None if it cannot be read."""
    try:
        return decode(LaunchRequest, from_json("launch request", launch.request))
    except ContractError:
        return None


def encode_request(request: LaunchRequest) -> str:
    """Return a request as text, to be made again word by word."""
    return json.dumps(encode(request), sort_keys=True)


def request_tags(
    facts: TickFacts, launch_id: str, region: str, shape: str = ""
) -> Mapping[str, str]:
    """Return what the request itself says: whose it is, and what no template can know.

    The template has the account's and whose it is as well, but the permission for CreateFleet sees
    only the tags of the request (``infra.iam.control``).
    """
    return launch_tags(
        facts.deployment,
        facts.settings,
        region=region,
        launch_id=launch_id,
        lease_until=facts.now + facts.policy.max_lifetime + facts.policy.lifetime_grace,
        shape=shape,
    )


def launch_tags(
    deployment: DeploymentSettings,
    settings: WorkloadSettings,
    *,
    region: str,
    launch_id: str,
    lease_until: datetime,
    shape: str = "",
) -> Mapping[str, str]:
    """Return the tags of a launch in a region."""
    launched = {
        **deployment.tags,
        tag.DEPLOYMENT: deployment.name,
        tag.WORKLOAD: settings.name,
        tag.LAUNCH: launch_id,
        tag.LEASE_UNTIL: f"{lease_until:%Y-%m-%dT%H:%M:%SZ}",
        **({tag.SHAPE: shape} if shape else {}),
    }
    if region == deployment.region:
        return launched
    return {**tag.home_tags(deployment, settings), **launched}


def client_token(facts: TickFacts, launch_id: str, at: datetime) -> str:
    """Return EC2's idempotency token, at most 64 characters: one launch, one token.

    The launch id holds workload, fence and number. The time is in it too, since a table that
    was made anew counts its fences from 1 while EC2 still remembers the tokens of the old one.
    """
    text = f"{facts.deployment.name}/{launch_id}/{at.isoformat()}"
    return hashlib.sha256(text.encode()).hexdigest()


def is_own_request(launch: Launch, request: LaunchRequest, facts: TickFacts) -> bool:
    """Tell whether a stored request is one that the scaler would make as things are deployed now.

    What is made again word by word must be ours, whoever has written it down.
    """
    place = facts.settings.regions.get(request.region)
    if place is None or launch.intended_at > facts.now:
        return False
    tags = dict(request.tags)
    expected = dict(request_tags(facts, launch.launch_id, request.region, launch.shape))
    # It follows the policy of then.
    until = tags.pop(tag.LEASE_UNTIL, "")
    del expected[tag.LEASE_UNTIL]
    pools = {f"{o.instance_type}/{o.zone}/{request.capacity_type}" for o in request.overrides}
    return (
        launch.launch_id.startswith(f"{facts.workload}-")
        and request.client_token == launch.client_token
        and launch.client_token == client_token(facts, launch.launch_id, launch.intended_at)
        and tags == expected
        and until <= f"{launch.intended_at + _LEASE_AT_MOST:%Y-%m-%dT%H:%M:%SZ}"
        and request.template in place.templates.values()
        and all(place.subnets.get(o.zone) == o.subnet_id for o in request.overrides)
        and (not request.image or request.image in _images_in(request.region, facts))
        and pools <= launch.offered.keys()
        and request.count == launch.count
    )


def _images_in(region: str, facts: TickFacts) -> list[str]:
    return [known.images[region] for known in facts.view.images.values() if region in known.images]


#: No policy lets an instance live longer, its grace included (``spindown.config``).
_LEASE_AT_MOST = timedelta(days=2 * 3650)


def assumed(worker: Worker) -> InstanceView:
    """Return a worker's instance as if it were running, where EC2 has said nothing."""
    return InstanceView(
        instance_id=worker.instance_id,
        instance_type=worker.instance_type,
        region=worker.region,
        zone=worker.zone,
        capacity_type=worker.capacity_type,
        state="running",
        launched_at=worker.launched_at,
    )


def read_market(
    facts: TickFacts,
    ports: ControlPorts,
    *,
    is_launch_due: bool,
    charged: Sequence[Worker],
    is_billing: bool,
) -> Observation:
    """Read prices and what all workloads share, as far as the tick needs them.

    Args:
        facts: all else.
        ports: the world.
        is_launch_due: whether offers are to be ranked.
        charged: workers that are charged now: their pools' prices are noted.
        is_billing: whether a worker bills, so that the month is of interest.
    """
    regions, ledger = facts.settings.regions.keys(), Ledger(ports.table, facts.workload)
    seen = Observation(facts=facts)
    try:
        if is_launch_due:
            account = ports.cache.keep(ACCOUNT, "", facts.now, ledger.read_account())
            seen = replace(seen, account=account)
            prices = read_prices(facts.settings, ports, facts.now, spot_in=regions)
            seen = replace(seen, prices=prices)
        elif spot := {w.region for w in charged if w.capacity_type is CapacityType.SPOT} & regions:
            seen = replace(seen, prices=read_prices(facts.settings, ports, facts.now, spot_in=spot))
    except SpindownError as exc:
        seen = replace(seen, prices_failure=Reason(ReasonCode.PRICES_UNREAD, {"said": str(exc)}))
    if seen.account is not None or not is_billing:
        return seen
    try:
        if facts.deployment.budget_per_month is not None:
            # Which workers the budget still pays for is asked in each tick.
            account = ports.cache.keep(ACCOUNT, "", facts.now, ledger.read_account())
        else:
            account = ports.cache.recall(ACCOUNT, "", facts.now, ledger.read_account)
        return replace(seen, account=account)
    except SpindownError as exc:
        return replace(seen, notes=(failure_of(exc, "account"),))
