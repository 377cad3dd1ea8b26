"""Tell people of alerts, and remember that they were told.

Each alert is remembered in one small row, in the partition of the workload: read with all others,
written only while there is something to remember.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spindown.contract import row as rows
from spindown.contract.metric import ALERT, DEPLOYMENT, WORKLOAD
from spindown.contract.name import resource_name
from spindown.domain.alert import Alert, Review
from spindown.error import SpindownError, printable
from spindown.ledger import Ledger
from spindown.port import ControlPorts, Datum, Write

#: Amazon SNS API, "Publish".
_SUBJECT_AT_MOST = 100


def remember(review: Review, ledger: Ledger) -> Sequence[Write]:
    """Return the writes that keep what is seen now; that it was told, ``tell`` writes."""
    kept = [
        ledger.change(
            rows.alert_sort_key(name), {"since": alert_state.since, "seen_at": alert_state.seen_at}
        )
        for name, alert_state in review.changed.items()
    ]
    return [*kept, *(ledger.delete(rows.alert_sort_key(name)) for name in review.forgotten)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """Texts that people could not be told."""

    number: int
    reason: str


def tell(review: Review, workload: str, ports: ControlPorts, ledger: Ledger) -> Untold | None:
    """Tell people of what is due; return what could not be told, None if nothing.

    After the first that the topic does not take, the others wait for the next time.
    """
    deployment = ports.name
    for number, alert in enumerate(review.due):
        subject = f"{resource_name(deployment, workload)}: {alert.name}"[:_SUBJECT_AT_MOST]
        try:
            # What EC2 has said is part of it.
            ports.topic.publish(subject, printable(alert.text))
            # Whole: what else is remembered may have lost a race.
            state = replace(review.present[alert.name], told_at=ports.clock.now())
            ledger.write(ledger.put(rows.alert_sort_key(alert.name), state))
        except SpindownError as exc:
            return Untold(number=len(review.due) - number, reason=str(exc))
    return None


def measure(
    standing: Sequence[Alert], untold: Untold | None, dimensions: Mapping[str, str]
) -> list[Datum]:
    """Return the metrics of what stands; ``dimensions`` are those of the workload."""
    data = [
        Datum(name="Alerts", value=1, dimensions={**dimensions, ALERT: alert.name})
        for alert in standing
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
