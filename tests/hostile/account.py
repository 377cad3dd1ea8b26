"""Accounts with rules of their own: what is allowed is bought, the rest is asked for seldom."""

from hypothesis import strategies as st

from spindown.domain.offer import CapacityType, Pool
from spindown.port import RefusalKind
from tests.control import PRICES, ZONES, ControlWorld, a_pool_of

_POOLS = tuple(
    a_pool_of(name, zone, kind) for name in PRICES for zone in ZONES for kind in CapacityType
)
#: How EC2 refuses one override, as ``spindown.aws.error`` reads it. A quota is of a whole class.
_REFUSALS = (
    (RefusalKind.ACCOUNT, "UnauthorizedOperation"),
    (RefusalKind.ACCOUNT, "InvalidParameterValue"),
    (RefusalKind.ACCOUNT, "InvalidParameterCombination"),
    (RefusalKind.ACCOUNT, "OptInRequired"),
    (RefusalKind.CAPACITY, "InsufficientInstanceCapacity"),
    (RefusalKind.CAPACITY, "InvalidFleetConfiguration"),
    (RefusalKind.UNKNOWN, "NobodyKnows"),
)
HOUR = 60

Rules = dict[Pool, tuple[RefusalKind, str] | None]
RULES = st.fixed_dictionaries({pool: st.sampled_from([None, *_REFUSALS]) for pool in _POOLS})


def check(rules: Rules) -> None:
    """Let an account refuse pools for ever, each with its code, while jobs wait for three hours."""
    world = ControlWorld()
    for pool, refusal in rules.items():
        if refusal is not None:
            world.compute.refuse_next(*refusal, pool=pool, times=10_000)
    world.send(2)
    took = 0
    while not world.compute.ec2.instances and took < 3 * 60:
        world.run(1)
        took += 1

    if None in rules.values():
        assert took <= 5, (took, rules)
    # Every pool is asked for again now and then, since a rule may be lifted: of what may have
    # capacity soon each every three minutes, of the rest fewer; none each minute.
    soon = sum(
        refusal is not None and refusal[0] is not RefusalKind.ACCOUNT for refusal in rules.values()
    )
    assert world.calls["compute.launch"] <= soon * (took / 3 + 1) + took / 2 + 5
