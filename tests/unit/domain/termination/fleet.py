"""A fleet as the ledger and EC2 show it, and what is ended of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Policy
from spindown.domain.termination import Terminations, find_terminations
from tests.builders import NOW, a_worker, minutes

POLICY = Policy(idle_timeout=minutes(10), scale_down_delay=minutes(2), tick=minutes(1))


@dataclass(frozen=True, kw_only=True)
class Box:
    """An instance as EC2 describes it."""

    instance_id: str = "i-1"
    state: str = "running"
    launched_at: datetime = NOW - minutes(30)
    state_reason: str = ""


def reaped(
    *workers: Worker, instances: Sequence[Box] | None = None, **changes: Any
) -> Terminations:
    running = [Box(instance_id=w.instance_id, launched_at=w.launched_at) for w in workers]
    return find_terminations(
        **{
            "workers": workers,
            "instances": running if instances is None else instances,
            "policy": POLICY,
            "knowledge": Knowledge(),
            "now": NOW,
            **changes,
        }
    )


def condemned(found: Terminations) -> list[str]:
    return [each.instance_id for each in found.condemn]


def busy(instance_id: str = "i-1", **changes: Any) -> Worker:
    return a_worker(instance_id, state=WorkerState.BUSY, busy_slots=1, **changes)
