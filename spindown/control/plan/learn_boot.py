"""Learn how long boots take, by the workers that a tick finds at work; note the GPU memory used.

``domain.learning`` (``boot_p50``, ``boot_p95``) makes estimates of it. What jobs need is learned
hourly, in ``control.rightsizing``.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from spindown.contract import row as rows
from spindown.contract.row import RateRow, SpendRow
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.breaker import forget_silence
from spindown.control.plan.launch_image import image_of
from spindown.control.plan.launch_outcome import ADOPTED
from spindown.domain.boot import BootPhase
from spindown.domain.fleet import Worker

#: Samples that a learned quantity keeps.
SAMPLES_AT_MOST = 50


def learn(draft: PlanDraft, sort: str, values: Sequence[float]) -> Action:
    """Return what adds to the samples of a learned quantity that only ticks write."""
    known = draft.facts.view.rates.get(sort, RateRow()).samples
    samples = (*known, *values)[-SAMPLES_AT_MOST:]
    write = draft.rows.change(sort, {"samples": samples, "updated_at": draft.now})
    return Action(kind=ActionKind.LEARN, subject=sort, writes=(write,))


def learn_boots(draft: PlanDraft) -> PlanDraft:
    """Learn from the workers that have begun to work since the last tick, or have checked in.

    A boot is over when code has its first item: a model that is loaded after the check-in makes
    work wait as well.
    """
    samples: dict[str, list[float]] = {}
    most = draft.facts.policy.max_lifetime.total_seconds()
    for worker in draft.fleet.present:
        checked_in_at = _as_written(draft, worker).checked_in_at
        found = list(_boot_of(draft, worker))
        if checked_in_at is not None and _has_just(draft, worker, checked_in_at):
            draft = forget_silence(draft, worker)
            if not _was_adopted(draft, worker):
                seconds = (checked_in_at - worker.launched_at).total_seconds()
                found.append((rows.CHECK_IN_RATE, seconds))
        for sort, seconds in found:
            samples.setdefault(sort, []).append(min(seconds, most))
    return draft.act([learn(draft, sort, found) for sort, found in sorted(samples.items())])


def _boot_of(draft: PlanDraft, worker: Worker) -> Iterator[tuple[str, float]]:
    """Yield what a worker's boot teaches, as a whole and by phases, if it has just ended."""
    at = _as_written(draft, worker).first_item_at
    # One that was adopted may have waited for its row, or was asked for more than once.
    if at is None or not _has_just(draft, worker, at) or _was_adopted(draft, worker):
        return
    is_baked = _was_baked(draft, worker)
    rate, phases = (
        (rows.BAKED_RATE, rows.BAKED_PHASE) if is_baked else (rows.BOOT_RATE, rows.BOOT_PHASE)
    )
    yield rate, (at - worker.launched_at).total_seconds()
    for phase in BootPhase:
        if phase in worker.boot_phases:
            yield f"{phases}{phase}", worker.boot_phases[phase]


def _was_baked(draft: PlanDraft, worker: Worker) -> bool:
    """Tell whether a worker's launch took an image that the functions had baked."""
    if draft.facts.settings.bake is None:
        return False
    return bool(image_of(draft.fleet.launch_of(worker)))


def _as_written(draft: PlanDraft, worker: Worker) -> Worker:
    """Return a worker as its row tells, before anything was corrected."""
    return draft.facts.view.workers.get(worker.instance_id, worker)


def _has_just(draft: PlanDraft, worker: Worker, at: datetime | None) -> bool:
    """Tell whether something was since the last tick, by the clock of neither in future."""
    last_tick = draft.facts.view.backlog.seen_at or worker.launched_at
    return at is not None and max(last_tick, worker.launched_at) <= at <= draft.now


def _was_adopted(draft: PlanDraft, worker: Worker) -> bool:
    launch = draft.fleet.launch_of(worker)
    return launch is not None and launch.reason.code in ADOPTED


def record_vram(draft: PlanDraft) -> PlanDraft:
    """Keep the most GPU memory that any worker has used today."""
    sort = rows.spend_sort_key(draft.now)
    today = draft.facts.view.spend.get(sort.removeprefix(rows.SPEND), SpendRow())
    most = max((w.vram_gib or 0.0 for w in draft.fleet.workers.values()), default=0.0)
    if most <= today.vram_gib_max:
        return draft
    write = draft.rows.change(sort, {"vram_gib_max": most})
    return draft.act([Action(kind=ActionKind.LEARN, subject=sort, writes=(write,))])
