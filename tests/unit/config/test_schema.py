"""What spindown.toml says becomes values of the domain."""

import math
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from spindown import config
from spindown.config.form import TomlTable
from spindown.contract.codec import decode, encode
from spindown.domain.account_pricing import PaidMachines, Pricing
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung, WarmSpan, Weekday
from spindown.error import ConfigError
from tests.unit.config.document import SMALLEST, with_value


def test_the_smallest_file_has_the_defaults_of_the_domain() -> None:
    workload = config.parse(SMALLEST).workloads["ocr"]

    assert workload.to_policy() == Policy()


def test_every_threshold_of_the_domain_has_a_key() -> None:
    assert {f.name for f in fields(Policy)} == set(config.PolicyConfig.model_fields)


def test_memory_is_written_in_gib_and_compared_in_mib() -> None:
    document = with_value("workload.ocr.requirements.gpu_memory_gib_min", 22.5)

    requirements = config.parse(document).workloads["ocr"].requirements.to_domain()

    assert requirements.gpu_memory_mib_min == 23_040


def test_a_gpu_that_the_image_has_no_driver_for_is_left_out() -> None:
    # NVIDIA's open kernel modules begin with Turing.
    document = with_value("workload.ocr.requirements.gpu_names_denied", ["T4"])
    workload = config.parse(document).workloads["ocr"]
    own = with_value("workload.ocr.image.parameters", {"x86_64": "/images/ocr"})

    denied = workload.to_requirements().gpu_names_denied
    denied_on_own = config.parse(own).workloads["ocr"].to_requirements().gpu_names_denied

    assert denied == {"T4", "K80", "M60", "V100"}
    assert denied_on_own == frozenset()


def test_a_part_of_a_gpu_takes_an_image_of_ones_own() -> None:
    document = with_value("workload.ocr.image.parameters", {"x86_64": "/images/grid"})
    document["workload"]["ocr"]["requirements"] = {"allow_fractional_gpu": True}

    requirements = config.parse(document).workloads["ocr"].to_requirements()

    assert requirements.allow_fractional_gpu


def test_a_live_edit_changes_only_what_it_names() -> None:
    base = Policy(max_workers=7)

    merged = config.merge_policy(
        base,
        {
            "idle_timeout": "2m",
            "ladder": [{"after": "0s", "capacity_types": ["on-demand"]}],
        },
    )

    assert merged.max_workers == 7
    assert merged.idle_timeout == timedelta(minutes=2)
    assert merged.ladder[0].capacity_types == {CapacityType.ON_DEMAND}


PRICING: dict[str, Any] = {
    "discount": [{"multiplier": 0.7, "families": ["g5"], "capacity_types": ["on-demand"]}],
    "paid": [{"instance_type": "g5.xlarge", "count": 2}],
}


def test_without_pricing_the_prices_of_ec2_are_paid() -> None:
    own = config.parse({**SMALLEST, "pricing": PRICING}).pricing.of("ocr", "us-west-2")

    assert config.parse(SMALLEST).pricing.of("ocr", "us-west-2") is None
    assert own is not None
    assert own.paid == (PaidMachines(instance_type="g5.xlarge", count=2, region="us-west-2"),)
    assert own.factor("g5.xlarge", "us-west-2", CapacityType.ON_DEMAND) == 0.7
    assert own.factor("g5.xlarge", "us-west-2", CapacityType.SPOT) == 1.0
    assert decode(Pricing, encode(own)) == own


def test_an_empty_list_of_requirements_is_none() -> None:
    loaded = config.parse(with_value("workload.ocr.run.requirements", []))

    assert loaded.workloads["ocr"].run.requirements is None


@pytest.mark.parametrize("requirements", [["six==1.17.0"], "requirements.txt"])
def test_the_code_of_verify_takes_no_requirements(requirements: object) -> None:
    document = with_value("workload.ocr.run", {"verify": True, "requirements": requirements})

    with pytest.raises(ConfigError, match=r"run\.requirements .* leave it out"):
        config.parse(document)


