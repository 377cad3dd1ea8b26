"""When a machine that the workload has never run on is tried: it may be better than expected."""

from spindown.domain.learning import Knowledge, Throughput
from spindown.domain.offer import VCPU, InstanceType
from spindown.domain.relative_throughput import vcpu_score

#: An untried GPU may be this much faster than by its data sheet, and one in so many is: of 30
#: measurements on EC2, nine are above (docs/adr/0042-lives.md).
BONUS_AT_MOST = 1.5
ONE_IN = 3.0


def is_worth_a_trial(
    knowledge: Knowledge, instance_type: InstanceType, expected: Throughput
) -> bool:
    """Tell whether one worker of a kind may be tried, since it may be faster than its data sheet.

    Only once the workload has run on another kind, and while no worker of this kind lives.
    Machines without a GPU are of one kind if their vCPUs are: c7i, m7i and r7i of any size have the
    same, and hundreds of types would each be tried once otherwise.
    """
    if not knowledge.throughput or expected.measured:
        return False
    if instance_type.is_without_gpu:
        return not _knows_vcpu(knowledge, instance_type.family)
    return instance_type.processor not in knowledge.alive


def _knows_vcpu(knowledge: Knowledge, family: str) -> bool:
    score, _ = vcpu_score(family)
    for known in (knowledge.throughput, knowledge.alive):
        for name, _ in known:
            if name.endswith(VCPU) and vcpu_score(name.removesuffix(VCPU))[0] == score:
                return True
    return False


def exploration_bonus(knowledge: Knowledge) -> float:
    """Return the factor by which an untried GPU counts as faster than by its data sheet.

    By its data sheet, a kind costs r times the best one. If that is right, a trial loses r - 1 of
    one worker's dollars. One time in three the kind is 1.5 times as fast; then every later worker
    saves 1 - r / 1.5. If as many workers follow as there have been, N, a trial is worth it up to
    r = (N + 3) / (N / 1.5 + 3). Worked: after one worker 1.09, after 6 1.29, after 60 1.47.
    """
    lives = sum(max(record.lives, 1) for record in knowledge.throughput.values())
    return (lives + ONE_IN) / (lives / BONUS_AT_MOST + ONE_IN)
