"""Route the messages of a workload with types: each to the queue of the shape that it needs.

Which shape that is, is decided in ``domain.shape`` (``settle``), by what is learned of the type too
(``rightsizing.type_size.sized_at``). For a size that no type has, and once there are many of
those, ``_choose_shape`` chooses among the shapes that have a queue.

A copy is sent before the original is deleted, as whenever a message moves: a crash in between
leaves two messages of one job, of which the manifest lets only one do anything. What cannot be
routed now stays in the entry queue and is hidden for a while.
"""

import logging
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock
from types import MappingProxyType

from spindown.contract.codec import decode, encode, from_json, to_json
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import (
    JobMessage,
    needs_of,
    parse_job,
    with_id,
)
from spindown.contract.job.s3_event import source_of
from spindown.contract.learned_size import decode_sizes, sizes_key
from spindown.contract.metric import DEPLOYMENT, REASON, WORKLOAD, class_of
from spindown.contract.queue import queue_of_shape
from spindown.contract.row import ShapeRow
from spindown.contract.settings import WorkloadSettings
from spindown.domain.lease import ClaimVerdict, claim_verdict, unreadable_wait
from spindown.domain.offer import InstanceRequirements, InstanceType
from spindown.domain.policy import JobNeeds, Policy, Rightsize
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import is_unreadable_for_good
from spindown.domain.rightsizing.type_size import TypeSize, all_sized, holds, sized_at
from spindown.domain.shape import (
    DEARER_AT_MOST,
    SettledNeeds,
    Shape,
    Sized,
    as_asked,
    disk_of_each,
    distinct_sizes,
    is_possible,
    largest_of,
    own_shapes,
    parse_shape,
    price_of,
    settle,
    size_on_sale,
    why_not_sold,
    why_unmet,
)
from spindown.error import (
    AccessDenied,
    ContractError,
    NewerSchema,
    NotFound,
    PreconditionFailed,
    SpindownError,
    Throttled,
    Unreachable,
)
from spindown.job.lease_row import is_held
from spindown.job.manifest_store import (
    StoredManifest,
    is_after_cancel,
    is_other_body,
    load_manifest,
    save_manifest,
)
from spindown.job.message import (
    SIZED,
    carried,
    copy_message,
    dead_letter,
    dead_letter_untouched,
    delete,
    put_back,
    read_stored,
    renew,
)
from spindown.job.release import dollars_wasted
from spindown.job.shape_queue import BeingRemoved, note_use, read_shapes
from spindown.port import (
    ControlPorts,
    Datum,
    JobQueue,
    Message,
    Outgoing,
    WorkPorts,
)
from spindown.reason_text import say, say_outgrown