@pytest.mark.parametrize(
    ("paid", "said"),
    [
        ({"workload": "other"}, r"pricing\.paid\.0\.workload is 'other': name one of ocr"),
        ({"zone": "eu-west-1a", "region": "us-west-2"}, r"paid\.0\.zone is 'eu-west-1a'"),
        ({"zone": "us-east-1f"}, r"paid\.0\.zone is 'us-east-1f': name one of us-east-1a"),
        ({"zone": "eu-west-1a"}, r"paid\.0\.zone .* add \[deployment\.outpost\.eu-west-1\]"),
        ({"region": "eu-west-1"}, r"paid\.0\.region .* add \[deployment\.outpost\.eu-west-1\]"),
        ({"count": 0}, "count"),
    ],
)
def test_paid_machines_that_nobody_could_have_are_refused(paid: dict[str, Any], said: str) -> None:
    own = {**PRICING, "paid": [{**PRICING["paid"][0], **paid}]}

    with pytest.raises(ConfigError, match=said):
        config.parse({**SMALLEST, "pricing": own})


def test_prices_of_an_outpost_and_its_zones_are_taken() -> None:
    document = with_value("deployment.outpost.eu-west-1", {"zones": ["eu-west-1b"]})
    paid = {**PRICING["paid"][0], "zone": "eu-west-1b"}
    discount = {"multiplier": 1.19, "regions": ["eu-west-1"]}

    loaded = config.parse({**document, "pricing": {"paid": [paid], "discount": [discount]}})

    own = loaded.pricing.of("ocr", "us-east-1")
    assert own is not None
    assert own.factor("g5.xlarge", "eu-west-1", CapacityType.SPOT) == 1.19
    assert [one.region for one in own.paid] == ["eu-west-1"]


@pytest.mark.parametrize(
    ("discount", "said"),
    [
        ({"multiplier": 80.0}, r"multiplier is 80\.0: write what you pay of a dollar, 2 at most"),
        ({"regions": ["eu-west-1", "us-east-1"]}, "regions .* take eu-west-1 out"),
    ],
)
def test_discounts_that_nobody_could_have_are_refused(discount: dict[str, Any], said: str) -> None:
    own = {"discount": [{"multiplier": 0.8, **discount}]}

    with pytest.raises(ConfigError, match=said):
        config.parse({**SMALLEST, "pricing": own})


def test_two_workloads_do_not_count_the_same_machines() -> None:
    document = {**SMALLEST, "pricing": PRICING}
    document["workload"] = {"ocr": SMALLEST["workload"]["ocr"], "b": SMALLEST["workload"]["ocr"]}

    with pytest.raises(ConfigError, match=r"pricing\.paid\.0\.workload is not set"):
        config.parse(document)


def test_auto_gives_the_idle_timeout_back_to_learning() -> None:
    base = Policy(idle_timeout=timedelta(minutes=2))

    assert config.merge_policy(base, {"idle_timeout": "auto"}).idle_timeout is None


def test_refuses_a_live_edit_that_contradicts_the_rest() -> None:
    with pytest.raises(ConfigError, match=r"max_failures_on_two \(3\)"):
        config.merge_policy(Policy(), {"max_failures": 1})


@pytest.mark.parametrize("name", ["ocr", "other-types"])
def test_a_type_has_no_name_by_which_records_are_kept(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config.parse(with_value("workload.ocr.policy.types", [{"name": name}])).workloads[
            "ocr"
        ].to_policy()


@pytest.mark.parametrize(("disk_gib", "fits"), [(25, True), (26, False)])
def test_a_shared_type_leaves_disk_for_the_others(disk_gib: int, *, fits: bool) -> None:
    policy = {"types": [{"name": "a", "disk_gib": disk_gib}], "dispatch": "shared"}
    text = with_value("workload.ocr.policy", {**policy, "shared_slots": 4})
    if fits:
        config.parse(text)
        return

    with pytest.raises(ConfigError, match=r"disk_gib of type a be 25.0 at most"):
        config.parse(text)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"warm_workers": 5, "max_workers": 4}, "max_workers (4)"),
        ({"pool_cooldown_at_most": "1s"}, "pool_cooldown (3m)"),
        ({"heartbeat_stale_after": "1s"}, "heartbeat_interval (1m)"),
        ({"max_lifetime": "1s", "boot_estimate": "90s"}, "boot_estimate (1m30s)"),
        ({"scale_up_timeout": "0s"}, "boot_estimate (3m)"),
        ({"finish_within": "1s", "start_within": "2m"}, "start_within (2m)"),
    ],
)
def test_a_key_that_bounds_another_is_named_with_its_value(
    edit: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config.merge_policy(Policy(), edit)

    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("edit", "remedy"),
    [
        ({"finish_within": "8m"}, "start_within .* boot_estimate"),
        ({"finish_within": "14m"}, "max_failures .* boot_estimate"),
        ({"finish_within": "169h"}, "make it at most 7d"),
        ({"finish_within": "6h", "start_within": "7h"}, "make it longer than start_within"),
    ],
)
def test_refuses_a_deadline_that_nothing_can_keep(edit: dict[str, str], remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"finish_within.*{remedy}"):
        config.merge_policy(Policy(), edit)


