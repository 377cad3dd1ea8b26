"""The scenarios S1 to S11: what arrives, what is sold, and what goes wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from research.compare.source import Part
from research.compare.world.traffic import bursts, images, office, shock, stream, training
from research.compare.world.trouble import (
    NINE_ZONES,
    crowd,
    faults,
    hot,
    long_job,
    no_ticks,
    starved,
)
from spindown.domain.policy import Policy
from spindown.simulator import BOOTS, SimScenario

#: A new deployment has such boots until an image is baked.
BOOT = BOOTS["bootstrap"]
#: Of every fleet: more than any of the scenarios needs at once.
MAX_WORKERS = 200


def patient_policy(minutes: float) -> Policy:
    """Return the one policy that all scenarios are run with: the promise, and room to keep it."""
    return Policy(
        start_within=timedelta(minutes=minutes),
        max_workers=MAX_WORKERS,
        max_price_per_hour=5.0,
    )


def deadline_policy(deadline: timedelta) -> Policy:
    """Return the settings of a person with one long job: the deadline, and room to move it.

    A worker may live as long as the job: it needs none to make room for a cheaper one.
    """
    return Policy(
        finish_within=deadline,
        start_within=timedelta(minutes=10),
        max_lifetime=deadline,
        max_workers=2,
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
    #: Hours until which its one job must be done; None: it is judged by waits.
    deadline_hours: float | None = None

    def scenario(self, seed: int, data: Path, part: Part) -> SimScenario:
        """Return what arrives and what is sold, with measured boots."""
        return replace(self.build(seed, data, part), boot=BOOT)


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case(
            name="S1",
            title="office batches, a month of 200 GPU-hours",
            build=office,
            is_main=True,
            needs_data=False,
        ),
        Case(
            name="S2",
            title="image requests (GenTD26) as they came",
            build=images(1.0, 4.0),
            is_main=True,
        ),
        Case(
            name="S2 x10",
            title="image requests (GenTD26), ten layers",
            build=images(10.0, 1.5),
            is_main=True,
        ),
        Case(
            name="S3",
            title="training jobs (Philly 6c71a0)",
            build=training("6c71a0", 2.0),
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
        *(
            Case(
                name=f"S10 {hours:.0f} h{where}",
                title=f"a job of 48 hours, done in {hours:.0f}, {title}",
                build=long_job(hours, regions),
                deadline_hours=hours,
            )
            for where, title, regions in (
                ("", "9 zones of V100s as seen", NINE_ZONES),
                (" in one region", "us-east-1 alone", ("us-east-1",)),
            )
            for hours in (52.0, 72.0)
        ),
        Case(
            name="S11",
            title="image requests, control plane dead for 6 busy h, half of all events and notices"
            " lost, 5 % of messages twice, the alarm stuck, EC2 late",
            build=faults,
        ),
        Case(
            name="S11 alarm",
            title="image requests, only spare ticks for 6 busy h, an alarm 1 to 2 min late,"
            " 15 after quiet",
            build=no_ticks,
        ),
    )
}
