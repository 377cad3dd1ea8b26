"""Have images baked once they are earned, and note what became of them: once an hour.

When one is earned is decided in ``domain.bake_or_bootstrap``. That is for the mode `auto`: with
`bake` the deploy and a weekly schedule bake (``infra.image_stack``).
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.settings import BakeSettings, WorkloadSettings
from spindown.control.plan.launch_image import installs_since
from spindown.domain.bake_or_bootstrap import ImageHistory, image_dollars, is_bake_due
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.error import SpindownError
from spindown.ledger import Ledger, LedgerView
from spindown.port import ControlPorts, ImageBuild, ImageBuilder

#: A build takes an hour and a half at most by its own limits (``infra.image_stack``), and the
#: copies to other regions some more; one that has not ended by then counts as failed.
_BUILT_WITHIN = timedelta(hours=6)


def keep_images(workload: str, ports: ControlPorts) -> Mapping[str, str]:
    """Look after the images of one workload.

    Return architecture -> state of a build that is under way or has just ended.

    Raises:
        SpindownError: the ledger or the settings could not be read, or a build not be started; the
            next run tries again, and starts the same build once.
    """
    settings, _ = ports.settings.workload(workload)
    bake, builder = settings.bake, ports.builder
    if bake is None or builder is None:
        return {}
    ledger, now = Ledger(ports.table, workload), ports.clock.now()
    view, done = ledger.read(), {}
    for architecture, pipeline in sorted(bake.pipelines.items()):
        known = view.images.get(architecture, ImageHistory())
        sort = rows.image_sort_key(architecture)
        if known.build:
            build = _read(builder, known, now)
            done[architecture] = build.state
            changes = _ended(known, build, bake)
        elif _is_due(known, settings, bake, view, now):
            token = _token(ports.name, workload, architecture, known)
            changes = {
                "build": builder.start(pipeline, token=token),
                "begun_at": now,
                "builds": known.builds + 1,
                # What has served to its end was of use.
                "failures": known.failures if known.broken or known.failure else 0,
            }
            done[architecture] = "STARTED"
        else:
            continue
        if changes:
            ledger.write(ledger.put(sort, replace_fields(known, changes)))
    return done


def _read(builder: ImageBuilder, known: ImageHistory, now: datetime) -> ImageBuild:
    try:
        build = builder.read(known.build)
    except SpindownError as exc:
        build = ImageBuild(state="UNKNOWN", said=str(exc))
    is_late = known.begun_at is None or now - known.begun_at > _BUILT_WITHIN
    is_over = build.images or build.has_failed
    return build if is_over or not is_late else replace_fields(build, {"has_failed": True})


def _ended(known: ImageHistory, build: ImageBuild, bake: BakeSettings) -> Mapping[str, object]:
    """Return what changes in the row; nothing while the build is under way."""
    if build.images:
        return {
            "images": build.images,
            "stamp": build.stamp or bake.stamp,
            "based_at": known.begun_at,
            "broken": NO_REASON,
            "build": "",
            "failure": NO_REASON,
        }
    if build.has_failed:
        about = {"state": build.state, "said": build.said}
        return {
            "build": "",
            "failures": known.failures + 1,
            "failure": Reason(ReasonCode.IMAGE_BUILD_FAILED, about),
        }
    return {}


def _is_due(
    known: ImageHistory,
    settings: WorkloadSettings,
    bake: BakeSettings,
    view: LedgerView,
    now: datetime,
) -> bool:
    installs = installs_since(view.rates, view.spend, since=known.begun_at, now=now)
    regions = settings.deployed_regions
    dollars = image_dollars(settings.run.root_volume_gib, len(regions)) * len(bake.pipelines)
    return installs is not None and is_bake_due(
        known, stamp=bake.stamp, installs=installs, dollars=dollars, now=now
    )


def _token(deployment: str, workload: str, architecture: str, known: ImageHistory) -> str:
    """Return what names the next build: the same until its row is written."""
    text = f"{deployment}/{workload}/{architecture}/{known.builds}/{known.begun_at}"
    return hashlib.sha256(text.encode()).hexdigest()
