"""What EC2 says to the scaler of launches that are not made: which pools it may not have, and why.

The scaler asks with its own role, so what a policy, a boundary or a wrong grant forbids shows. A
pool that EC2 refuses is left out of the offers; only where it refuses all of them can nothing be
launched.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from spindown.contract.rehearsal import (
    POOLS_AT_MOST,
    Rehearsal,
    RehearsalRequest,
    RehearsedLaunch,
    RehearsedPool,
)
from spindown.domain.offer import Offer, Pool
from spindown.operate.doctor.check import OfferChoice
from spindown.operate.doctor.finding import Finding, Severity, join
from spindown.operate.doctor.unknown import Unknown, ask
from spindown.port import RefusalKind
from spindown.reason_text import say_count

_Key = TypeVar("_Key", bound=Hashable)
Rehearser = Callable[[RehearsalRequest], Rehearsal]

#: Pools of all workloads together, below what a minute has room for; and of one, whatever that is.
_POOLS_OF_ALL = 48
_POOLS_AT_LEAST = 6
#: Pools that one finding names.
_NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What became of the rehearsal of one workload."""

    answer: Rehearsal | Unknown
    #: Offers that may be bought, of which a sample was asked about.
    offers: int
    #: Templates, zones and capacity types of these of which there was no room for a single one.
    unasked: tuple[str, ...] = ()


