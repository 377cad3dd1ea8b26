"""The table finds the records where they are written, and knows every field of them."""

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from typing import Any

import pytest

from spindown.contract.usage import UsageRecord, table_prefix
from spindown.infra.observability.query import columns
from tests.infra.assembly import Assembly
from tests.infra.observability.assembly import BUCKET, a_config, all_of, synthesise

#: Words of the saved queries that are SQL's (Trino), not columns.
SQL = frozenset(
    re.findall(
        r"\w+",
        "and as by count_if current_date date_format day desc from group having interval is last "
        "limit max not null nullif nulls order select sum where",
    )
)


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    config = a_config("ocr", "embed", name="big-lab")
    return synthesise(config, tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="module")
def table(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    (one,) = all_of(resources, "AWS::Glue::Table")
    given: Mapping[str, Any] = one["TableInput"]
    return given


def test_the_projected_place_of_a_record_is_where_it_is_written(
    table: Mapping[str, Any],
) -> None:
    template = table["Parameters"]["storage.location.template"]
    partitions = {"workload": "ocr", "day": "2026-03-09"}

    place = re.sub(r"\$\{(\w+)\}", lambda match: partitions[match[1]], template)

    assert place == f"s3://{BUCKET}/{table_prefix('ocr', date(2026, 3, 9))}"
    assert place.startswith(table["StorageDescriptor"]["Location"])


def test_every_workload_and_day_is_projected(table: Mapping[str, Any]) -> None:
    parameters = table["Parameters"]

    assert parameters["projection.enabled"] == "true"
    assert parameters["projection.workload.values"].split(",") == ["ocr", "embed"]
    assert parameters["projection.day.range"].endswith(",NOW")
    assert [key["Name"] for key in table["PartitionKeys"]] == ["workload", "day"]


def test_every_column_of_the_files_is_one_of_the_table(table: Mapping[str, Any]) -> None:
    made = {one["Name"]: one["Type"] for one in table["StorageDescriptor"]["Columns"]}

    assert set(made) == {f.name for f in fields(UsageRecord)} - {"workload"} | {"dollars"}
    some = ("job_id", "epoch", "seconds", "started_at", "net_in", "gpu_mean", "series")
    kinds = ["string", "bigint", "double", "timestamp", "bigint", "double", "string"]
    assert [made[name] for name in some] == kinds
    assert table["Parameters"]["classification"] == "parquet"


def test_three_questions_are_saved_over_columns_that_exist(
    resources: Mapping[str, Any], table: Mapping[str, Any]
) -> None:
    queries = all_of(resources, "AWS::Athena::NamedQuery")
    known = {*columns(), "workload", "day"}

    assert len(queries) == 3
    for query in queries:
        text = re.sub(r"'[^']*'", "", query["QueryString"])
        source = re.search(r"FROM (\w+)\.(\w+)", text)
        assert source is not None
        assert source[1] == query["Database"] == "spindown_big_lab"
        assert source[2] == table["Name"]
        made = set(re.findall(r" AS (\w+)", text))
        words = set(re.findall(r"[A-Za-z_]\w*", text)) - {source[1], source[2]}
        assert {word for word in words if word.lower() not in SQL} <= known | made


def test_answers_are_encrypted_and_a_slip_is_stopped(resources: Mapping[str, Any]) -> None:
    (group,) = all_of(resources, "AWS::Athena::WorkGroup")
    rules = group["WorkGroupConfiguration"]
    answers = rules["ResultConfiguration"]

    assert rules["EnforceWorkGroupConfiguration"]
    assert rules["PublishCloudWatchMetricsEnabled"]
    assert rules["BytesScannedCutoffPerQuery"] == 10 * 1024**3
    assert answers["OutputLocation"] == f"s3://{BUCKET}/athena/"
    assert answers["EncryptionConfiguration"] == {"EncryptionOption": "SSE_S3"}


def test_answers_go_after_a_week(assembly: Assembly) -> None:
    rules = assembly.one_of("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    (rule,) = (one for one in rules if one.get("Prefix") == "athena/")

    assert (rule["Status"], rule["ExpirationInDays"]) == ("Enabled", 7)
