"""Claim the job of a received message, or say what became of the message."""

from spindown.job.claim.claim import ClaimOutcome, Declined, claim

__all__ = ["ClaimOutcome", "Declined", "claim"]
