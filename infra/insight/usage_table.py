"""Usage records as a table that Athena queries, with three questions saved.

The table has no crawler: workloads and days are projected from the layout of the keys.
"""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from types import UnionType
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from constructs import Construct

from infra.store import ANSWERS
from spindown.contract.usage import DAY, PREFIX, WORKLOAD, UsageRecord

_TABLE = "usage"
#: Days before there was any record need not be looked for.
_FIRST_DAY = "2026-01-01"
#: A query that reads more than this is a slip: a year of a busy workload is far less.
_BYTES_A_QUERY = 10 * 1024**3

#: Name -> (what it tells, SQL); ``{table}`` is the table.
_QUERIES: Mapping[str, tuple[str, str]] = {
    "cost per item by instance type": (
        "What an item has cost on each instance type in 30 days, cheapest first.",
        """\
SELECT workload, instance_type, capacity_type,
       sum(items) AS items,
       sum(dollars) AS dollars,
       sum(dollars) / nullif(sum(items), 0) AS dollars_per_item,
       sum(items) / nullif(sum(seconds) / 3600, 0) AS items_per_slot_hour
FROM {table}
WHERE day >= date_format(current_date - INTERVAL '30' DAY, '%Y-%m-%d')
GROUP BY workload, instance_type, capacity_type
ORDER BY workload, dollars_per_item""",
    ),
    "over-provisioned jobs": (
        "Jobs of 30 days that used under 30 % of GPU and of its memory, dearest first.",
        """\
SELECT workload, job_id, instance_type, gpu,
       sum(gpu_mean * seconds) / sum(seconds) AS gpu_mean,
       max(vram_max) AS vram_max,
       max(memory_max) AS memory_max,
       sum(dollars) AS dollars
FROM {table}
WHERE day >= date_format(current_date - INTERVAL '30' DAY, '%Y-%m-%d')
  AND gpu_mean IS NOT NULL AND seconds > 0
GROUP BY workload, job_id, instance_type, gpu
HAVING sum(gpu_mean * seconds) / sum(seconds) < 30 AND max(vram_max) < 30
ORDER BY dollars DESC
LIMIT 200""",
    ),
    "work redone by pool": (
        "What interruptions have cost in each pool in 30 days: items and dollars spent twice.",
        """\
SELECT workload, instance_type, zone, capacity_type,
       count_if("end" = 'interrupted') AS interruptions,
       sum(items_redone) AS items_redone,
       100.0 * sum(items_redone) / nullif(sum(items + items_redone), 0) AS percent_redone,
       sum(dollars * items_redone / nullif(items + items_redone, 0)) AS dollars_redone
FROM {table}
WHERE day >= date_format(current_date - INTERVAL '30' DAY, '%Y-%m-%d')
GROUP BY workload, instance_type, zone, capacity_type
ORDER BY dollars_redone DESC NULLS LAST""",
    ),
}


class UsageTable(Construct):
    """Database, table and workgroup; the workgroup writes its answers below ``athena/``."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: str,
        workloads: Sequence[str],
        bucket_name: str,
    ) -> None:
        super().__init__(scope, construct_id)
        # Glue's names have no hyphens in SQL without quotes.
        name = f"spindown_{deployment.replace('-', '_')}"
        database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=name, description=f"Spindown deployment {deployment}"
            ),
        )
        table = glue.CfnTable(
            self,
            "Table",
            catalog_id=Aws.ACCOUNT_ID,
            database_name=name,
            table_input=_table_input(workloads, f"s3://{bucket_name}/{PREFIX}"),
        )
        table.add_resource_dependency(database)
        group = self._make_workgroup(deployment, bucket_name)
        for title, (description, sql) in _QUERIES.items():
            query = athena.CfnNamedQuery(
                self,
                title.title().replace(" ", "").replace("-", ""),
                name=f"{deployment}: {title}",
                description=description,
                database=name,
                query_string=sql.format(table=f"{name}.{_TABLE}"),
                work_group=group.name,
            )
            query.add_resource_dependency(group)

    def _make_workgroup(self, deployment: str, bucket_name: str) -> athena.CfnWorkGroup:
        configuration = athena.CfnWorkGroup.WorkGroupConfigurationProperty(
            enforce_work_group_configuration=True,
            publish_cloud_watch_metrics_enabled=False,
            bytes_scanned_cutoff_per_query=_BYTES_A_QUERY,
            result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                output_location=f"s3://{bucket_name}/{ANSWERS}",
                encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                    encryption_option="SSE_S3"
                ),
            ),
        )
        return athena.CfnWorkGroup(
            self,
            "WorkGroup",
            name=f"spindown-{deployment}",
            description=f"Questions about the usage of {deployment}",
            recursive_delete_option=True,
            work_group_configuration=configuration,
        )


def _table_input(workloads: Sequence[str], location: str) -> glue.CfnTable.TableInputProperty:
    column = glue.CfnTable.ColumnProperty
    keys = f"{WORKLOAD}=${{{WORKLOAD}}}/{DAY}=${{{DAY}}}/"
    return glue.CfnTable.TableInputProperty(
        name=_TABLE,
        table_type="EXTERNAL_TABLE",
        parameters={
            "EXTERNAL": "TRUE",
            "classification": "json",
            "projection.enabled": "true",
            f"projection.{WORKLOAD}.type": "enum",
            f"projection.{WORKLOAD}.values": ",".join(workloads),
            f"projection.{DAY}.type": "date",
            f"projection.{DAY}.format": "yyyy-MM-dd",
            f"projection.{DAY}.range": f"{_FIRST_DAY},NOW",
            f"projection.{DAY}.interval": "1",
            f"projection.{DAY}.interval.unit": "DAYS",
            "storage.location.template": location + keys,
        },
        partition_keys=[column(name=WORKLOAD, type="string"), column(name=DAY, type="string")],
        storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
            columns=[column(name=name, type=kind) for name, kind in columns().items()],
            location=location,
            input_format="org.apache.hadoop.mapred.TextInputFormat",
            output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            serde_info=glue.CfnTable.SerdeInfoProperty(
                serialization_library="org.openx.data.jsonserde.JsonSerDe",
                parameters={"ignore.malformed.json": "true"},
            ),
        ),
    )


def columns() -> Mapping[str, str]:
    """Return the table's columns and their types, as the record is written."""
    hints = typing.get_type_hints(UsageRecord)
    found = {f.name: _column_type(hints[f.name]) for f in fields(UsageRecord)}
    del found[WORKLOAD]
    return {**found, "dollars": "double"}


def _column_type(hint: Any) -> str:
    if isinstance(hint, UnionType):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    if hint is datetime or issubclass(hint, str | Enum):
        return "string"
    return {int: "bigint", float: "double"}[hint]
