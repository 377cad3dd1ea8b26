"""Plan what becomes of launches whose answer was lost: adopt, ask again, or give up."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from spindown.contract import row as rows
from spindown.control.observe.fleet import open_launches
from spindown.control.observe.observation import decode_request, is_own_request
from spindown.control.plan.action import Action, ActionKind, Adopt, PlanDraft, Replay
from spindown.control.plan.launch_outcome import close_launch, complete_launch
from spindown.control.plan.throttling import backing_off_until
from spindown.domain.fleet import Launch, LaunchState
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.termination import ASKED_FOR, UNSEEN_FOR
from spindown.port import InstanceView, LaunchedInstance, LaunchRequest

#: Making a request again later could launch for a backlog that is long gone; EC2's tokens live
#: far longer.
_REPLAY_WITHIN: timedelta = UNSEEN_FOR
#: EC2 describes an instance that has ended for about an hour (EC2 User Guide, "Terminate
#: Amazon EC2 instances").
_DESCRIBED_FOR = timedelta(hours=1)


def adopt_launches(draft: PlanDraft) -> PlanDraft:
    """Plan what becomes of launches whose answer was lost.

    Their instances are found by their launch's tag. If EC2 shows fewer than were asked for, the
    very same request is made again under the same client token, which gives the first answer if
    there was one: EC2 may have given less, or be slow in showing the rest. A launch too old for EC2
    to be merely slow in showing its instances never happened; only if nobody asked for over an hour
    can it have happened and be over, unknown to anybody.
    """
    facts = draft.facts
    for launch in open_launches(draft.fleet.launches.values()):
        request = decode_request(launch)
        if request is None:
            draft = _give_up(draft, launch, Reason(ReasonCode.REQUEST_UNREADABLE))
        elif request.region not in facts.settings.deployed_regions:
            # Its outpost has ended what there was, and with it went the right to ask.
            removed = Reason(ReasonCode.REGION_REMOVED, {"region": request.region})
            draft = _give_up(draft, launch, removed)
        elif launch.launch_id in facts.ec2.of_launches:
            draft = _adopt(draft, launch, request, facts.ec2.of_launches[launch.launch_id])
    return draft


def _adopt(
    draft: PlanDraft, launch: Launch, request: LaunchRequest, instances: Sequence[InstanceView]
) -> PlanDraft:
    found = tuple(instances)
    age = draft.now - launch.intended_at
    is_described = age <= _DESCRIBED_FOR
    may_be_more = age <= _REPLAY_WITHIN and len(found) < launch.count
    if found and not may_be_more:
        is_whole = is_described or len(found) >= launch.count
        code = ReasonCode.ADOPTED if is_whole else ReasonCode.ADOPTED_IN_PART
        return _complete(draft, launch, request, found, Reason(code))
    if may_be_more:
        return _ask_again(draft, launch, request, found)
    if age > ASKED_FOR:
        code = ReasonCode.NEVER_REACHED_EC2 if is_described else ReasonCode.FATE_UNKNOWN
        return _give_up(draft, launch, Reason(code))
    return draft


def _ask_again(
    draft: PlanDraft,
    launch: Launch,
    request: LaunchRequest,
    found: tuple[LaunchedInstance, ...],
) -> PlanDraft:
    """Make the same request again, unless it must not be made.

    Then what EC2 shows too late would have no row: it is waited for as long as that may take. A
    launch that gave less than was asked for waits only then: asked again, EC2 says at once that
    this was all.
    """
    if refused := _why_not_again(draft, launch, request):
        return draft.act(notes=[refused])
    is_read = request.region in draft.facts.settings.regions
    until = backing_off_until(draft.fleet, request.region, draft.now)
    if until is not None or not is_read:
        about = {"launch_id": launch.launch_id, "region": request.region}
        return draft.act(notes=[Reason(ReasonCode.LAUNCH_WAITS, about)])
    replay = Replay(
        kind=ActionKind.REPLAY,
        subject=launch.launch_id,
        launch=launch,
        request=request,
        found=found,
    )
    return draft.act([replay])


def _why_not_again(draft: PlanDraft, launch: Launch, request: LaunchRequest) -> Reason:
    """Return why a stored request must not be made again; NO_REASON: it may be.

    It must be one of the scaler's own, and the workers that live and those asked for again must
    not be more than there may be. An outpost that cannot be read is waited for.
    """
    facts, most = draft.facts, draft.facts.policy.max_workers
    if request.region not in facts.settings.regions:
        return NO_REASON
    if not is_own_request(launch, request, facts):
        return Reason(ReasonCode.REQUEST_ALTERED)
    asked = [each.launch for each in draft.actions if isinstance(each, Replay)]
    others = (w for w in draft.fleet.workers.values() if w.launch_id != launch.launch_id)
    live = sum(w.holds_place for w in others)
    if live + sum(each.count for each in (*asked, launch)) > most:
        return Reason(ReasonCode.MAX_WORKERS, {"max_workers": most})
    return NO_REASON


def _complete(
    draft: PlanDraft,
    launch: Launch,
    request: LaunchRequest,
    found: Sequence[LaunchedInstance],
    reason: Reason,
) -> PlanDraft:
    facts, fleet = draft.facts, draft.fleet
    known = fleet.workers.keys() | facts.view.unreadable_workers
    outcome = complete_launch(launch, request, found, (), facts=facts, known=known, adopted=reason)
    served = outcome.served & fleet.pool_cooldowns.keys()
    action = Adopt(
        kind=ActionKind.ADOPT,
        subject=launch.launch_id,
        reason=reason,
        writes=(
            *outcome.writes,
            *(
                draft.rows.delete(rows.pool_cooldown_sort_key(pool))
                for pool in sorted(served, key=str)
            ),
        ),
        record=outcome.record,
        workers=tuple(outcome.workers),
    )
    backoffs = {k: v for k, v in fleet.remembered.backoffs.items() if k != request.region}
    return (
        draft.with_workers(outcome.workers, [action])
        .act(
            launches={**fleet.launches, launch.launch_id: outcome.launch},
            pool_cooldowns={p: x for p, x in fleet.pool_cooldowns.items() if p not in served},
        )
        .remember(backoffs=backoffs)
    )


def _give_up(draft: PlanDraft, launch: Launch, reason: Reason) -> PlanDraft:
    """Close an intent that never became a launch."""
    done = replace(launch, state=LaunchState.REFUSED, reserved_usd=0.0, reason=reason)
    action = Action(
        kind=ActionKind.GIVE_UP,
        subject=launch.launch_id,
        reason=reason,
        writes=close_launch(launch, done, draft.facts),
    )
    return draft.act([action], launches={**draft.fleet.launches, launch.launch_id: done})
