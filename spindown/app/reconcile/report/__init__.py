"""Say what a tick saw, decided and did: the decision for people, the metrics for graphs."""

from spindown.app.reconcile.report.decision import decide, record_candidate
from spindown.app.reconcile.report.metric import measure

__all__ = ["decide", "measure", "record_candidate"]