#: Well within the timeout of the function; what is left is routed after the next tick.
RUN_FOR = timedelta(seconds=40)
#: From so many messages on, several are routed at once.
_FEW = 20
_AT_ONCE = 8
#: A long poll asks all of SQS's servers, so that an empty answer means something.
_WAIT = timedelta(seconds=1)
#: After this a queue that was just made can be used.
_MADE_WITHIN = timedelta(seconds=1.5)
#: A message that is not routed comes back after so long; routing takes a few seconds at most.
_HIDDEN_FOR = timedelta(minutes=2)
#: Refusals in a row after which the rest is left to the next run, and what counts as one: what one
#: message is refused for, the next would be too. Any other error is of its message alone.
_FAILURES = 5
_REFUSALS = (AccessDenied, Throttled, Unreachable)
#: Shapes for which queues are made beside those of ``own_shapes``: more than people tell apart.
#: Each type, and what has none, has an equal share of them, so that whoever sends jobs of one type
#: takes no other's; if there are many types, each has at least so many, of what is left. Whatever
#: is asked for beyond that has the size of a machine on sale.
SHAPES_AT_MOST = 50
_SHAPES_LEAST = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What became of the messages of one run."""

    routed: int = 0
    #: Why a message is a dead letter now, as the metric calls it -> how many.
    rejected: Mapping[str, int] = field(default_factory=dict)
    #: Of these, jobs that no machine may do: they have failed.
    failed: int = 0
    #: Hidden, and routed later.
    postponed: int = 0
    #: Deleted, since their jobs are over.
    dropped: int = 0

    @property
    def seen(self) -> int:
        """Return how many messages were looked at."""
        return self.routed + self.postponed + self.dropped + sum(self.rejected.values())

    def __add__(self, other: "Routed") -> "Routed":
        """Return what became of the messages of both runs."""
        return Routed(
            routed=self.routed + other.routed,
            rejected=Counter(self.rejected) + Counter(other.rejected),
            failed=self.failed + other.failed,
            postponed=self.postponed + other.postponed,
            dropped=self.dropped + other.dropped,
        )


def settle_message(job: JobMessage, policy: Policy, sized: Sized | None = None) -> SettledNeeds:
    """Return what a message comes to, once its stored body is read."""
    return settle(job.type or "", needs_of(job), policy, sized)


def read_sized(message: Message) -> Sized | None:
    """Return what a message of a shape's queue was given beside its type, as ``intake`` wrote it.

    People cannot send there, and ``intake`` removes the attribute if a sender has set it. None: the
    type alone says what the job gets.
    """
    text = message.attributes.get(SIZED)
    try:
        return None if text is None else decode(Sized, from_json(SIZED, text))
    except ContractError:
        return None


def fail_unclaimed(
    job: JobMessage, reason: Reason, workload: str, ports: WorkPorts
) -> tuple[str, bool]:
    """Say in its manifest that a job has failed, unless it is another's or somebody has it.

    Else its batch would wait for it, and nobody would see why. What nobody has claimed is no body's
    yet: the message that waits under the same id may have another.

    Returns the words of the reason, which begin with what happened if the job has run out of
    memory, and whether the job has failed by this call.
    """
    job_id, words, now = job.job_id or "", say(reason), ports.clock.now()
    known = Manifest(job_id=job_id, epoch=0, owner="", state=JobState.RUNNING)
    try:
        stored = load_manifest(job_id, ports.objects)
    except (AccessDenied, NewerSchema):
        # A damaged one is read from older versions, which ``intake`` may not.
        return words, False
    with suppress(PreconditionFailed):
        if stored is not None:
            known = replace(stored.manifest, epoch=stored.epoch_floor)
            is_over = known.state is not JobState.RUNNING
            if is_over or is_other_body(known, job) or is_held(known, workload, ports.table, now):
                return words, False
            if known.ran_out_gib:
                words = say_outgrown(reason, known.ran_out_gib, is_of_gpu=known.ran_out_of_vram)
        failed = replace(
            known,
            state=JobState.FAILED,
            reason=words,
            code=reason.code.value,
            batch_id=known.batch_id or job.batch_id,
            source=known.source or source_of(job_id, job.items),
            finished_at=now,
            released=True,
        )
        save_manifest(failed, None if stored is None else stored.etag, ports)
        return words, True
    return words, False


def why_refused(
    settled: SettledNeeds,
    policy: Policy,
    workload: InstanceRequirements,
    root_volume_gib: int,
    why_unsold: Callable[[Shape], Reason],
) -> Reason:
    """Return why a job may not be done, or no machine sold could; NO_REASON: it may.

    Args:
        settled: what its message comes to.
        policy: in force.
        workload: what its machines must have.
        root_volume_gib: size of their root volume.
        why_unsold: tells in what a shape is larger than any machine on sale.
    """
    disk_gib = disk_of_each(root_volume_gib, settled.shape.dispatch, policy)
    own = settled.rejected or why_unmet(settled.needs, workload, disk_gib)
    return own or as_asked(why_unsold(settled.shape), settled.needs)


def why_forbidden(
    job: JobMessage,
    policy: Policy,
    workload: InstanceRequirements,
    root_volume_gib: int,
    *,
    sold: Collection[InstanceType],
) -> Reason:
    """Return why a job would be a dead letter as soon as it is sent; NO_REASON: it would not.

    Args:
        job: with its stored body.
        policy: in force.
        workload: what its machines must have.
        root_volume_gib: size of their root volume.
        sold: the types of instances on sale; none: not known.
    """

    def why_unsold(shape: Shape) -> Reason:
        return why_not_sold(shape, workload, policy.shared_slots, sold)

    return why_refused(settle_message(job, policy), policy, workload, root_volume_gib, why_unsold)


class MessageRouter:
    """Routes the messages of one workload; threads may share it."""

    def __init__(
        self,
        settings: WorkloadSettings,
        policy: Policy,
        ports: WorkPorts,
        open_queue: Callable[[str], JobQueue],
        *,
        tags: Mapping[str, str],
        sizes: Mapping[str, TypeSize] = MappingProxyType({}),
        sold: Mapping[InstanceType, float] = MappingProxyType({}),
        within_reach: Collection[InstanceType] = (),
    ) -> None:
        """Prepare.

        Args:
            settings: of the workload.
            policy: in force.
            ports: the world; its queue is the one that people know.
            open_queue: URL -> queue.
            tags: what a queue bears that it makes.
            sizes: type -> what its jobs get by what is learned.
            sold: the types of instances on sale, and USD per hour of each; none: not known.
            within_reach: those of them that quotas and ceilings allow at that price.
        """
        self._settings = settings
        self._policy = policy
        self._ports = ports
        self._open_queue = open_queue
        self._tags = tags
        self._sizes = sizes
        #: One type of each size.
        self._sold = distinct_sizes(settings.requirements, sold)
        #: Likewise, of those that a job may get though they are dearer than its own.
        reached = {kind: price for kind, price in sold.items() if kind in within_reach}
        self._within_reach = distinct_sizes(settings.requirements, reached)
        #: What types get is never made up, as declared or learned.
        self._own = own_shapes(policy, {name: tuple(all_sized(s)) for name, s in sizes.items()})
        #: Shape and type -> the queue of that shape, once the ledger lists it.
        self._queues: dict[tuple[Shape, str], JobQueue] = {}
        #: Type whose share of made-up shapes is used up -> what takes its jobs.
        self._open_to: dict[str, list[Shape]] = {}
        #: So that threads do not count the shapes at once, and make more than there may be.
        self._placing = Lock()
        #: Shape of a queue -> USD per hour of the cheapest machine.
        self._prices: dict[Shape, float] = {}
        #: The same of a machine within reach.
        self._prices_within_reach: dict[Shape, float] = {}
        self._not_sold: dict[Shape, Reason] = {}

    def run(
        self, until: datetime, *, at_most: int | None = None, wait: timedelta = _WAIT
    ) -> Routed:
        """Route until the queue is empty, the time is up, or ``at_most`` are routed; count them."""
        done, failed_in_a_row = Routed(), 0
        while failed_in_a_row < _FAILURES and self._ports.clock.now() < until:
            if done.seen == at_most:
                break
            message = self._ports.queue.receive(wait=wait, visibility=_HIDDEN_FOR)
            if message is None:
                break
            try:
                done, failed_in_a_row = done + self._route(message), 0
            except Exception as exc:  # noqa: BLE001 - the edge of one message: it comes back
                _log.exception("not_routed")
                if isinstance(exc, _REFUSALS):
                    failed_in_a_row += 1
                    # Else SQS would give up, after 100 receives, what is nobody's fault.
                    with suppress(SpindownError):
                        renew(message, self._ports)
                done += _POSTPONED
        return done

    def _route(self, message: Message) -> Routed:
        """Route a message, or make it a dead letter, or leave it to a later version."""
        try:
            job = with_id(parse_job(message.body), message.message_id)
        except NewerSchema as exc:
            return self._postpone(message, exc)
        except ContractError as exc:
            dead_letter_untouched(message, str(exc), self._ports)
            return _MALFORMED
        job_id = job.job_id or ""
        try:
            whole = read_stored(job, self._ports.objects)
        except (AccessDenied, NewerSchema) as exc:
            # Who stored it may have encrypted it by a key that only they may use.
            return self._postpone(message, exc)
        except (ContractError, NotFound):
            unstored = Reason(ReasonCode.BODY_NOT_STORED, {"job": job_id})
            return self._reject(message, job_id, unstored)
        stored = self._known_of(whole)
        over = None if stored is None else self._end_over(message, whole, stored)
        return over or self._place(message, whole, job)

    def _place(self, message: Message, whole: JobMessage, job: JobMessage) -> Routed:
        """Find the queue that a message goes to, or make it a dead letter.

        ``whole`` is the job as stored, and ``job`` as the message has it.
        """
        sized = self._sized_of(whole)
        settled = settle_message(whole, self._policy, sized)
        if sized is not None and self._why_refused(settled):
            # Beside the other needs nobody sells what was learned: the type's own word counts.
            sized, settled = None, settle_message(whole, self._policy)
        rejected = self._why_refused(settled)
        if rejected:
            return self._give_up(message, whole, rejected)
        try:
            queue = self._queue_for(settled.shape, whole.type or "")
        except BeingRemoved as exc:
            put_back(message, exc.wait, self._ports.queue)
            return _POSTPONED
        return self._move(message, job, queue, sized)

    def _why_refused(self, settled: SettledNeeds) -> Reason:
        settings = self._settings
        root_gib = settings.run.root_volume_gib
        machines = settings.requirements
        return why_refused(settled, self._policy, machines, root_gib, self._why_not_sold)

    def _move(
        self, message: Message, job: JobMessage, queue: JobQueue, sized: Sized | None
    ) -> Routed:
        """Move a message, whose job is as it says itself, to the queue of a shape."""
        attributes = carried(message)
        # Whatever a sender has written there.
        attributes.pop(SIZED, None)
        if sized is not None:
            attributes[SIZED] = to_json(encode(sized))
        copy = copy_message(message, job, self._ports.objects, attributes)
        try:
            self._send(queue, copy)
        except ContractError as exc:
            # SQS will never take it, however often it comes back.
            dead_letter_untouched(message, str(exc), self._ports, job_id=job.job_id or "")
            return _MALFORMED
        delete(message.receipt_handle, self._ports.queue)
        return Routed(routed=1)

    def _send(self, queue: JobQueue, copy: Outgoing) -> None:
        """Send a copy to the queue of a shape; one that is not there is made."""
        try:
            queue.send([copy])
        except NotFound:
            queue.create(dead_letters=self._settings.dlq_url, tags=self._tags)
            # SQS takes a second until a queue that it has made can be used (CreateQueue).
            self._ports.pause(_MADE_WITHIN)
            queue.send([copy])

    def _known_of(self, job: JobMessage) -> StoredManifest | None:
        """Return the manifest of a message's job; None: there is none, or none to go by here.

        What the body of another job makes of it, its claim says. So its claim does of a manifest
        that cannot be read here, which is damaged or of a later version.
        """
        try:
            stored = load_manifest(job.job_id or "", self._ports.objects)
        except (AccessDenied, NewerSchema):
            return None
        return None if stored is None or is_other_body(stored.manifest, job) else stored

    def _end_over(self, message: Message, job: JobMessage, stored: StoredManifest) -> Routed | None:
        """Deal with a message whose job is over, which is to buy no machine; None: it is not.

        Whether somebody holds the job, its claim finds out: only that can tell which of two
        messages its owner has.
        """
        manifest, job_id = stored.manifest, job.job_id or ""
        if is_after_cancel(stored, message, job):
            late: About = {"job": job_id, "state": manifest.state.value}
            return self._reject(message, job_id, Reason(ReasonCode.SENT_AFTER_CANCEL, late))
        match claim_verdict(manifest, None, instance_id="", now=self._ports.clock.now()):
            case ClaimVerdict.DELETE:
                delete(message.receipt_handle, self._ports.queue)
                return _DROPPED
            case ClaimVerdict.DEAD_LETTER:
                code, dollars = manifest.code, dollars_wasted(manifest)
                dead_letter(
                    message, job, manifest.reason, "", self._ports, code=code, dollars=dollars
                )
                return Routed(rejected={class_of(code): 1})
            case _:
                return None

    def _sized_of(self, job: JobMessage) -> Sized | None:
        """Return what a job gets now by what is learned of its type; None: what its type says."""
        known = self._sizes.get(job.type or "")
        if known is None:
            return None
        sized = sized_at(known, self._ports.clock.now())
        return None if sized.needs == JobNeeds() else sized

    def _postpone(self, message: Message, error: SpindownError) -> Routed:
        """Hide what only a later version can read, or nobody; at last give it up."""
        if is_unreadable_for_good(message.sent_at, message.receive_count, self._ports.clock.now()):
            dead_letter_untouched(message, str(error), self._ports)
            return _MALFORMED
        wait = unreadable_wait(message.receive_count, is_noted=False)
        put_back(message, wait, self._ports.queue)
        return _POSTPONED

    def _why_not_sold(self, shape: Shape) -> Reason:
        """Return in what a shape is larger than any machine on sale; NO_REASON: it is not."""
        if shape not in self._not_sold:
            self._not_sold[shape] = why_not_sold(
                shape, self._settings.requirements, self._policy.shared_slots, self._sold
            )
        return self._not_sold[shape]

    def _give_up(self, message: Message, job: JobMessage, reason: Reason) -> Routed:
        """Make a job that no machine may do a dead letter, and say so where its batch is read."""
        words, is_failed = fail_unclaimed(job, reason, self._settings.name, self._ports)
        done = self._reject(message, job.job_id or "", reason, words)
        return replace(done, failed=int(is_failed))

    def _reject(self, message: Message, job_id: str, reason: Reason, words: str = "") -> Routed:
        told = words or say(reason)
        dead_letter_untouched(message, told, self._ports, code=reason.code, job_id=job_id)
        return Routed(rejected={reason.code.value: 1})

    def _queue_for(self, shape: Shape, job_type: str) -> JobQueue:
        """Return the queue that takes a job, which may not be made yet."""
        with self._placing:
            if known := self._queues.get((shape, job_type)):
                return known
            chosen = self._choose_shape(shape, job_type)
            return self._queues.get((chosen, job_type)) or self._register(chosen, job_type)

    def _register(self, shape: Shape, job_type: str) -> JobQueue:
        # First the ledger: a queue that no tick knows of would be served by nobody.
        url = queue_of_shape(self._settings.queue_url, shape.name)
        is_made_up = shape not in self._own
        name = self._settings.name
        note_use(self._ports, name, shape.name, url, job_type, is_made_up=is_made_up)
        queue = self._queues[shape, job_type] = self._open_queue(url)
        return queue

    def _choose_shape(self, shape: Shape, job_type: str) -> Shape:
        """Return the shape whose queue takes a job.

        Its own, unless its type has used up its share of the sizes that senders may have made up:
        each tick looks at every queue, and each has a boot of its own. Then of those that cover it
        the one with the cheapest machine, unless that is much dearer than the job's own, or dearer
        and out of reach. Else a queue is opened for a size that covers as many others as can be;
        so none waits for want of a queue, and none for a machine that cannot be had.

        A type that has used up its share is looked at again only once another has opened a shape
        within its own. So however many sizes are made up, the ledger is read but so often.
        """
        if shape in self._own:
            return shape
        if job_type not in self._open_to:
            listed = read_shapes(self._ports.table, self._settings.name)
            if shape.name in listed:
                return shape
            if self._has_room(job_type, listed):
                # One more that may take jobs of the others.
                self._open_to.clear()
                return shape
            self._open_to[job_type] = self._cheapest_first(listed)
        open_to = self._open_to[job_type]
        if shape in open_to:
            return shape
        covering = (each for each in open_to if each.covers(shape) and self._is_near(each, shape))
        if found := next(covering, None):
            return found
        opened = size_on_sale(
            shape,
            largest_of(job_type, self._policy),
            self._settings.requirements,
            self._policy.shared_slots,
            self._sold,
            self._within_reach,
        )
        for known in self._open_to.values():
            insort(known, opened, key=self._by_price)
        return opened

    def _has_room(self, job_type: str, listed: Mapping[str, ShapeRow]) -> bool:
        """Tell whether one more size that jobs of a type ask for may have a queue."""
        own = {each.name for each in self._own}
        made_up = [row for name, row in listed.items() if name not in own]
        of_type = [row for row in made_up if job_type in row.types]
        share = max(SHAPES_AT_MOST // (1 + len(self._policy.types)), _SHAPES_LEAST)
        return len(of_type) < share and len(made_up) < SHAPES_AT_MOST

    def _cheapest_first(self, listed: Collection[str]) -> list[Shape]:
        """Return the shapes that have a queue, or may have one, the cheapest machine first.

        One that no machine on sale has takes nothing: its jobs would wait without end.
        """
        known = {each for each in map(parse_shape, listed) if each} | self._own
        possible = (each for each in known if is_possible(each, self._policy))
        sold = [each for each in possible if not self._why_not_sold(each)]
        return sorted(sold, key=self._by_price)

    def _by_price(self, shape: Shape) -> tuple[float, Shape]:
        return self._price_of(shape), shape

    def _is_near(self, covering: Shape, shape: Shape) -> bool:
        """Tell whether a job of one shape may have the machine of another."""
        own = self._price_of(shape)
        if self._price_of(covering) <= own:
            return True
        known = self._prices_within_reach
        if covering not in known:
            known[covering] = self._cheapest(covering, self._within_reach)
        return known[covering] <= DEARER_AT_MOST * own

    def _price_of(self, shape: Shape) -> float:
        if shape not in self._prices:
            self._prices[shape] = self._cheapest(shape, self._sold)
        return self._prices[shape]

    def _cheapest(self, shape: Shape, sold: Mapping[InstanceType, float]) -> float:
        slots, required = self._policy.shared_slots, self._settings.requirements
        return price_of(shape, required, slots, sold)


def route(
    settings: WorkloadSettings,
    policy: Policy,
    work: WorkPorts,
    ports: ControlPorts,
    *,
    sold: Mapping[InstanceType, float] = MappingProxyType({}),
    within_reach: Collection[InstanceType] = (),
    threads: int = _AT_ONCE,
) -> Routed:
    """Route until nothing waits or the time is up, many messages by several threads; count them.

    Args:
        settings: of the workload.
        policy: in force.
        work: the ports of the workload, as ``MessageRouter`` takes them.
        ports: the ports of the deployment.
        sold: the types of instances on sale, and USD per hour of each; none: not known.
        within_reach: those of them that quotas and ceilings allow at that price.
        threads: how many route at once.
    """
    begun, tags = ports.clock.now(), ports.deployment().tags
    sizes = sizes_in_force(settings, policy, ports)

    def run(queue: JobQueue, until: datetime, wait: timedelta) -> Routed:
        there = replace(work, queue=queue)
        router = MessageRouter(
            settings,
            policy,
            there,
            ports.queue,
            tags=tags,
            sizes=sizes,
            sold=sold,
            within_reach=within_reach,
        )
        done = router.run(until, at_most=_FEW, wait=wait)
        if done.seen < _FEW:
            return done
        with ThreadPoolExecutor(threads) as pool:
            more = pool.map(lambda _: router.run(until, wait=wait), range(threads))
            return sum(more, start=done)

    done = Routed()
    # First: a flood of messages keeps the entry queue full, and comes to no such queue.
    for queue in _abandoned_queues(settings, policy, ports):
        with suppress(NotFound):
            done += run(queue, begun + RUN_FOR / 2, timedelta(0))
    done += run(work.queue, begun + RUN_FOR, _WAIT)
    where = {DEPLOYMENT: ports.name, WORKLOAD: settings.name}
    ports.metrics.emit(
        [
            Datum(name="JobsRouted", value=done.routed, dimensions=where),
            Datum(name="JobsNotRouted", value=done.postponed, dimensions=where),
            Datum(name="JobsFailed", value=done.failed, dimensions=where),
            *(
                Datum(name="DeadLettered", value=count, dimensions={**where, REASON: code})
                for code, count in done.rejected.items()
            ),
        ]
    )
    return done


def sizes_in_force(
    settings: WorkloadSettings, policy: Policy, ports: ControlPorts
) -> Mapping[str, TypeSize]:
    """Return what is learned, if it is to be applied; without it types alone say what jobs get."""
    if policy.rightsize is not Rightsize.APPLY:
        return {}
    try:
        sizes = decode_sizes(ports.objects.get(sizes_key(settings.name)).data).sizes
    except NotFound:
        return {}
    except SpindownError as exc:
        _log.warning("sizes_not_read: %s", exc)
        return {}
    return {
        each.name: size
        for each in policy.types
        if (size := sizes.get(each.name)) and holds(size, each, policy, settings.run.slots)
    }


def _abandoned_queues(
    settings: WorkloadSettings, policy: Policy, ports: ControlPorts
) -> Sequence[JobQueue]:
    """Return the queues of shapes to which no job comes any more, since the policy changed."""
    listed = read_shapes(ports.table, settings.name)
    left = [
        name
        for name, row in listed.items()
        if (shape := parse_shape(name)) and not is_possible(shape, policy, row.types)
    ]
    return [ports.queue(queue_of_shape(settings.queue_url, name)) for name in left]


_POSTPONED = Routed(postponed=1)
_DROPPED = Routed(dropped=1)
_MALFORMED = Routed(rejected={"malformed": 1})
