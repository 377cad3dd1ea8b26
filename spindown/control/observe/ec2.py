"""Ask EC2 what lives, and what it is taking away: one of the two in a tick, in each region.

Events say the same sooner; this is for the event that never came. The two questions take turns,
since each costs a call: are our instances still there, and does a spot request say that EC2 is
taking one away. A worker that is heard, and that the answer misses, is asked for again by its id:
one wrong answer ends nobody who works. Launches without an answer are looked up besides, one call
each. A tick that launches leaves both questions out, unless they have been left out for long. A
region in which no row expects anything is asked now and then, and one that hangs is left alone
(``control.unresponsive_region``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from spindown.contract import tag
from spindown.control.observe.fleet import Fleet, open_launches
from spindown.control.observe.observation import (
    Ec2Answers,
    TickFacts,
    assumed,
    decode_request,
    failure_of,
)
from spindown.control.unresponsive_region import ask
from spindown.domain.fleet import Worker
from spindown.domain.offer import CapacityType
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.termination import UNSEEN_FOR, is_heard
from spindown.error import SpindownError, Throttled
from spindown.port import ControlPorts, InstanceView

T = TypeVar("T")

#: How long launching ticks may leave the questions out.
_AT_LATEST = timedelta(minutes=10)
#: How often EC2 is asked for instances that no row knows, while no row expects any.
_ORPHANS_EVERY = timedelta(minutes=15)
#: Ticks come a little early at times.
_EARLY = timedelta(seconds=10)

#: What a failed call had asked for.
INSTANCES, RECLAIMS, LAUNCHES = "instances", "reclaims", "launches"


def observe_launches(facts: TickFacts, ports: ControlPorts) -> TickFacts:
    """Ask for the instances of launches that nobody knows the answer of, by their tag."""
    answers = facts.ec2
    for launch in open_launches(facts.view.launches.values()):
        request = decode_request(launch)
        if request is None or request.region not in facts.settings.deployed_regions:
            continue
        region = request.region
        tags = {**_our_tags(facts), tag.LAUNCH: launch.launch_id}
        try:
            found = tuple(_instances(facts, ports, region, tags))
        except SpindownError as exc:
            about = {"region": region, "launch_id": launch.launch_id}
            answers = _failed(answers, region, exc, failure_of(exc, LAUNCHES, **about), ports)
        else:
            of_launches = {**answers.of_launches, launch.launch_id: found}
            answers = replace(answers, of_launches=of_launches)
    return facts if answers is facts.ec2 else replace(facts, ec2=answers)


def observe_ec2(
    facts: TickFacts, fleet: Fleet, ports: ControlPorts, *, is_launch_due: bool
) -> TickFacts:
    """Ask EC2 the question that is due; return the facts with its answer."""
    match question_due(facts, fleet, is_launch_due=is_launch_due):
        case "instances":
            tags = _our_tags(facts)
            regions, is_sweep = _regions_to_see(facts, fleet)
            found, answers = _each_region(
                facts.ec2,
                regions,
                INSTANCES,
                ports,
                lambda region: tuple(_instances(facts, ports, region, tags)),
                home=facts.deployment.region,
            )
            answers = replace(answers, instances=found, is_sweep=is_sweep)
            return replace(facts, ec2=_ask_again(facts, answers, fleet, ports))
        case "reclaims":
            ids: dict[str, list[str]] = {}
            for worker in _watched(fleet):
                ids.setdefault(worker.region, []).append(worker.instance_id)
            taken, answers = _each_region(
                facts.ec2,
                ids,
                RECLAIMS,
                ports,
                lambda region: ask(
                    ports,
                    region,
                    partial(ports.compute.reclaimed, region=region, instance_ids=ids[region]),
                    tick=facts.now,
                ),
                home=facts.deployment.region,
            )
            reclaimed: frozenset[str] = frozenset().union(*taken.values())
            return replace(facts, ec2=replace(answers, reclaimed=reclaimed))
        case _:
            return facts


def _ask_again(
    facts: TickFacts, answers: Ec2Answers, fleet: Fleet, ports: ControlPorts
) -> Ec2Answers:
    """Ask by id for workers that an answer misses although they are heard.

    One that the second answer misses too is gone. Without a second answer it is taken as there.
    """
    seen = dict(answers.instances or {})
    leased = {lease.instance_id for lease in fleet.leases if lease.deadline > facts.now}
    for region, views in seen.items():
        known = {view.instance_id for view in views}
        doubted = {
            worker.instance_id: worker
            for worker in fleet.present
            if worker.region == region
            and worker.instance_id not in known
            and facts.now - worker.launched_at > UNSEEN_FOR
            and is_heard(worker, leased, facts.policy, facts.now)
        }
        if not doubted:
            continue
        try:
            ours = _our_tags(facts).items()
            found = ask(
                ports,
                region,
                partial(ports.compute.described, region=region, instance_ids=sorted(doubted)),
                tick=facts.now,
            )
            # A row may name any instance.
            again = [view for view in found if ours <= view.tags.items()]
        except SpindownError as exc:
            answers = _failed(
                answers, region, exc, failure_of(exc, INSTANCES, region=region), ports
            )
            again = [assumed(worker) for worker in doubted.values()]
        if again:
            seen[region] = (*views, *again)
            about: About = {"region": region, "workers": len(again)}
            doubt = Reason(ReasonCode.ANSWER_DOUBTED, about)
            answers = replace(answers, failures=(*answers.failures, doubt))
    return replace(answers, instances=seen)


def _instances(
    facts: TickFacts, ports: ControlPorts, region: str, tags: Mapping[str, str]
) -> Sequence[InstanceView]:
    question = partial(ports.compute.instances, region=region, tags=tags)
    return ask(ports, region, question, tick=facts.now)


def _our_tags(facts: TickFacts) -> Mapping[str, str]:
    deployment = facts.deployment
    return tag.whose(deployment.name, facts.workload, home=deployment.region)


def question_due(facts: TickFacts, fleet: Fleet, *, is_launch_due: bool) -> str:
    """Return the question that has not been asked for longest, or "" if none is due."""
    now, described = facts.now, fleet.remembered.described_at
    if is_launch_due and _has_launched_enough(facts, fleet):
        return INSTANCES
    ends = [w.gone_at for w in fleet.present if w.gone_at is not None]
    if ends and (described is None or max(ends) > described - _EARLY):
        return INSTANCES
    if not fleet.present and not any(open_launches(fleet.launches.values())):
        return INSTANCES if _is_older(described, _ORPHANS_EVERY, now) else ""
    # What nobody has asked yet counts from the first launch that it could be about.
    begun = min((w.launched_at for w in fleet.workers.values()), default=now)
    asked = {INSTANCES: max(described or begun, begun)}
    if _watched(fleet):
        asked[RECLAIMS] = max(fleet.remembered.reclaims_seen_at or begun, begun)
    question, at = min(asked.items(), key=lambda item: item[1])
    if now - asked[INSTANCES] >= _AT_LATEST:
        # After ticks that did not come: what has ended meanwhile must be charged no further.
        question, at = INSTANCES, asked[INSTANCES]
    least = _AT_LATEST if is_launch_due else facts.policy.tick - _EARLY
    return question if now - at >= least else ""


def _has_launched_enough(facts: TickFacts, fleet: Fleet) -> bool:
    """Tell whether as many workers as there may be were launched since EC2 was last asked.

    Rows may say of all of them that they have ended; only EC2 knows.
    """
    since = fleet.remembered.described_at
    given = sum(
        len(x.instance_ids)
        for x in fleet.launches.values()
        if since is not None and x.intended_at > since
    )
    return given >= max(facts.policy.max_workers, 1)


def _each_region(
    answers: Ec2Answers,
    regions: Collection[str],
    asked: str,
    ports: ControlPorts,
    question: Callable[[str], T],
    *,
    home: str,
) -> tuple[dict[str, T], Ec2Answers]:
    """Return region -> answer for those that answer, and the answers with the others' failures."""
    found: dict[str, T] = {}
    # Home first: an outpost that hangs may leave no time for others.
    for region in sorted(regions, key=lambda name: (name != home, name)):
        try:
            found[region] = question(region)
        except SpindownError as exc:
            answers = _failed(answers, region, exc, failure_of(exc, asked, region=region), ports)
    return found, answers


