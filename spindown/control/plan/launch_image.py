"""Which image instances start from, and when one of them is given up.

The hourly function has images baked (``functions.offers``, ``control.bake``). Here a tick takes the
one that is there, and falls back to the base image by itself.
"""

from collections.abc import Iterator, Mapping
from datetime import date, datetime

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.row import SpendRow
from spindown.control.observe.observation import TickFacts, decode_request
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.domain.bake_or_bootstrap import (
    SILENT_AT_MOST,
    ImageHistory,
    Installs,
    compare_modes,
    find_image,
)
from spindown.domain.fleet import Launch, Worker
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.ledger.knowledge import install_seconds
from spindown.port import LaunchRequest, Refusal, When, Write

#: EC2's words for an image that is gone, or that no instance can be made of.
_OF_IMAGES = (
    "InvalidAMIID.Malformed",
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
    "InvalidBlockDeviceMapping",
    "InvalidSnapshot.NotFound",
)
_DENIED = "UnauthorizedOperation"


def image_for(
    facts: TickFacts, images: Mapping[str, ImageHistory], architecture: str, region: str
) -> tuple[str, Reason]:
    """Return the image that a launch takes, or "" for the template's own, and why it is that."""
    bake = facts.settings.bake
    if bake is None:
        return "", NO_REASON
    return find_image(images.get(architecture), stamp=bake.stamp, region=region, now=facts.now)


def image_of(launch: Launch | None) -> str:
    """Return the baked image that a launch took; "": none, or nobody knows."""
    request = None if launch is None else decode_request(launch)
    return "" if request is None else request.image


def give_up_silent(draft: PlanDraft, worker: Worker, silent: int) -> PlanDraft:
    """Give up the image of a worker that never checked in, if it is not the first in a row."""
    if draft.facts.settings.bake is None or silent < SILENT_AT_MOST:
        return draft
    image = image_of(draft.fleet.launch_of(worker))
    reason = Reason(ReasonCode.IMAGE_SILENT, {"image": image, "count": silent})
    actions, images = [], dict(draft.fleet.images)
    for architecture, known, write in _give_up(draft.facts, images, image, reason):
        images[architecture] = known
        actions.append(
            Action(
                kind=ActionKind.GIVE_UP_IMAGE,
                subject=image,
                reason=reason,
                writes=(write,),
                depends_on=worker.instance_id,
            )
        )
    return draft.act(actions, images=images) if actions else draft


def give_up_refused(
    facts: TickFacts, images: Mapping[str, ImageHistory], request: LaunchRequest, refusal: Refusal
) -> Iterator[tuple[str, ImageHistory, Write]]:
    """Yield what a refusal says of the image of a request: its architecture, and a write."""
    if blames_image(request, refusal):
        about = {"image": request.image, "refusal": refusal.code}
        yield from _give_up(facts, images, request.image, Reason(ReasonCode.IMAGE_REFUSED, about))


def blames_image(request: LaunchRequest, refusal: Refusal) -> bool:
    """Tell whether a request was refused for the baked image that it named.

    A denial by IAM names the resource that it is about.
    """
    is_denied = refusal.code == _DENIED and f"image/{request.image} " in f"{refusal.message} "
    return bool(request.image) and (refusal.code in _OF_IMAGES or is_denied)


def _give_up(
    facts: TickFacts, images: Mapping[str, ImageHistory], image: str, reason: Reason
) -> Iterator[tuple[str, ImageHistory, Write]]:
    for architecture, known in images.items():
        if image and image in known.images.values() and not known.broken:
            changes = {"broken": reason, "failures": known.failures + 1}
            # One baked with other things may be there by now.
            when = When(exists=True, equals={"stamp": known.stamp})
            write = facts.rows.change(rows.image_sort_key(architecture), changes, when=when)
            yield architecture, replace_fields(known, changes), write


def installs_since(
    rates: Mapping[str, rows.RateRow],
    spend: Mapping[str, SpendRow],
    *,
    since: datetime | None,
    now: datetime,
) -> Installs | None:
    """Return what installs cost since then, by whole days; None: no install was ever measured.

    A day counts only once it is over, and that of ``since`` itself does not.
    """
    seconds = install_seconds(rates, rows.BOOT_PHASE)
    if seconds is None:
        return None
    today = now.date().isoformat()
    begin = "" if since is None else since.date().isoformat()
    names = sorted(name for name in spend if begin < name < today)
    days = [spend[name] for name in names]
    span = (now.date() - date.fromisoformat(names[0])).days if names else 1
    paid = sum(day.paid_seconds for day in days)
    return Installs(
        boots=float(sum(day.instances for day in days)),
        days=float(span),
        seconds=seconds,
        seconds_baked=install_seconds(rates, rows.BAKED_PHASE) or 0.0,
        dollars_per_hour=sum(day.dollars for day in days) / paid * 3600.0 if paid > 0.0 else 0.0,
    )


def tell_images(facts: TickFacts, images: Mapping[str, ImageHistory]) -> Iterator[Reason]:
    """Yield what a person should know: which image is used, and what each mode costs a month."""
    bake = facts.settings.bake
    if bake is None:
        return
    home = facts.deployment.region
    for architecture in sorted(bake.pipelines):
        image, why = image_for(facts, images, architecture, home)
        known = images.get(architecture, ImageHistory())
        is_failing = not image and known.failure and why.code is not ReasonCode.IMAGE_SILENT
        used = Reason(ReasonCode.IMAGE_USED, {"image": image})
        yield used if image else (known.failure if is_failing else why)
    installs = installs_since(facts.view.rates, facts.view.spend, since=None, now=facts.now)
    if installs is not None and installs.boots:
        costs = compare_modes(
            installs.a_month(installs.seconds),
            installs.a_month(installs.seconds_baked),
            root_gib=facts.settings.run.root_volume_gib,
            architectures=len(bake.pipelines),
            regions=len(facts.settings.deployed_regions),
        )
        rounded = {mode: round(dollars, 2) for mode, dollars in costs.items()}
        yield Reason(ReasonCode.IMAGE_MODES, {"boots": round(installs.boots_a_month), **rounded})
