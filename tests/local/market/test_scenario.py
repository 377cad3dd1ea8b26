"""Scenario files: those that ship, and the sentences about those that are wrong."""

import re
from pathlib import Path

import pytest

from spindown.local.market.catalogue import instance_types, is_offered
from spindown.local.market.scenario import ScenarioError, load_scenario, parse_scenario
from tests.local.market.world import PLAIN


@pytest.mark.parametrize("name", ["abroad", "default", "demo", "storm"])
def test_shipped_scenarios_sell_what_exists_where_it_exists(name: str) -> None:
    scenario = load_scenario(name)
    for instance_type, market in scenario.type.items():
        assert instance_type in instance_types()
        for zone, price in market.spot.items():
            assert is_offered(instance_type, zone), (instance_type, zone)
            on_demand = market.on_demand_in(zone[:-1])
            assert on_demand is not None
            assert 0 < price < on_demand


def test_the_page_lists_what_the_default_scenario_sells() -> None:
    page = (Path(__file__).parents[3] / "docs" / "local.md").read_text(encoding="utf-8")
    _, _, listed = page.partition("`default` sells")
    named = re.findall(r"`(\w+\.\w+)`", listed.partition("\n\n")[0])
    assert named == list(load_scenario("default").type)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        pytest.param(
            '\n[[dry]]\ntype = "g6.*"\nuntil = "soon"\n',
            "test.dry.0.until is 'soon': write a duration such as \"90s\"",
            id="duration",
        ),
        pytest.param(
            '\n[[interruption]]\nnotice = "5s"\n',
            "state exactly one of at, after and rate_per_hour",
            id="no-trigger",
        ),
        pytest.param(
            '\n[type."g5.2xlarge"]\non_demand = 1.0\nspot = { eu-west-1a = 0.5 }\n',
            "type g5.2xlarge has a spot price in eu-west-1a, outside of regions",
            id="zone-elsewhere",
        ),
        pytest.param("\n[walks]\n", "test.walks is {}: did you mean walk?", id="misspelt"),
        pytest.param(
            '\n[type."g5.2xlarge"]\nboot = "4s"\n',
            "test.type.g5.2xlarge.on_demand is not set: write this key",
            id="no price",
        ),
        pytest.param(
            '\n[type."g5.2xlarge"]\non_demand = -1\n',
            "test.type.g5.2xlarge.on_demand is -1: make it greater than 0",
            id="a price below nothing",
        ),
        pytest.param(
            '\n[type."g5.2xlarge"]\non_demand = 1.0\nspot = { us-east-1a = "x" }\n',
            "test.type.g5.2xlarge.spot.us-east-1a is 'x': write a number",
            id="a price in words",
        ),
        pytest.param(
            '\n[type."g5.2xlarge"]\non_demand = 1.0\nboot = "soon"\n',
            "test.type.g5.2xlarge.boot is 'soon': write a duration such as",
            id="a boot in words",
        ),
        pytest.param(
            '\n[type."g5.2xlarge"]\non_demand = 1.0\nboot = { median = "9s", p95 = "1s" }\n',
            "test.type.g5.2xlarge.boot is { median = '9s', p95 = '1s' }: median must be above zero",
            id="quantiles the wrong way round",
        ),
        pytest.param("\nnot toml", "fix the TOML", id="no-toml"),
    ],
)
def test_a_wrong_scenario_gets_one_sentence(extra: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(PLAIN + extra, origin="test")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_other_bytes_than_text_gets_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(ScenarioError, match="save it as UTF-8"):
        load_scenario(path)


def test_a_type_that_ec2_does_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(PLAIN + '\n[type."g5.xlareg"]\non_demand = 1.0\n', encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)

    assert str(caught.value) == "odd.toml.type is 'g5.xlareg': did you mean g5.xlarge?"


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(ScenarioError, match="default, demo, storm"):
        load_scenario("dmeo")


def test_durations_add_up() -> None:
    scenario = parse_scenario(
        PLAIN + '\n[[dry]]\ntype = "g6.*"\nuntil = "1h1m30s500ms"\n', origin="test"
    )
    assert scenario.dry[0].until is not None
    assert scenario.dry[0].until.total_seconds() == 3690.5