def _failed(
    answers: Ec2Answers, region: str, error: SpindownError, why: Reason, ports: ControlPorts
) -> Ec2Answers:
    failed = replace(answers, failures=(*answers.failures, why))
    if not isinstance(error, Throttled):
        return failed
    jitter = failed.jitter if failed.throttled else ports.random.random()
    return replace(failed, throttled=failed.throttled | {region}, jitter=jitter)


def _regions_to_see(facts: TickFacts, fleet: Fleet) -> tuple[frozenset[str], bool]:
    """Return where rows expect something; every so often, all regions, and whether it is that."""
    requests = [decode_request(launch) for launch in open_launches(fleet.launches.values())]
    expecting = {w.region for w in fleet.present}
    expecting |= {request.region for request in requests if request is not None}
    expecting &= facts.settings.deployed_regions
    if expecting and not _is_older(fleet.remembered.swept_at, _ORPHANS_EVERY, facts.now):
        return frozenset(expecting), False
    return frozenset(expecting | facts.settings.regions.keys()), True


def _watched(fleet: Fleet) -> list[Worker]:
    return [
        w
        for w in fleet.workers.values()
        if w.is_live and w.capacity_type is CapacityType.SPOT and w.noticed_at is None
    ]


def _is_older(at: datetime | None, least: timedelta, now: datetime) -> bool:
    return at is None or now - at >= least
