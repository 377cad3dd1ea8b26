"""Tell people of what stands, and remember that they were told.

What is remembered is one small row a concern, in the partition of the workload: read with all
others, written only while there is something to remember.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spindown.app.control import ControlPorts
from spindown.app.ledger import Ledger
from spindown.app.port import Datum, Write
from spindown.contract import row as rows
from spindown.contract.metric import CONCERN, DEPLOYMENT, WORKLOAD
from spindown.domain.concern import Concern, Review
from spindown.error import SpindownError

#: Amazon SNS API, "Publish".
_SUBJECT_AT_MOST = 100


def remember(review: Review, ledger: Ledger) -> Sequence[Write]:
    """Return the writes that keep what is seen now; that it was told, ``tell`` writes."""
    kept = [
        ledger.change(
            rows.concern_sort(name), {"since": sighting.since, "seen_at": sighting.seen_at}
        )
        for name, sighting in review.changed.items()
    ]
    return [*kept, *(ledger.delete(rows.concern_sort(name)) for name in review.forgotten)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """Texts that people could not be told."""

    number: int
    reason: str


def tell(review: Review, workload: str, ports: ControlPorts, ledger: Ledger) -> Untold | None:
    """Tell people of what is due; return what could not be told, None if nothing.

    After the first that the topic does not take, the others wait for the next time.
    """
    deployment = ports.deployment().name
    for number, concern in enumerate(review.due):
        subject = f"{deployment}-{workload}: {concern.name}"[:_SUBJECT_AT_MOST]
        try:
            ports.topic.publish(subject, concern.text)
            # Whole: what else is remembered may have lost a race.
            told = replace(review.present[concern.name], told_at=ports.clock.now())
            ledger.write(ledger.put(rows.concern_sort(concern.name), told))
        except SpindownError as exc:
            return Untold(number=len(review.due) - number, reason=str(exc))
    return None


def measure(
    standing: Sequence[Concern], untold: Untold | None, dimensions: Mapping[str, str]
) -> list[Datum]:
    """Return the metrics of what stands; ``dimensions`` are those of the workload."""
    data = [
        Datum(name="Concerns", value=1, dimensions={**dimensions, CONCERN: concern.name})
        for concern in standing
    ]
    if untold is not None:
        deployment = {DEPLOYMENT: dimensions[DEPLOYMENT]}
        data.append(
            Datum(name="Untold", value=untold.number, dimensions=deployment, reason=untold.reason)
        )
    return data


def of_workload(deployment: str, workload: str) -> Mapping[str, str]:
    """Return the dimensions of a workload's metrics."""
    return {DEPLOYMENT: deployment, WORKLOAD: workload}