def rehearse_all(
    choices: Sequence[OfferChoice], rehearse: Rehearser | None
) -> Mapping[str, Rehearsed]:
    """Have a sample of the launches of each deployed workload checked; by workload."""
    found: dict[str, Rehearsed] = {}
    at_most = min(POOLS_AT_MOST, max(_POOLS_AT_LEAST, _POOLS_OF_ALL // max(len(choices), 1)))
    for choice in choices:
        case = choice.case
        offers = [one for one in choice.fitting if case.places[one.region].templates]
        if rehearse is None or not case.is_deployed or not offers:
            continue
        asked = sample(offers, at_most)
        request = RehearsalRequest(workload=case.name, pools=tuple(map(_pool, asked)))
        found[case.name] = Rehearsed(
            answer=_ask(rehearse, request), offers=len(offers), unasked=name_unasked(offers, asked)
        )
    return found


def _ask(rehearse: Rehearser, request: RehearsalRequest) -> Rehearsal | Unknown:
    return ask(lambda: rehearse(request))


def sample(offers: Sequence[Offer], at_most: int = POOLS_AT_MOST) -> list[Offer]:
    """Return the offers to ask about, of ``offers`` in the order of their rank.

    First the best of each template, capacity type and zone, then the best of each instance type and
    capacity type, then the others by their rank: what is refused by zone, by type or by capacity
    type shows with few questions.
    """
    by_zone = _firsts(offers, _way).values()
    by_type = _firsts(offers, lambda o: (o.instance_type.name, o.capacity_type)).values()
    ordered = {offer.pool: offer for offer in chain(by_zone, by_type, offers)}
    return list(ordered.values())[:at_most]


def name_unasked(offers: Sequence[Offer], asked: Sequence[Offer]) -> tuple[str, ...]:
    """Name each zone with capacity type and template of which no offer is asked about."""
    left = _firsts(offers, _way).keys() - _firsts(asked, _way).keys()
    return tuple(f"{zone}, {kind}, {template}" for zone, template, kind in sorted(left))


def _way(offer: Offer) -> tuple[str, str, str]:
    """Return zone, template and capacity type, each of which an account's rule may refuse."""
    return offer.zone, offer.instance_type.architecture, offer.capacity_type


def _firsts(offers: Sequence[Offer], key: Callable[[Offer], _Key]) -> dict[_Key, Offer]:
    found: dict[_Key, Offer] = {}
    for offer in offers:
        found.setdefault(key(offer), offer)
    return found


def _pool(offer: Offer) -> RehearsedPool:
    return RehearsedPool(
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type.name,
        architecture=offer.instance_type.architecture,
        capacity_type=offer.capacity_type,
    )


def leave_out(
    choices: Sequence[OfferChoice], rehearsed: Mapping[str, Rehearsed]
) -> tuple[OfferChoice, ...]:
    """Return the choices without the pools that EC2 refuses."""
    return tuple(
        replace(choice, refused=_refused(rehearsed.get(choice.case.name))) for choice in choices
    )


def _refused(one: Rehearsed | None) -> dict[Pool, str]:
    if one is None or isinstance(one.answer, Unknown):
        return {}
    return {each.pool.pool: each.code for each in one.answer.launches if each.code}


def check_rehearsals(rehearsed: Mapping[str, Rehearsed]) -> Iterator[Finding]:
    """Judge what EC2 said of the launches of each workload."""
    for workload, one in sorted(rehearsed.items()):
        yield from _check(f"rehearsal of {workload}", one)


def _check(what: str, one: Rehearsed) -> Iterator[Finding]:
    if isinstance(one.answer, Unknown):
        yield Finding(
            what=what,
            found=one.answer.reason,
            needed="an answer of the scaler, which asks EC2 with its own role",
            remedy=one.answer.remedy(
                "grant what `spindown iam operator` prints; then see the log of the scaler"
            ),
            severity=Severity.WARNING,
        )
        return
    launches = one.answer.launches
    good = [each for each in launches if not each.code]
    if good:
        found = f"EC2 would launch {len(good)} of {len(launches)} pools that were asked about"
        yield Finding(what=what, found=f"{found}, of {say_count(one.offers, 'offer')}")
    if one.unasked:
        yield Finding(
            what=what,
            found=f"there was no room to ask about any pool of {'; '.join(one.unasked)}; ticks try "
            "them, and leave out what EC2 refuses",
        )
    if one.answer.ended:
        yield Finding(
            what=what,
            found=f"ended early: {one.answer.ended}",
            needed="an answer for each pool",
            remedy="run `spindown doctor` again in a minute",
            # That says nothing of the deployment.
            severity=Severity.GOOD if one.answer.is_used_up else Severity.WARNING,
        )
    for code in dict.fromkeys(each.code for each in launches if each.code):
        alike = [each for each in launches if each.code == code]
        yield _check_code(what, code, alike, is_all=not good)


def _check_code(what: str, code: str, alike: Sequence[RehearsedLaunch], *, is_all: bool) -> Finding:
    first = alike[0]
    is_for_good = first.kind == RefusalKind.ACCOUNT
    return Finding(
        what=what,
        found=f"{code} for {name_pools([each.pool for each in alike])}: {first.said}",
        needed="a launch that EC2 would make; what it refuses is left out",
        remedy=_remedy(code, is_all=is_all),
        severity=Severity.BLOCKED if is_all and is_for_good else Severity.WARNING,
    )


def name_pools(pools: Sequence[RehearsedPool]) -> str:
    """Return what the pools have in common, or some of them."""
    types = {one.instance_type for one in pools}
    zones = {one.zone for one in pools}
    kinds = {one.capacity_type.value for one in pools}
    if len(types) == 1:
        return f"{join(types)} in {join(zones)}, {join(kinds)}"
    if len(zones) == 1:
        return f"{len(types)} types in {join(zones)}, {join(kinds)}"
    named = [f"{one.instance_type} in {one.zone}, {one.capacity_type}" for one in pools[:_NAMED]]
    more = len(pools) - len(named)
    return "; ".join(named) + (f" and {more} more" if more else "")


def _remedy(code: str, *, is_all: bool) -> str:
    if code in _DENIED and is_all:
        return (
            "allow the scaler's role what `spindown docs account` lists: look at its permissions "
            "boundary and at your organisation's policies (aws sts decode-authorization-message)"
        )
    if code in _DENIED:
        return (
            "nothing, the other offers are bought; or have your organisation's policy allow it; "
            "or leave it out by gpu_names, families_denied or zones"
        )
    return _REMEDIES.get(code, "fix what EC2 names, in the file or the account, and deploy")


_DENIED = frozenset({"AccessDenied", "UnauthorizedOperation"})
#: Code -> what to do. Source: Amazon EC2 API Reference, "Error codes".
_REMEDIES: Mapping[str, str] = {
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": "aws iam create-service-linked-role "
    "--aws-service-name spot.amazonaws.com",
    "InvalidBlockDeviceMapping": "raise root_volume_gib in [workload.NAME.image], and deploy",
    "InvalidParameterCombination": "read EC2's words; an account of the free plan can launch a few "
    "small types alone",
    "OptInRequired": "subscribe to what EC2 names, or activate the account in the AWS console",
    "PendingVerification": "wait until AWS has verified the account, up to four hours",
    "Unsupported": "nothing, the other offers are bought",
}
