"""Claim the job of a received message, or say what became of the message."""

from spindown.app.work.claim.claim import Declined, Outcome, claim

__all__ = ["Declined", "Outcome", "claim"]
