"""Find out what became of launches whose answer was lost.

An intent without an outcome means that its reconcile died, or that EC2's answer did. Its
instances are found by their launch tag; if EC2 shows fewer than were asked for, the very same
request is made again under the same client token, which gives the first answer if there was one:
EC2 may have given less, or be slow in showing the rest. An intent too old
for EC2 to be merely slow in showing its instances never happened; only if nobody asked for over an
hour can it have happened and be over, unknown to anybody.
"""

import json
from collections.abc import Sequence
from datetime import timedelta

from spindown.app.port import LaunchedInstance, LaunchRequest, RefusalKind
from spindown.app.reconcile.launch.outcome import (
    back_off,
    backing_off_until,
    give_up,
    record_outcome,
)
from spindown.app.reconcile.tick import Tick, deployed_regions
from spindown.contract import tag
from spindown.contract.codec import decode, encode
from spindown.domain.fleet import Launch, LaunchState
from spindown.domain.reaping import ASKED_FOR, UNSEEN_FOR
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, ContractError, Throttled, Unreachable

#: Replaying later could launch for a backlog that is long gone; EC2's tokens live far longer.
_REPLAY_WITHIN: timedelta = UNSEEN_FOR
#: EC2 describes an instance that has ended for about an hour (EC2 User Guide, "Terminate
#: Amazon EC2 instances").
_DESCRIBED_FOR = timedelta(hours=1)
#: Reasons of launches that EC2 never answered.
UNANSWERED = frozenset({ReasonCode.NEVER_REACHED_EC2, ReasonCode.FATE_UNKNOWN})


def adopt(tick: Tick) -> None:
    """Complete every open intent of earlier reconciles, as far as EC2 answers."""
    for launch in list(tick.launches.values()):
        if launch.state is not LaunchState.INTENDED:
            continue
        request = decode_request(launch)
        if request is None:
            give_up(tick, launch, Reason(ReasonCode.REQUEST_UNREADABLE))
            continue
        if request.region not in deployed_regions(tick):
            # Its outpost has ended what there was, and with it went the right to ask.
            give_up(tick, launch, Reason(ReasonCode.REGION_REMOVED, {"region": request.region}))
            continue
        try:
            _adopt_one(tick, launch, request)
        except (AccessDenied, Throttled, Unreachable) as exc:
            # Of its region, and none of the others'.
            if isinstance(exc, Throttled):
                back_off(tick, request.region)
            tick.notes.append(f"launch {launch.launch_id} is still without an answer: {exc}")


def _adopt_one(tick: Tick, launch: Launch, request: LaunchRequest) -> None:
    found = [
        LaunchedInstance(
            instance_id=instance.instance_id,
            instance_type=instance.instance_type,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            launched_at=instance.launched_at,
        )
        for instance in tick.ports.compute.instances(
            region=request.region, tags={tag.LAUNCH: launch.launch_id}
        )
    ]
    is_told = tick.now - launch.intended_at <= _DESCRIBED_FOR
    may_be_more = tick.now - launch.intended_at <= _REPLAY_WITHIN and len(found) < launch.count
    if found and not may_be_more:
        is_whole = is_told or len(found) >= launch.count
        adopted = Reason(ReasonCode.ADOPTED if is_whole else ReasonCode.ADOPTED_IN_PART)
        record_outcome(tick, launch, request, found, (), adopted=adopted)
    elif may_be_more:
        if backing_off_until(tick, request.region) is not None:
            tick.notes.append(f"launch {launch.launch_id} waits: EC2 asked to slow down")
        else:
            _replay(tick, launch, request, found)
    elif tick.now - launch.intended_at > ASKED_FOR:
        give_up(
            tick,
            launch,
            Reason(ReasonCode.NEVER_REACHED_EC2 if is_told else ReasonCode.FATE_UNKNOWN),
        )


def _replay(
    tick: Tick, launch: Launch, request: LaunchRequest, found: Sequence[LaunchedInstance]
) -> None:
    answer = tick.ports.compute.launch(request)
    kinds = {refusal.kind for refusal in answer.refusals}
    if not answer.instances and kinds & {RefusalKind.ACCOUNT, RefusalKind.THROTTLE}:
        # This says why the replay was refused, and nothing of the first request.
        codes = sorted({refusal.code for refusal in answer.refusals})
        tick.notes.append(f"launch {launch.launch_id}: asked again, answered {', '.join(codes)}")
        return
    # What runs with its tag is its own, whatever is said of asking again.
    known = {one.instance_id for one in found}
    given = (*found, *(one for one in answer.instances if one.instance_id not in known))
    record_outcome(
        tick, launch, request, given, answer.refusals, adopted=Reason(ReasonCode.ADOPTED)
    )


def decode_request(launch: Launch) -> LaunchRequest | None:
    """Return the request of an intent; None if it cannot be read."""
    try:
        return decode(LaunchRequest, json.loads(launch.request))
    except (ContractError, ValueError, TypeError):
        return None


def encode_request(request: LaunchRequest) -> str:
    """Return a request as text, to be replayed verbatim."""
    return json.dumps(encode(request), sort_keys=True)
