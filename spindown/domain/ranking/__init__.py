"""From offers to one sorted candidate list, with a reason for every offer that is not in it."""

from spindown.domain.ranking.bill import Bill, Load, bill
from spindown.domain.ranking.candidate import (
    Candidate,
    CostParts,
    Demand,
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
    "Demand",
    "Load",
    "RegionBlock",
    "Rejection",
    "bands",
    "bill",
    "rank",
]
