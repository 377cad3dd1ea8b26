"""What doctor says of the market: zones, offers that fit, quotas with the command that fixes."""

import json
import re

import pytest

from spindown.domain.offer import CapacityType
from spindown.domain.policy import JobNeeds, JobType, Policy, Rung
from spindown.error import Throttled
from spindown.memory import PortCall, intercept
from spindown.operate.doctor.finding import Severity
from spindown.port import Market
from tests.builders import a_type, minutes
from tests.unit.operate.examined import (
    G_ON_DEMAND,
    G_SPOT,
    REGION,
    ZONES,
    Examined,
    a_config,
)

SPOT_ONLY = Policy(ladder=(Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT})),))


def failing(market: Market, method: str) -> Market:
    """Return a market of which one method fails."""

    def fail(call: PortCall, proceed: object) -> object:
        if call.method == method:
            raise Throttled("slow down")
        return proceed()  # type: ignore[operator]  # the call itself

    return intercept(market, "market", fail)


@pytest.mark.parametrize(
    ("setting", "names", "unknown", "remedy"),
    [
        ("instance_types", ["g6.xlarge", "g6.xlrge"], "g6.xlrge", "g6.xlarge for g6.xlrge"),
        ("instance_types", ["g6.xlarge", "zz9.huge"], "zz9.huge", "leave it out"),
    ],
)
def test_a_name_that_nothing_sold_bears_is_told(
    setting: str, names: list[str], unknown: str, remedy: str
) -> None:
    world = Examined(config=a_config(requirements={setting: names}))

    finding = world.finding(f"{setting} of classify")

    assert finding.severity is Severity.WARNING
    assert finding.found.startswith(f"{unknown},")
    assert remedy in finding.remedy
    assert world.report().can_launch


def test_a_gpu_that_is_sold_elsewhere_is_no_mistake() -> None:
    world = Examined(config=a_config(requirements={"gpu_names": ["L4", "H100"]}))

    assert not [each for each in world.report().findings if each.what.startswith("gpu_names")]


def test_a_zero_quota_blocks_where_nothing_else_may_be_bought() -> None:
    world = Examined(policy=SPOT_ONLY)
    world.market.limit("L-3819A6DF", 0, region=REGION)

    finding = world.finding(G_SPOT)

    assert (finding.found, finding.severity) == ("0 vCPUs", Severity.BLOCKED)
    assert re.findall(r"\d+", finding.needed) == ["4", "16"]
    assert finding.remedy == (
        "aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-3819A6DF --desired-value 16 --region us-west-2"
    )
    assert not world.report().can_launch


def test_a_quota_of_zero_only_warns_while_another_class_is_left() -> None:
    world = Examined()
    world.market.limit("L-3819A6DF", 0, region=REGION)

    assert world.severity(G_SPOT) is Severity.WARNING
    assert world.severity(G_ON_DEMAND) is Severity.GOOD
    assert world.report().can_launch


def test_no_class_left_blocks() -> None:
    world = Examined()
    for code in ("L-3819A6DF", "L-DB2E81BA"):
        world.market.limit(code, 3, region=REGION)

    assert world.severity(G_SPOT) is Severity.BLOCKED
    assert world.severity(G_ON_DEMAND) is Severity.BLOCKED


@pytest.mark.parametrize(
    ("vcpus", "severity"), [(4, Severity.WARNING), (15, Severity.WARNING), (16, Severity.GOOD)]
)
def test_a_quota_has_room_for_max_workers(vcpus: float, severity: Severity) -> None:
    world = Examined()
    world.market.limit("L-3819A6DF", vcpus, region=REGION)

    assert world.severity(G_SPOT) is severity


@pytest.mark.parametrize(("gib_month", "price"), [(0.08, 0.279), (0.8, 0.378), (0.0, 0.279)])
def test_an_offer_has_the_price_that_a_volume_has_in_its_region(
    gib_month: float, price: float
) -> None:
    world = Examined()
    world.market.move_volume_price(REGION, gib_month)

    found = world.finding("offers for classify").found

    # 0.263 for the instance, 0.005 for its address, 100 GiB; no price is taken for the usual one.
    assert found.endswith(f" at {price:.3f} USD/h")


