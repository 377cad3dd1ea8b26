"""When an image is worth baking, and when instances may start from it: ``image.mode = "auto"``.

Every instance could install what it needs at its start. An image spares that and costs a build and
the storage of its snapshot. Nobody knows how many boots will come. So an image is baked once the
installs since the last one have cost as much as an image does: whatever comes then, both together
cost at most twice the least that was possible (the ski rental problem; A. Karlin et al.,
"Competitive snoopy caching", 1988).

Also decided in: ``control.bake`` (a bake begins), ``control.plan.launch_image`` (who starts from
it).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.value_range import Tally

#: A newer one is baked when an image is so old, if it is still earned; no instance starts from one
#: that is older than ``USED_FOR``, since its base lacks fixes of security. AWS's own patch baseline
#: gives a week; a month is what PCI DSS 4.0.1, requirement 6.3.3, gives for critical ones.
RENEWED_AFTER = timedelta(days=23)
USED_FOR = timedelta(days=30)
#: Then it is deleted, once a day (``infra.image_stack``).
_STORED_FOR = timedelta(days=37)
_MONTH = timedelta(days=365) / 12

#: An image is broken once so many of its instances in a row never check in. The breaker stops
#: launches at three: the third starts from the base image.
SILENT_AT_MOST = 2
#: After a failure the next build waits so long, twice as long after each further one.
_RETRY_AFTER = timedelta(days=1)
_DOUBLINGS = 5

#: USD a GiB and month of an EBS snapshot, standard tier (Amazon EBS pricing, us-east-1).
_SNAPSHOT_GIB_MONTH = 0.05
#: USD a GiB and month of a gp3 volume (the same).
_VOLUME_GIB_MONTH = 0.08
#: An image is built and tested on an m7i.large: USD an hour on demand in us-east-1, and hours: half
#: an hour to build, a quarter to test.
_BUILDER_HOUR = 0.1008
_BUILD_HOURS = 0.75
_MONTH_HOURS = 730.0
#: Of ``image.mode = "bake"``: one build a week, each kept for five, with that of this week.
_BAKES_A_MONTH = _MONTH / timedelta(weeks=1)
_BAKES_KEPT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHistory:
    """What was baked for one architecture of a workload; a row of the ledger."""

    #: Region -> id of the image that is there; empty: none was ever finished.
    images: Mapping[str, str] = field(default_factory=dict)
    #: A stamp of what it was baked with (``contract.image.make_stamp``).
    stamp: str = ""
    #: When its build began: its base image is as old.
    based_at: datetime | None = None
    #: Why no instance starts from it any more; NO_REASON: it is good as far as anybody knows.
    broken: Reason = NO_REASON
    #: Image Builder's name of the image that is being baked; "": none is.
    build: str = ""
    #: When the last build began, and how many have begun.
    begun_at: datetime | None = None
    builds: Tally = 0
    #: Builds and images in a row that were of no use, and what became of the last build.
    failures: Tally = 0
    failure: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class Installs:
    """What installing at boots costs."""

    #: In so many days, the last ones.
    boots: float
    days: float
    #: Median of a boot from the base image, and of one from a baked image.
    seconds: float
    seconds_baked: float
    #: Mean of the machines, USD.
    dollars_per_hour: float

    @property
    def dollars(self) -> float:
        """Return what a baked image would have spared in those days, USD."""
        spared = max(self.seconds - self.seconds_baked, 0.0)
        return self.boots * spared / 3600.0 * self.dollars_per_hour

    def a_month(self, seconds: float) -> float:
        """Return what boots with so long an install cost in a month like those days, USD."""
        return self.boots_a_month * seconds / 3600.0 * self.dollars_per_hour

    @property
    def boots_a_month(self) -> float:
        """Return the boots of a month like those days."""
        return self.boots * (_MONTH / timedelta(days=1)) / max(self.days, 1.0)


def snapshots_at_most(root_gib: float, images: int = 1) -> float:
    """Return what a month of a workload's images costs at most in the mode ``bake``, USD.

    Args:
        root_gib: of the root volume; a snapshot holds the blocks that differ from the one before.
        images: kinds of images: one for each architecture and region.
    """
    return root_gib * _SNAPSHOT_GIB_MONTH * _BAKES_KEPT * images


def image_dollars(root_gib: float, copies: int) -> float:
    """Return what one image costs from its build to its deletion at most, USD.

    Worked: 100 GiB in one region: 0.75 h x (0.1008 + 0.011) + 100 x 0.05 x 37 days = 6.17 USD.

    Args:
        root_gib: of the root volume; a snapshot holds the blocks that were written alone.
        copies: regions in which it is stored.
    """
    stored = root_gib * _SNAPSHOT_GIB_MONTH * (_STORED_FOR / _MONTH) * copies
    return _build_dollars(root_gib) + stored


def _build_dollars(root_gib: float) -> float:
    return _BUILD_HOURS * (_BUILDER_HOUR + root_gib * _VOLUME_GIB_MONTH / _MONTH_HOURS)


def compare_modes(
    bootstrap: float, still: float, *, root_gib: float, architectures: int, regions: int
) -> Mapping[str, float]:
    """Return ``image.mode`` -> what installs and images cost a month, USD.

    Making and storing an image of one's own (``ami``) is not in.

    Args:
        bootstrap: what installs at boots cost from the base image.
        still: what they cost from a baked image.
        root_gib: of the root volume.
        architectures: for each there is an image of its own.
        regions: in which images are stored.
    """
    weekly = _BAKES_A_MONTH * _build_dollars(root_gib)
    stored = snapshots_at_most(root_gib, regions)
    renewed = image_dollars(root_gib, regions) * (_MONTH / RENEWED_AFTER) * architectures
    return {
        "auto": min(bootstrap, still + renewed),
        "bootstrap": bootstrap,
        "bake": still + (weekly + stored) * architectures,
        "ami": still,
    }


def find_image(
    history: ImageHistory | None, *, stamp: str, region: str, now: datetime
) -> tuple[str, Reason]:
    """Return the image to start from, or "" and why it is the base image.

    Args:
        history: of the architecture; None: nothing was baked.
        stamp: what instances must have installed.
        region: where they are launched.
        now: the present.
    """
    if history is None or not history.images or history.based_at is None:
        return "", Reason(ReasonCode.IMAGE_NOT_BAKED)
    if history.broken:
        return "", history.broken
    if history.stamp != stamp:
        return "", Reason(ReasonCode.IMAGE_STALE, {"image": history.images.get(region, "")})
    if now - history.based_at >= USED_FOR:
        days = round((now - history.based_at) / timedelta(days=1))
        return "", Reason(ReasonCode.IMAGE_OLD, {"days": days})
    image = history.images.get(region, "")
    return image, NO_REASON if image else Reason(ReasonCode.IMAGE_ELSEWHERE, {"region": region})


def is_bake_due(
    history: ImageHistory, *, stamp: str, installs: Installs, dollars: float, now: datetime
) -> bool:
    """Tell whether an image is to be baked now.

    Args:
        history: of the architecture.
        stamp: what would be baked.
        installs: since the last build began, whether images have spared them or not.
        dollars: what an image costs (``image_dollars``), of all architectures together.
        now: the present.
    """
    if history.build or installs.dollars < dollars:
        return False
    if history.failures and history.begun_at is not None:
        pause = _RETRY_AFTER * 2 ** min(history.failures - 1, _DOUBLINGS)
        if now - history.begun_at < pause:
            return False
    is_fresh = history.based_at is not None and now - history.based_at < RENEWED_AFTER
    return not (is_fresh and history.images and history.stamp == stamp and not history.broken)