@pytest.mark.parametrize(
    ("edit", "remedy"),
    [
        ({"start_within": "3651d"}, "make it at most 3650d"),
        ({"tick": "99999999999999999999d"}, "make it at most 3650d"),
        ({"max_workers": 10**400}, "make it at most 1000000000"),
        ({"max_price_per_hour": 1e308}, "make it at most 1000000000"),
        ({"throughput_estimate": 1e-9}, "make it at least 0.01"),
        ({"items_per_job_estimate": 1e9}, "make it at most 100000"),
        ({"mib_per_item_estimate": 1e10}, "make it at most 1000000000"),
    ],
)
def test_refuses_what_no_clock_and_no_sum_can_hold(edit: dict[str, object], remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(edit))}.*{remedy}"):
        config.merge_policy(Policy(), edit)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_no_key_of_any_table_takes_a_number_that_json_lacks(number: float) -> None:
    for table in tables_under(TomlTable):
        for name, key in table.model_fields.items():
            form: Any = Annotated[key.annotation, key]
            with pytest.raises(ValidationError):
                pytest.fail(f"{table.__name__}.{name}: {TypeAdapter(form).validate_python(number)}")


def tables_under(table: type[TomlTable]) -> list[type[TomlTable]]:
    below = table.__subclasses__()
    return [*below, *(each for one in below for each in tables_under(one))]


def test_no_plan_reckons_with_rarer_ticks_than_aws_makes() -> None:
    assert config.merge_policy(Policy(), {"tick": "2s"}).tick == timedelta(seconds=2)
    with pytest.raises(ConfigError, match="make it at most 1m"):
        config.merge_policy(Policy(), {"tick": "5m"})


def test_work_is_let_gather_live() -> None:
    at_once = config.merge_policy(Policy(), {"scale_up_threshold": 1})

    assert at_once.scale_up_threshold == 1
    assert config.merge_policy(at_once, {"scale_up_threshold": "none"}) == Policy()
    with pytest.raises(ConfigError, match="scale_up_threshold"):
        config.merge_policy(Policy(), {"scale_up_threshold": "never"})


def test_a_deadline_is_set_and_taken_back_live() -> None:
    merged = config.merge_policy(Policy(), {"finish_within": "12h"})

    assert merged.finish_within == timedelta(hours=12)
    assert config.merge_policy(merged, {"finish_within": None}).finish_within is None
    assert config.merge_policy(Policy(), {"finish_within": "168h"}).finish_within is not None
    assert config.merge_policy(Policy(), {"finish_within": "15m"}).finish_within is not None


@given(st.integers(min_value=0, max_value=10**11))
def test_a_duration_reads_back_as_it_was_written(milliseconds: int) -> None:
    length = timedelta(milliseconds=milliseconds)

    assert config.parse_duration(config.format_duration(length)) == length


def test_home_is_the_first_of_the_regions() -> None:
    document = with_value("deployment.outpost.eu-west-1", {"zones": ["eu-west-1b"]})
    document["workload"]["ocr"]["policy"] = {"regions": ["eu-west-1"]}

    loaded = config.parse(document)

    zones = {region: place.zones for region, place in loaded.deployment.regions.items()}
    assert zones == {"us-east-1": ("us-east-1a",), "eu-west-1": ("eu-west-1b",)}
    assert loaded.workloads["ocr"].to_policy().regions == frozenset({"eu-west-1"})


def test_a_policy_of_the_domain_is_written_as_a_table() -> None:
    spot = frozenset({CapacityType.SPOT})
    policy = Policy(
        max_workers=4,
        start_within=timedelta(minutes=7),
        idle_timeout=timedelta(minutes=3),
        ladder=(Rung(after=timedelta(0), capacity_types=spot, max_price_per_hour=2.0),),
        warm_schedule=(
            WarmSpan(
                days=frozenset({Weekday.MONDAY}),
                start=timedelta(hours=8),
                end=timedelta(hours=18, minutes=30),
                workers=2,
            ),
        ),
    )

    assert config.PolicyConfig.of(policy).apply_to(Policy()) == policy
    assert config.PolicyConfig.of(Policy()).changes == {}