def test_an_offer_has_the_price_that_the_account_pays() -> None:
    discount = {"multiplier": 0.5, "families": ["g4dn"]}
    config = a_config() | {"pricing": {"discount": [discount]}}
    listed = Examined(is_deployed=False).finding("offers for classify").found
    paid = Examined(config=config, is_deployed=False).finding("offers for classify").found

    assert "best g4dn.xlarge" in listed
    assert "best g4dn.xlarge" in paid
    # Disk and address cost what they did.
    extra = 2 * _price(paid) - _price(listed)
    assert 0.01 < extra < 0.03


@pytest.mark.parametrize(
    ("named", "found", "severity"),
    [
        ({}, "all on sale", Severity.GOOD),
        ({"zone": ZONES[1]}, "all on sale", Severity.GOOD),
        ({"instance_type": "g4dn.xlrge"}, f"no offer is g4dn.xlrge in {REGION}", Severity.WARNING),
    ],
)
def test_what_is_paid_for_must_be_an_offer(
    named: dict[str, str], found: str, severity: Severity
) -> None:
    paid = {"instance_type": "g4dn.xlarge", "count": 1, **named}
    world = Examined(config=a_config() | {"pricing": {"paid": [paid]}}, is_deployed=False)

    finding = world.finding("paid machines of classify")

    assert (finding.found, finding.severity) == (found, severity)
    assert bool(finding.remedy) is (severity is Severity.WARNING)


def _price(found: str) -> float:
    return float(found.rpartition(" at ")[2].split()[0])


def test_workloads_share_a_quota() -> None:
    config = a_config()
    config["workload"]["ocr"] = config["workload"]["classify"]

    assert (
        Examined(config=config, is_deployed=False)
        .finding(G_SPOT)
        .needed.endswith("32 for max_workers")
    )


def test_a_class_that_no_workload_may_buy_is_not_asked_for() -> None:
    world = Examined(policy=SPOT_ONLY)

    assert not any(f.what == G_ON_DEMAND for f in world.report().findings)


def test_a_quota_that_is_not_listed_warns() -> None:
    world = Examined()
    world.market.listings.quotas.clear()

    finding = world.finding(G_SPOT)

    assert (finding.found, finding.severity) == ("not listed", Severity.WARNING)
    assert finding.remedy.startswith("aws service-quotas list-service-quotas")


def test_counts_the_offers_of_each_zone() -> None:
    finding = Examined(policy=SPOT_ONLY).finding("offers for classify")

    assert finding.found.startswith(
        "2 in us-west-2a, 2 in us-west-2b; best g4dn.xlarge/us-west-2a/spot"
    )


def test_a_zone_without_a_fitting_offer_is_named() -> None:
    world = Examined()
    for name in ("g4dn.xlarge", "g6.xlarge"):
        world.market.withdraw(name, region=REGION, zone=ZONES[1])

    finding = world.finding("offers for classify")

    assert finding.severity is Severity.WARNING
    assert ZONES[1] in finding.remedy


@pytest.mark.parametrize(
    ("workload", "constraint"),
    [
        pytest.param({"requirements": {"gpu_names": ["H100"]}}, "gpu_names", id="no such GPU"),
        pytest.param({"policy": {"max_price_per_hour": 0.1}}, "max_price_per_hour", id="dear"),
    ],
)
def test_when_nothing_fits_the_constraint_is_named(
    workload: dict[str, object], constraint: str
) -> None:
    finding = Examined(config=a_config(**workload), is_deployed=False).finding("offers for")

    assert finding.severity is Severity.BLOCKED
    assert "nearest g4dn.xlarge/us-west-2a/" in finding.found
    assert finding.remedy == f"change {constraint} of classify"


