"""Which offer is bought: one list, cheapest item first, and why each other offer is not in it."""

from spindown.domain.ranking.candidate import (
    Candidate,
    CostParts,
    RegionBlock,
    Rejection,
    bands,
)
from spindown.domain.ranking.candidate_list import CandidateList, rank
from spindown.domain.ranking.charged_hours import WorkerHours, worker_hours

__all__ = [
    "Candidate",
    "CandidateList",
    "CostParts",
    "RegionBlock",
    "Rejection",
    "WorkerHours",
    "bands",
    "rank",
    "worker_hours",
]
