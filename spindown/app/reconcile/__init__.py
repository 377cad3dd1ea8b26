"""The control loop of one workload; ``pipeline`` tells what it does, step by step."""

from spindown.app.reconcile.pipeline import reconcile

__all__ = ["reconcile"]
