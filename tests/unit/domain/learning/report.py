"""Reports of jobs, and what is made of them."""

from operator import itemgetter

from spindown.domain.learning import Knowledge, ThroughputRecord, throughput
from spindown.domain.policy import Policy
from tests.builders import a_type

POLICY = Policy(throughput_estimate=1000.0)


#: So many workers that no data sheet counts for more than 5 s beside them.
MANY = 10_000


def measured(*jobs: tuple[float, float], lives: int = MANY) -> ThroughputRecord:
    """Return the record of jobs of (items, seconds), from so many workers."""
    longest, largest = max(jobs, key=itemgetter(1)), max(jobs)
    return ThroughputRecord(
        longest_items=longest[0],
        longest_hours=longest[1] / 3600,
        largest_items=largest[0],
        largest_hours=largest[1] / 3600,
        items=sum(items for items, _ in jobs),
        hours=sum(seconds for _, seconds in jobs) / 3600,
        reports=len(jobs),
        lives=lives,
        rates=tuple(items / seconds * 3600 for items, seconds in jobs),
    )


def rate(knowledge: Knowledge, name: str) -> float:
    return throughput(knowledge, a_type(name), POLICY).items_per_hour
