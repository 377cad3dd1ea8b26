"""Which offer is bought: one list, cheapest item first, and why each other offer is not in it."""

from spindown.domain.ranking.bill import Bill, bill
from spindown.domain.ranking.candidate import (
    Candidate,
    CostParts,
    RegionBlock,
    Rejection,
    bands,
)
from spindown.domain.ranking.score import CandidateList, rank

__all__ = [
    "Bill",
    "Candidate",
    "CandidateList",
    "CostParts",
    "RegionBlock",
    "Rejection",
    "bands",
    "bill",
    "rank",
]
