"""What comes before what: requirements, ceilings and budget, the promise, the ladder, cost."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.domain.offer import InstanceRequirements
from tests.builders import (
    ON_DEMAND,
    a_policy,
    a_pool_cooldown,
    a_ranking,
    a_type,
    an_offer,
    minutes,
)
from tests.unit.domain.ranking.reading import RUNGS, reason

OTHER_GPU = InstanceRequirements(gpu_names=frozenset({"L4"}))


@pytest.mark.parametrize(
    ("changes", "offer", "expected"),
    [
        pytest.param(
            {"requirements": OTHER_GPU, "policy": a_policy(max_price_per_hour=0.1)},
            {},
            "gpu_names",
            id="requirements before ceiling",
        ),
        pytest.param(
            {"requirements": OTHER_GPU, "waited": minutes(99)},
            {},
            "gpu_names",
            id="requirements before start_within",
        ),
        pytest.param(
            {"requirements": OTHER_GPU, "policy": a_policy(ladder=RUNGS)},
            {"capacity_type": ON_DEMAND},
            "gpu_names",
            id="requirements before ladder",
        ),
        pytest.param(
            {"requirements": OTHER_GPU, "headroom_per_hour": 0.1},
            {},
            "gpu_names",
            id="requirements before budget",
        ),
        pytest.param(
            {"policy": a_policy(max_price_per_hour=0.1), "waited": minutes(99)},
            {},
            "max_price_per_hour",
            id="ceiling before start_within",
        ),
        pytest.param(
            {"headroom_per_hour": 0.1, "waited": minutes(99)},
            {},
            "max_dollars_per_hour",
            id="budget before start_within",
        ),
        pytest.param(
            {"headroom_per_hour": 0.1, "policy": a_policy(ladder=RUNGS)},
            {"capacity_type": ON_DEMAND},
            "max_dollars_per_hour",
            id="budget before ladder",
        ),
        pytest.param(
            {"policy": a_policy(max_price_per_hour=0.1, ladder=RUNGS)},
            {},
            "max_price_per_hour",
            id="ceiling before ladder",
        ),
        pytest.param(
            {
                "policy": a_policy(ladder=RUNGS, start_within=minutes(3)),
                "waited": minutes(3),
            },
            {"capacity_type": ON_DEMAND},
            None,
            id="start_within before ladder",
        ),
    ],
)
def test_precedence(changes: dict[str, Any], offer: dict[str, Any], expected: str | None) -> None:
    found = reason(an_offer(**offer), **changes)

    assert (None if found is None else found[0]) == expected


@pytest.mark.parametrize(
    ("cheap", "changes"),
    [
        pytest.param(
            {"instance_type": a_type("g5g.xlarge", architecture="arm64")},
            {},
            id="requirements before cost",
        ),
        pytest.param(
            # Four GPUs for little more than one are the cheapest item, and above the ceiling.
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 0.40},
            {"policy": a_policy(max_price_per_hour=0.3)},
            id="ceiling before cost",
        ),
        pytest.param(
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 0.40},
            {"headroom_per_hour": 0.3},
            id="budget before cost",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS, start_within=minutes(60))},
            id="ladder before cost",
        ),
    ],
)
def test_what_comes_before_cost(cheap: dict[str, Any], changes: dict[str, Any]) -> None:
    low = replace(an_offer(instance_price=0.05), **cheap)
    dear = an_offer(instance_price=0.25)
    anything = {"requirements": InstanceRequirements(architectures=frozenset({"x86_64", "arm64"}))}

    assert a_ranking([low, dear], **anything)[0].offer == low
    assert [c.offer for c in a_ranking([low, dear], **changes)] == [dear]


def test_start_within_comes_before_cost() -> None:
    policy = a_policy(ladder=RUNGS, start_within=minutes(10))
    dear = an_offer(capacity_type=ON_DEMAND, instance_price=1.9)
    dry = an_offer()

    early = a_ranking(
        [dry, dear], policy=policy, waited=minutes(9), pool_cooldowns=[a_pool_cooldown()]
    )
    late = a_ranking(
        [dry, dear], policy=policy, waited=minutes(10), pool_cooldowns=[a_pool_cooldown()]
    )

    # Rather wait, as long as the promise allows; then rather pay.
    assert list(early) == []
    assert [c.offer for c in late] == [dear]
