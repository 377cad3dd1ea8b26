"""When a kind of GPU that the workload has never run on is bought on the hope that it is better."""

from spindown.domain.learning import Knowledge, Throughput
from spindown.domain.offer import InstanceType

#: What a GPU is hoped to do over its data sheet, at most, and of how many GPUs one does: of 30
#: measurements on EC2 nine are above it (docs/adr/0042-lives.md).
BONUS_AT_MOST = 1.5
ONE_IN = 3.0


def is_worth_a_trial(
    knowledge: Knowledge, instance_type: InstanceType, expected: Throughput
) -> bool:
    """Tell whether one worker of a kind may be tried on the hope that its data sheet is modest.

    Only once the workload is known from another kind, and while no worker of this one lives.
    """
    kind = instance_type.gpu_name, instance_type.gpu_count
    return bool(knowledge.throughput) and not expected.measured and kind not in knowledge.alive


def exploration_bonus(knowledge: Knowledge) -> float:
    """Return what an untried GPU is ranked by over its data sheet; it grows with the use of it.

    A kind that costs r times the best by its data sheet loses r - 1 of a worker's dollars if that
    is right, and saves 1 - r / 1.5 of each from then on, one time in three, if it is modest. Taken
    that as many workers will follow as there have been, N, it is worth it up to
    r = (N + 3) / (N / 1.5 + 3). Worked: after one worker 1.09, after 6 1.29, after 60 1.47.
    """
    lives = sum(max(record.lives, 1) for record in knowledge.throughput.values())
    return (lives + ONE_IN) / (lives / BONUS_AT_MOST + ONE_IN)
