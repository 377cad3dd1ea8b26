"""What past prices are read as, and what is said of those that are wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.cli.history.arrival import ArrivalHistory
from spindown.cli.history.price import Buyer, made_up_prices, pay, read_live, read_prices
from spindown.domain.account_pricing import Discount, PaidMachines, Pricing
from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.offer import CapacityType, InstanceRequirements
from spindown.domain.policy import Policy
from spindown.domain.relative_throughput import relative_throughput
from spindown.error import BadInput
from spindown.local.market.catalogue import instance_types
from spindown.memory import MemoryClock, MemoryMarket, PortCall, intercept
from spindown.simulator.hardware import find_type
from spindown.simulator.sample import CPU_TYPES
from spindown.simulator.scenario import DAY
from tests.builders import a_type
from tests.unit.cli.history import HOUR, MONDAY, a_file, a_traffic

BUYER = Buyer(requirements=InstanceRequirements(), slots="per-gpu")

#: The present, where one is asked for.
NOW = MONDAY + timedelta(days=10)
PRICES = """timestamp,zone,type,price
2026-06-01T06:00:00Z,us-east-1a,g5.xlarge,0.45
2026-05-31T00:00:00Z,us-east-1a,g5.xlarge,0.40
2026-06-01T12:00:00Z,us-east-1b,g5.xlarge,0.50
2026-05-31T00:00:00Z,us-east-1a,g4dn.12xlarge,1.20
2026-05-31T00:00:00Z,us-east-1,g5.xlarge,1.006
2026-05-31T00:00:00Z,us-east-1a,x9.huge,3.0
"""


def test_prices_of_the_traffic_s_days_are_in_force_on_them(tmp_path: Path) -> None:
    prices = read_prices(a_file(tmp_path, PRICES, "p.csv"), a_traffic(), BUYER)
    four, one = prices.listings

    assert (one.instance_type.name, one.region, one.on_demand) == ("g5.xlarge", "us-east-1", 1.006)
    assert one.zones["us-east-1a"].spot == ((0.0, 0.40), (21_600.0, 0.45))
    # The first price of a zone holds from the begin on.
    assert one.zones["us-east-1b"].spot == ((0.0, 0.50),)
    assert one.speed == pytest.approx(1.9, rel=0.02)
    assert (four.instance_type.gpu_count, four.speed, four.on_demand) == (4.0, 1.0, 2.4)
    assert prices.notes == (
        "EC2 is taken to reclaim a spot instance 0.05 times an hour",
        "on-demand prices of g4dn.12xlarge are estimated: spot for 50% of on-demand",
        "x9.huge: left out, since Spindown knows no such type",
    )


def test_an_account_pays_its_own_prices(tmp_path: Path) -> None:
    market = read_prices(a_file(tmp_path, PRICES, "p.csv"), a_traffic(), BUYER)
    on_demand = frozenset({CapacityType.ON_DEMAND})
    pricing = Pricing(
        discounts=(
            Discount(multiplier=0.7, families=frozenset({"g5"}), capacity_types=on_demand),
            Discount(multiplier=0.9, families=frozenset({"g5"})),
        ),
        paid=(PaidMachines(instance_type="g5.xlarge", count=1, region="us-east-1"),),
    )

    four, one = pay(market, pricing).listings

    assert four == market.listings[0]
    assert one.on_demand == pytest.approx(0.7 * 1.006)
    spot = [price for _, price in one.zones["us-east-1a"].spot]
    assert spot == pytest.approx([0.9 * 0.40, 0.9 * 0.45])
    first, second = pay(market, pricing).notes[-2:]
    assert first == "prices after 2 discounts of [pricing]"
    assert second.startswith("machines that [pricing] pays for already cost their full price here")
    assert pay(market, None) is market
    assert pay(market, Pricing(has_addresses=False)) == market


def test_slots_of_a_made_up_market_share_their_gpu_s_speed() -> None:
    whole = made_up_prices(1, a_traffic(), BUYER).listings
    shared = made_up_prices(1, a_traffic(), replace(BUYER, slots="4")).listings

    assert [each.speed for each in whole] == [1.0, 1.5, 2.4, 4.5, 3.0]
    assert [each.speed for each in shared] == [each.speed / 4 for each in whole]


#: A T4 as its data sheet says, and an L40S twice as fast as its own; 1000 an hour are estimated.
MEASURED = {
    ("T4", 1.0): ThroughputRecord(items=1e6, hours=1e3, reports=100, lives=10_000),
    ("L40S", 1.0): ThroughputRecord(
        items=2e6 * relative_throughput("L40S", 1.0), hours=1e3, reports=100, lives=10_000
    ),
}


def test_a_gpu_is_as_fast_as_it_was_measured(tmp_path: Path) -> None:
    knowledge = Knowledge(throughput=MEASURED)
    path = a_file(tmp_path, PRICES.replace("g5.xlarge", "g6e.xlarge"), "p.csv")
    buyer = replace(BUYER, policy=Policy(throughput_estimate=1000.0), knowledge=knowledge)
    prices, made_up = read_prices(path, a_traffic(), buyer), made_up_prices(1, a_traffic(), buyer)
    fast = pytest.approx(2.0 * relative_throughput("L40S", 1.0), rel=0.001)

    four, one = prices.listings
    assert one.instance_type.name == "g6e.xlarge"
    assert one.speed == fast
    # So are four T4, of which one alone was measured.
    assert four.instance_type.name == "g4dn.12xlarge"
    assert four.speed == pytest.approx(1.0, rel=0.001)
    assert any("1 of 2 types" in note and "g6e.xlarge" in note for note in prices.notes)
    assert [each.speed for each in made_up.listings] == [pytest.approx(1.0), 1.5, 2.4, fast, 3.0]
    assert any("2 of 5 types" in note for note in made_up.notes)


def test_slots_share_the_speed_that_was_measured() -> None:
    knowledge = Knowledge(
        throughput={kind: replace(each, items=each.items / 4.0) for kind, each in MEASURED.items()},
        slots="4",
    )
    policy = Policy(throughput_estimate=1000.0)
    shared = replace(BUYER, slots="4", policy=policy, knowledge=knowledge)
    speeds = {
        each.instance_type.name: each.speed
        for each in made_up_prices(1, a_traffic(), shared).listings
    }

    assert speeds["g6e.xlarge"] == pytest.approx(
        2.0 * relative_throughput("L40S", 1.0) / 4.0, rel=0.001
    )


def test_a_price_of_the_morning_holds_for_jobs_at_noon(tmp_path: Path) -> None:
    noon = a_traffic(start=MONDAY + timedelta(hours=12), hours=1)
    early = "timestamp,zone,type,price\n" + "".join(
        f"{at},us-east-1a,g5.xlarge,{price}\n"
        for at, price in (("2026-05-20T00:00:00Z", 0.40), ("2026-06-01T03:00:00+02:00", 0.50))
    )
    prices = read_prices(a_file(tmp_path, early, "p.csv"), noon, BUYER)

    assert prices.listings[0].zones["us-east-1a"].spot == ((0.0, 0.50),)
    assert not any("begin with the traffic" in note for note in prices.notes)


def test_reads_prices_as_the_aws_command_line_prints_them(tmp_path: Path) -> None:
    said = {
        "AvailabilityZone": "us-east-1a",
        "InstanceType": "g5.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.450000",
        "Timestamp": "2026-06-01T06:00:00+00:00",
    }
    windows = {**said, "ProductDescription": "Windows", "SpotPrice": "0.9"}
    text = json.dumps({"SpotPriceHistory": [windows, said], "NextToken": ""})
    prices = read_prices(a_file(tmp_path, text, "p.json"), a_traffic(), BUYER)

    (listing,) = prices.listings
    assert {zone: each.spot for zone, each in listing.zones.items()} == {
        "us-east-1a": ((0.0, 0.45),)
    }


@pytest.mark.parametrize(
    "traffic",
    [
        pytest.param(a_traffic(start=MONDAY - timedelta(days=100)), id="of another season"),
        pytest.param(a_traffic(start=MONDAY + timedelta(days=1)), id="of the day after"),
        pytest.param(a_traffic(is_dated=False), id="made up"),
    ],
)
def test_prices_of_other_days_begin_with_the_traffic(
    tmp_path: Path, traffic: ArrivalHistory
) -> None:
    prices = read_prices(a_file(tmp_path, PRICES, "p.csv"), traffic, BUYER)

    assert prices.listings[1].zones["us-east-1a"].spot == ((0.0, 0.40), (108_000.0, 0.45))
    assert prices.notes[0] == "prices of 2026-05-31 to 2026-06-01 begin with the traffic"


def test_prices_of_unfit_types_do_not_begin_a_market(
    tmp_path: Path,
) -> None:
    early = PRICES + "2025-01-01T00:00:00Z,us-east-1a,m5.large,0.05\n"
    prices = read_prices(a_file(tmp_path, early, "p.csv"), a_traffic(is_dated=False), BUYER)

    assert prices.listings[1].zones["us-east-1a"].spot == ((0.0, 0.40), (108_000.0, 0.45))
    assert prices.notes[0] == "prices of 2026-05-31 to 2026-06-01 begin with the traffic"


def test_days_without_a_price_are_told(tmp_path: Path) -> None:
    path = a_file(tmp_path, PRICES, "p.csv")
    within = a_traffic(start=MONDAY - timedelta(days=10), hours=20 * 24)

    assert read_prices(path, within, BUYER).notes[:2] == (
        "the first 9 days of the traffic have the first price of each pool, known from 2026-05-31",
        "the last 9.5 days of the traffic have the last price of each pool, known to 2026-06-01",
    )
    assert read_prices(path, a_traffic(is_dated=False, hours=96), BUYER).notes[:2] == (
        "prices of 2026-05-31 to 2026-06-01 begin with the traffic",
        "the last 2.5 days of the traffic have the last price of each pool, known to 2026-06-01",
    )


def test_live_prices_are_known_until_now_even_if_unchanged() -> None:
    clock = MemoryClock(MONDAY - timedelta(days=9))
    market = MemoryMarket(clock)
    zones = ["us-east-1a"]
    market.offer(a_type("g5.xlarge"), region="us-east-1", zones=zones, on_demand=1.0, spot=0.4)
    clock.advance(timedelta(days=9))
    traffic = a_traffic(start=MONDAY - timedelta(days=14), hours=14 * 24)
    prices = read_live(market, market, {"us-east-1": zones}, traffic, BUYER, now=MONDAY)

    assert [note for note in prices.notes if "price of each pool" in note] == [
        "the first 5 days of the traffic have the first price of each pool, known from 2026-05-23"
    ]


@pytest.mark.parametrize(
    ("month", "price", "holds"), [("05", "2.0", 1.006), ("07", "0.9", 0.9)], ids=["older", "newer"]
)
def test_of_two_on_demand_prices_the_newer_holds_in_any_order(
    tmp_path: Path, month: str, price: str, holds: float
) -> None:
    other = PRICES + f"2026-{month}-01T00:00:00Z,us-east-1,g5.xlarge,{price}\n"
    prices = read_prices(a_file(tmp_path, other, "p.csv"), a_traffic(), BUYER)

    assert prices.listings[1].on_demand == holds


def test_a_row_that_names_no_product_is_of_linux(tmp_path: Path) -> None:
    named = "timestamp,zone,type,price,ProductDescription\n2026-06-01,us-east-1a,g5.xlarge,0.4,\n"
    (listing,) = read_prices(a_file(tmp_path, named, "p.csv"), a_traffic(), BUYER).listings

    assert listing.zones["us-east-1a"].spot == ((0.0, 0.4),)


def test_only_price_changes_until_the_last_work_count(tmp_path: Path) -> None:
    rows = "".join(
        f"2026-06-{day:02d}T00:00:00Z,us-east-1a,g5.xlarge,{price}\n"
        for day, price in ((1, 0.4), (2, 0.4), (3, 0.5), (6, 0.6), (7, 0.7))
    )
    text = f"timestamp,zone,type,price\n{rows}"
    (listing,) = read_prices(a_file(tmp_path, text, "p.csv"), a_traffic(), BUYER).listings

    # One day of traffic, and four in which its last work is done.
    assert [at / DAY for at, _ in listing.zones["us-east-1a"].spot] == [0.0, 2.0, 5.0]


@pytest.mark.parametrize(
    ("traffic", "since"),
    [
        pytest.param(a_traffic(start=MONDAY), MONDAY, id="past"),
        pytest.param(a_traffic(start=MONDAY + timedelta(days=20)), NOW, id="to come"),
        pytest.param(
            a_traffic(start=MONDAY - timedelta(days=300)), NOW - timedelta(days=90), id="forgotten"
        ),
        pytest.param(a_traffic(is_dated=False), NOW - timedelta(days=90), id="made up"),
    ],
)
def test_live_prices_are_read_from_the_first_traffic_on(
    traffic: ArrivalHistory, since: datetime
) -> None:
    market, asked = MemoryMarket(MemoryClock(NOW)), list[datetime]()
    zones = ["us-east-1a"]
    market.offer(a_type("g5.xlarge"), region="us-east-1", zones=zones, on_demand=1.0, spot=0.4)

    def note(call: PortCall, proceed: Callable[[], Any]) -> Any:
        asked.append(call.kwargs["since"])
        return proceed()

    history = intercept(market, "history", note)
    read_live(market, history, {"us-east-1": zones}, traffic, BUYER, now=NOW)

    assert asked == [since]


def test_an_on_demand_price_that_ec2_does_not_tell_is_estimated() -> None:
    market = MemoryMarket(MemoryClock(MONDAY))
    zones = ["us-east-1a"]
    market.offer(a_type("g5.xlarge"), region="us-east-1", zones=zones, on_demand=1.0, spot=0.4)

    def tell_none(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return {} if call.method == "on_demand_prices" else proceed()

    blind = intercept(market, "market", tell_none)
    prices = read_live(blind, market, {"us-east-1": zones}, a_traffic(), BUYER, now=MONDAY)

    assert prices.listings[0].on_demand == pytest.approx(0.8)
    assert any(
        note.startswith("on-demand prices of g5.xlarge are estimated") for note in prices.notes
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("timestamp,zone,type\n1,a,b\n", "name the column price", id="column"),
        pytest.param(
            "timestamp,zone,type,price\n1,us-east-1a,g5.xlarge,-1\n",
            "line 2, price is '-1': write a number above 0",
            id="negative",
        ),
        pytest.param(
            "timestamp,zone,type,price\n1,us-east-1,g5.xlarge,1\n",
            "give it rows whose zone is one, such as us-east-1a",
            id="no spot price",
        ),
        pytest.param(
            "timestamp,zone,type,price\n1,us-east-1a,m5.large,0.05\n",
            "give it types that [workload.NAME.requirements] allow, not m5.large alone",
            id="no GPU",
        ),
        pytest.param(
            "timestamp,zone,type,price,ProductDescription\n1,us-east-1a,g5.xlarge,1,Windows\n",
            "give it rows of Linux/UNIX, not of Windows alone",
            id="no Linux",
        ),
    ],
)
def test_prices_that_are_wrong_are_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_prices(a_file(tmp_path, text, "p.csv"), a_traffic(), BUYER)

    assert said in str(refused.value)


def test_live_prices_are_those_of_fitting_types_in_our_zones() -> None:
    clock = MemoryClock(MONDAY)
    market = MemoryMarket(clock)
    zones = ["us-east-1a", "us-east-1b"]
    market.offer(a_type("g5.xlarge"), region="us-east-1", zones=zones, on_demand=1.0, spot=0.4)
    market.offer(a_type("g6.xlarge"), region="us-east-1", zones=zones, on_demand=0.8, spot=0.3)
    clock.advance(HOUR)
    market.move_spot_price("g5.xlarge", "us-east-1a", 0.5)
    buyer = Buyer(
        requirements=InstanceRequirements(gpu_names=frozenset({"A10G"})),
        slots="per-gpu",
    )
    prices = read_live(
        market, market, {"us-east-1": zones[:1]}, a_traffic(), buyer, now=MONDAY + 24 * HOUR
    )
    (listing,) = prices.listings

    assert (listing.instance_type.name, listing.on_demand) == ("g5.xlarge", 1.0)
    assert {zone: each.spot for zone, each in listing.zones.items()} == {
        "us-east-1a": ((0.0, 0.4), (3600.0, 0.5))
    }


def test_a_market_where_nothing_fits_says_so() -> None:
    buyer = Buyer(
        requirements=InstanceRequirements(gpu_names=frozenset({"H100"})),
        slots="per-gpu",
    )
    with pytest.raises(BadInput, match="allow none of its types"):
        made_up_prices(1, a_traffic(), buyer)
    market = MemoryMarket(MemoryClock(MONDAY))
    with pytest.raises(BadInput, match="--prices live is 'us-east-1a': loosen"):
        read_live(market, market, {"us-east-1": ["us-east-1a"]}, a_traffic(), buyer, now=MONDAY)


def test_a_made_up_market_has_the_file_s_regions_while_small() -> None:
    home, further = "eu-west-1", ("us-east-1", "us-west-2", "ap-south-1")
    alone = made_up_prices(1, a_traffic(), BUYER, (home,))
    assert alone == made_up_prices(1, a_traffic(), BUYER)

    several = made_up_prices(1, a_traffic(), BUYER, (home, *further))
    assert list(dict.fromkeys(listing.region for listing in several.listings)) == [
        home,
        *further[:2],
    ]
    assert several.source.endswith("in three zones of each of eu-west-1, us-east-1, us-west-2")
    assert several.source.count("g4dn.xlarge") == 1
    assert several.notes == ("ap-south-1: left out of the made-up market",)


def test_work_without_gpus_has_a_market_of_its_own() -> None:
    wanted = InstanceRequirements(
        gpu_count_min=0.0, gpu_count_max=0.0, architectures=frozenset({"x86_64", "arm64"})
    )

    found = made_up_prices(1, a_traffic(), replace(BUYER, requirements=wanted)).listings

    assert {each.instance_type.name for each in found} == set(CPU_TYPES)
    speeds = {each.instance_type.name: each.speed for each in found}
    assert speeds["c7i.large"] == pytest.approx(2 * 0.02 * 7695 / 4531)


def test_knows_the_hardware_of_every_family_that_it_names() -> None:
    known = {
        name: (facts, found)
        for name, facts in instance_types().items()
        if (found := find_type(name)) is not None
    }

    assert len(known) >= 300
    assert {"c5.9xlarge", "c7g.large", "m6id.xlarge", "r8a.48xlarge"} <= known.keys()
    for name, (facts, found) in known.items():
        assert (found.vcpus, found.memory_mib, found.architecture) == (
            facts.vcpus,
            facts.memory_mib,
            facts.architecture,
        ), name
        assert (found.gpu_name, found.gpu_count, found.gpu_memory_mib) == (
            facts.gpu_name,
            facts.gpu_count,
            facts.gpu_memory_mib,
        ), name
