"""What a person should set, and when Spindown is not for them: figures and judgements, no I/O."""

from spindown.domain.advice.gap import GapShare, find_gaps, gap_share
from spindown.domain.advice.long_job import LongJobs, find_long_jobs
from spindown.domain.advice.verdict import (
    Answer,
    Verdict,
    judge_constant_load,
    judge_interruptions,
    judge_latency,
    judge_small_bill,
)

__all__ = [
    "Answer",
    "GapShare",
    "LongJobs",
    "Verdict",
    "find_gaps",
    "find_long_jobs",
    "gap_share",
    "judge_constant_load",
    "judge_interruptions",
    "judge_latency",
    "judge_small_bill",
]
