"""The scenarios S1 to S11: what arrives, what is sold, and what goes wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spindown.domain.policy import Policy
from spindown.simulator import SimScenario
from tests.bench.compare.source import Part
from tests.bench.compare.traffic import bursts, images, office, shock, stream, training
from tests.bench.compare.trouble import crowd, faults, hot, starved

#: Nothing is launched before it must be: no number of messages makes a launch due at once.
_NEVER_AT_ONCE = 1_000_000
#: Of every fleet: more than any of the scenarios needs at once.
MAX_WORKERS = 200


def patient_policy(minutes: float) -> Policy:
    """Return the one policy that all scenarios are run with: the promise, and room to keep it."""
    return Policy(
        start_within=timedelta(minutes=minutes),
        scale_up_threshold=_NEVER_AT_ONCE,
        max_workers=MAX_WORKERS,
        max_price_per_hour=5.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    #: From a seed, the data's directory and a part of it.
    build: Callable[[int, Path, Part], SimScenario]
    #: Whether it is among S1 to S5, over which the mean ratio is taken.
    is_main: bool = False
    needs_data: bool = True


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case(
            name="S1",
            title="office batches, 200 GPU-hours a month, a week of it",
            build=office,
            is_main=True,
            needs_data=False,
        ),
        Case(
            name="S2 x0.6",
            title="image requests (GenTD26), thinned to 0.6",
            build=images(0.6, 2.0),
            is_main=True,
        ),
        Case(
            name="S2",
            title="image requests (GenTD26) as they came",
            build=images(1.0, 2.0),
            is_main=True,
        ),
        Case(
            name="S2 x10",
            title="image requests (GenTD26), ten layers",
            build=images(10.0, 0.4),
            is_main=True,
        ),
        Case(
            name="S3 103959",
            title="training jobs (Philly), a thin queue",
            build=training("103959", 10.5),
            is_main=True,
        ),
        Case(
            name="S3 6c71a0",
            title="training jobs (Philly), a busy queue",
            build=training("6c71a0", 1.0),
            is_main=True,
        ),
        Case(
            name="S4",
            title="rare bursts, fitted to Alibaba 2023",
            build=bursts,
            is_main=True,
            needs_data=False,
        ),
        Case(
            name="S5",
            title="4,000 jobs a day",
            build=stream,
            is_main=True,
            needs_data=False,
        ),
        Case(
            name="S6",
            title="10,000 items in 1,000 jobs at once, 0 to 16 V100s as seen",
            build=crowd,
        ),
        Case(name="S7", title="image requests, V100 as scarce as seen", build=starved),
        Case(
            name="S8",
            title="training jobs, instances live 0.7 to 2.3 h, a fifth goes unsaid",
            build=hot,
        ),
        Case(name="S9", title="600 jobs a day, real prices of 4 months", build=shock),
        Case(
            name="S11",
            title="image requests, control plane dead for 6 h, no notices",
            build=faults,
        ),
    )
}
