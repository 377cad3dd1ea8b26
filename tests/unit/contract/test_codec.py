"""Rows carry dataclasses through JSON without loss."""

import json
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.codec import (
    decode,
    decode_instant,
    encode,
    encode_instant,
    encode_short,
    from_json,
    replace_fields,
    to_json,
)
from spindown.contract.row import RateRow
from spindown.contract.run_spec import RunSpec
from spindown.contract.settings import RegionSettings, TemplateRef, WorkloadSettings
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.offer import CapacityType, InstanceRequirements
from spindown.domain.policy import JobNeeds, JobType, Policy, RankBy
from spindown.error import ContractError

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def a_workload() -> WorkloadSettings:
    return WorkloadSettings(
        name="ocr",
        queue_url="https://queue",
        dlq_url="https://dlq",
        log_group="/spindown/ocr",
        regions={
            "us-east-1": RegionSettings(
                subnets={"us-east-1a": "subnet-1"},
                templates={"x86_64": TemplateRef(id="lt-1", version="3")},
            )
        },
        requirements=InstanceRequirements(gpu_names=frozenset({"T4", "L4"})),
        policy=Policy(idle_timeout=timedelta(minutes=3), rank_by=RankBy.PRICE),
    )


def a_worker() -> Worker:
    return Worker(
        instance_id="i-1",
        launch_id="l-1",
        instance_type="g5.xlarge",
        region="us-east-1",
        zone="us-east-1a",
        capacity_type=CapacityType.SPOT,
        gpu_name="A10G",
        gpu_count=1,
        slots=1,
        price_per_hour=0.5,
        state=WorkerState.BUSY,
        launched_at=NOON,
        interrupted_at=NOON + timedelta(minutes=2),
    )


@pytest.mark.parametrize("value", [a_workload(), a_worker(), RateRow(samples=(1.5, 2.0))])
def test_a_value_survives_json(value: object) -> None:
    row = json.loads(json.dumps(encode(value)))

    assert decode(type(value), row) == value


def test_what_is_left_out_of_a_short_row_is_read_as_it_was() -> None:
    types = (JobType(name="ocr", needs=JobNeeds(memory_gib=4)), JobType(name="idle"))
    # By default a share of the paid time; None is no default there, and must stay.
    value = Policy(types=types, alarm_max_idle_share=None, max_dollars_per_hour=2.0)

    row = encode_short(value)

    assert decode(Policy, json.loads(to_json(row))) == value
    assert row["types"] == [{"name": "ocr", "needs": {"memory_gib": 4}}, {"name": "idle"}]
    assert row["alarm_max_idle_share"] is None
    assert "max_price_per_gpu_hour" not in row
    # Defaults that are no emptiness are written down: a later version may have others.
    assert (row["max_workers"], row["warm_workers"]) == (4, 0)


def test_fields_of_a_later_version_are_ignored() -> None:
    row = {**encode(a_worker()), "colour": "red"}

    assert decode(Worker, row) == a_worker()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "asleep"),
        ("launched_at", "yesterday"),
        ("slots", "one"),
        ("slots", True),
        ("price_per_hour", None),
        ("launched_at", 3),
        ("slots", 1.5),
        ("slots", float("inf")),
        ("slots", 0),
        ("slots", 10**6),
        ("busy_slots", -5),
        ("price_per_hour", float("nan")),
        ("price_per_hour", -1e9),
        ("price_per_hour", 1e9),
        ("gpu_percent", float("inf")),
        ("version", 10**30),
        ("launched_at", "2026-11-20T12:00:00"),
        ("launched_at", "0001-01-01T00:00:00.000000Z"),
        ("launched_at", "9999-12-31T23:59:59.999999Z"),
        ("heartbeat_at", "1969-12-31T23:59:59.000000Z"),
    ],
)
def test_names_the_field_that_does_not_fit(field: str, value: object) -> None:
    with pytest.raises(ContractError) as caught:
        decode(Worker, {**encode(a_worker()), field: value})

    assert caught.value.field == f"Worker.{field}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("item_timeout", 1e300, id="longer than any time"),
        pytest.param("command", "python run.py", id="a text for a list"),
        pytest.param("command", {"python": "run.py"}, id="an object for a list"),
    ],
)
def test_names_the_field_of_a_file_that_does_not_fit(field: str, value: object) -> None:
    with pytest.raises(ContractError) as caught:
        decode(RunSpec, {field: value})

    assert caught.value.field == f"RunSpec.{field}"


@pytest.mark.parametrize("bad", [-1.0, 1e300, float("nan"), float("inf"), 10**30])
def test_no_sample_is_out_of_bounds(bad: float) -> None:
    with pytest.raises(ContractError):
        decode(RateRow, {"samples": [1.0, bad, 2.0]})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1E+999"])
def test_a_number_that_is_not_finite_is_told(number: str) -> None:
    with pytest.raises(ContractError, match=re.escape(f"{number} is")):
        from_json("the file", f'{{"size": [1.5, {number}]}}')


@pytest.mark.parametrize(
    "text", ["", "{", "\ud800", "[" * 100_000, "[" * 65 + "]" * 65, b"\xff", "9" * 5000]
)
def test_text_that_is_no_json_or_too_deep_is_told(text: str | bytes) -> None:
    with pytest.raises(ContractError) as caught:
        from_json("live policy", text)

    assert caught.value.field == "live policy"


def test_an_instant_of_another_zone_is_read_in_utc() -> None:
    row = {**encode(a_worker()), "launched_at": "2026-11-20T14:00:00+02:00"}

    assert encode(decode(Worker, row)) == encode(replace(a_worker(), launched_at=NOON))


@pytest.mark.parametrize("day", ["0001-01-01", "1969-12-30", "2201-01-02", "9999-12-31"])
@pytest.mark.parametrize("zone", ["Z", "+00:00", "+14:00", "-14:00", "+23:59"])
def test_an_instant_far_away_is_none(day: str, zone: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        decode_instant(f"{day}T12:00:00{zone}")


def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    assert decode(Worker, {**encode(a_worker()), "slots": 2.0}).slots == 2


def test_names_a_field_that_is_missing() -> None:
    row = encode(a_worker())
    del row["zone"]

    with pytest.raises(ContractError, match=r"Worker\.zone"):
        decode(Worker, row)


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_the_order_of_text_is_the_order_of_time(one: datetime, other: datetime) -> None:
    assert (encode_instant(one) < encode_instant(other)) == (one < other)


@pytest.mark.parametrize(
    "value", [a_worker(), Policy(), RateRow(), InstanceRequirements(gpu_names=frozenset({"T4"}))]
)
def test_a_varied_value_is_the_replaced_one(value: Any) -> None:
    changes = {fields(value)[0].name: None}

    assert replace_fields(value, changes) == replace(value, **changes)
    assert replace_fields(value, {}) == value
    with pytest.raises(TypeError):
        replace_fields(value, {"colour": "red"})
