"""How the market in memory is moved by hand."""

from datetime import timedelta

import pytest

from spindown.domain.offer import CapacityType, SpotPrice
from spindown.ec2sim import quota_of
from spindown.memory import MemoryClock, MemoryMarket
from tests.builders import ON_DEMAND, SPOT
from tests.ports.market import G6, REGION


def test_memory_moves_prices_with_the_clock(clock: MemoryClock) -> None:
    market = MemoryMarket(clock)
    market.offer(G6, region=REGION, zones=["us-east-1a"], on_demand=0.8, spot={"us-east-1a": 0.4})
    clock.advance(timedelta(minutes=1))
    market.move_spot_price("g6.xlarge", "us-east-1a", 0.5)
    market.move_on_demand_price("g6.xlarge", REGION, 0.9)

    assert market.spot_prices(region=REGION, instance_types=["g6.xlarge", "g5.xlarge"]) == [
        SpotPrice(instance_type="g6.xlarge", zone="us-east-1a", price=0.5, seen_at=clock.now())
    ]
    assert market.on_demand_prices(region=REGION) == {"g6.xlarge": 0.9}
    market.move_spot_price("g6.xlarge", "us-east-1a", None)
    assert market.spot_prices(region=REGION, instance_types=["g6.xlarge"]) == []


@pytest.mark.parametrize(
    ("name", "capacity_type", "code"),
    [
        ("g6.xlarge", SPOT, "L-3819A6DF"),
        ("g6.xlarge", ON_DEMAND, "L-DB2E81BA"),
        ("gr6.4xlarge", SPOT, "L-3819A6DF"),
        ("p4d.24xlarge", SPOT, "L-7212CCBC"),
        ("p5.48xlarge", SPOT, "L-C4BD4855"),
        ("p5.48xlarge", ON_DEMAND, "L-417A185B"),
        ("m7i.large", SPOT, "L-34B43A08"),
        ("im4gn.large", ON_DEMAND, "L-1216C47A"),
        ("x8g.large", ON_DEMAND, "L-7295265B"),
        ("hpc7a.12xlarge", ON_DEMAND, "L-F7808C92"),
        ("inf2.xlarge", SPOT, "L-B5D1601B"),
        ("trn1.2xlarge", SPOT, "L-6B0D517C"),
    ],
)
def test_memory_books_a_type_under_its_quota(
    name: str, capacity_type: CapacityType, code: str
) -> None:
    assert quota_of(name, capacity_type).code == code