def test_a_rung_that_opens_later_counts() -> None:
    later = {
        "ladder": [
            {"after": "0s", "capacity_types": ["spot"], "max_price_per_hour": 0.01},
            {"after": "1h", "capacity_types": ["on-demand"]},
        ],
        "start_within": "2h",
    }
    world = Examined(config=a_config(policy=later), is_deployed=False)

    assert "g4dn.xlarge/us-west-2a/on-demand" in world.finding("offers for").found


def test_only_what_the_templates_can_start_counts() -> None:
    world = Examined()
    arm = a_type("g5g.xlarge", architecture="arm64")
    world.market.offer(arm, region=REGION, zones=ZONES, on_demand=0.1, spot=0.05)

    assert "best g4dn.xlarge" in world.finding("offers for").found


@pytest.mark.parametrize(
    ("zones", "severity"),
    [
        pytest.param(["us-west-2a", "us-west-2z"], Severity.WARNING, id="one"),
        pytest.param(["us-west-2z"], Severity.BLOCKED, id="all"),
    ],
)
def test_a_zone_that_is_not_there_is_found(zones: list[str], severity: Severity) -> None:
    config = a_config()
    config["deployment"]["zones"] = zones

    finding = Examined(config=config, is_deployed=False).finding("zones of us-west-2")

    assert finding.severity is severity
    assert finding.remedy.endswith("us-west-2a, us-west-2b")


def test_a_market_that_cannot_be_read_blocks() -> None:
    world = Examined()
    world.market = failing(world.market, "instance_types")  # type: ignore[assignment]

    assert world.severity("region us-west-2") is Severity.BLOCKED
    assert "us-west-2" in world.finding("offers for").remedy


@pytest.mark.parametrize("method", ["spot_prices", "quotas"])
def test_prices_and_quotas_that_cannot_be_read_only_warn(method: str) -> None:
    world = Examined()
    world.market = failing(world.market, method)  # type: ignore[assignment]
    report = world.report()

    assert report.can_launch
    assert any(f.found == "slow down" and f.severity is Severity.WARNING for f in report.findings)


def test_a_policy_that_allows_no_worker_blocks() -> None:
    world = Examined()
    world.settings.put_live("classify", '{"max_workers": 0}')

    finding = world.finding("max_workers of classify")

    assert finding.severity is Severity.BLOCKED
    assert finding.remedy.startswith("`spindown policy reset classify max_workers")


@pytest.mark.parametrize(
    ("live", "is_told"),
    [
        pytest.param({}, False, id="the defaults: 5 min, a boot of 3 and two ticks"),
        pytest.param({"start_within": "299s"}, True, id="a second less"),
        pytest.param({"start_within": "2m", "warm_workers": 1}, False, id="no boot is waited for"),
        pytest.param({"start_within": "210s", "boot_estimate": "90s"}, False, id="boots sooner"),
    ],
)
def test_warns_of_a_promise_that_no_launch_can_keep(
    live: dict[str, object], *, is_told: bool
) -> None:
    world = Examined()
    world.settings.put_live("classify", json.dumps(live))

    report = world.report()
    found = [each for each in report.findings if each.what == "start_within of classify"]

    assert [each.severity for each in found] == [Severity.WARNING] * is_told
    for each in found:
        assert (each.found, each.needed[:4]) == ("299s", "300s")
        assert each.remedy.startswith("`spindown policy set classify start_within=300s`; or boot_")
    assert report.can_launch


def test_each_type_of_jobs_must_have_an_offer() -> None:
    types = (
        JobType(name="small", needs=JobNeeds(memory_gib=16)),
        JobType(name="huge", needs=JobNeeds(memory_gib=4000)),
    )
    world = Examined(policy=Policy(types=types))

    assert world.finding("offers for type small").severity is Severity.GOOD
    finding = world.finding("offers for type huge")
    assert finding.severity is Severity.BLOCKED
    assert "memory_mib_min" in finding.remedy
