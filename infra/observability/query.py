"""Saved queries: of Logs Insights over the logs, of Athena over the usage records."""

from collections.abc import Mapping, Sequence

from aws_cdk import Aws
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from aws_cdk import aws_logs as logs
from constructs import Construct

from spindown.contract.usage import DAY, PREFIX, WORKLOAD
from spindown.contract.usage_table import COLUMNS
from spindown.infra.shared.resources import ANSWERS
from spindown.infra.shared.stack import DeploymentStack

#: Name -> (the log groups that it reads: a function, all ``functions``, or ``workers``; query). Its
#: fields are those that functions and workers write.
_LOG_QUERIES: Mapping[str, tuple[str, str]] = {
    "Why was nothing launched": (
        "scaler",
        """\
fields @timestamp, workload, outcome, summary
| filter action = "reconciled" and outcome not in ["idle", "enough", "launched"]
| sort @timestamp desc
| limit 200""",
    ),
    "Decisions by outcome": (
        "scaler",
        """\
filter action = "reconciled"
| stats count(*) as ticks by workload, outcome, bin(1h) as hour
| sort hour desc""",
    ),
    "Interruptions": (
        "interruption",
        """\
fields @timestamp, instance_id, workload, acted, summary
| filter action = "reacted" and workload != ""
| sort @timestamp desc
| limit 200""",
    ),
    "Errors of the control plane": (
        "functions",
        """\
fields @timestamp, service, message, exception_name, exception
| filter level in ["ERROR", "CRITICAL"] or @message like /Task timed out/
| sort @timestamp desc
| limit 100""",
    ),
    "Warnings of workers": (
        "workers",
        """\
fields @timestamp, instance_id, slot, job_id, event, reason, traceback
| filter level in ["warning", "error"]
| sort @timestamp desc
| limit 100""",
    ),
    "What jobs print": (
        "workers",
        """\
fields @timestamp, job_id, slot, text, lines, instance_id
| filter event in ["user_output", "user_output_left_out", "user_output_limit"]
| sort @timestamp desc
| limit 1000""",
    ),
    "Slowest ticks": (
        "scaler",
        """\
filter @type = "REPORT"
| stats count(*) as ticks, avg(@duration) as mean, pct(@duration, 95) as p95,
    max(@duration) as longest, max(@maxMemoryUsed / 1e6) as memory by bin(1h) as hour
| sort hour desc""",
    ),
}


#: The functions that a query reads by name come first.
_FUNCTIONS = ("scaler", "interruption", "offers", "teardown")


class SavedQueries(Construct):
    """The queries, under the folder ``spindown/{deployment}``."""

    def __init__(
        self, scope: Construct, construct_id: str, *, deployment: str, workloads: Sequence[str]
    ) -> None:
        super().__init__(scope, construct_id)
        functions = [_group(deployment, name) for name in _FUNCTIONS]
        groups = {
            "scaler": functions[:1],
            "interruption": functions[1:2],
            "functions": functions,
            "workers": [_group(deployment, f"worker/{name}") for name in workloads],
        }
        for name, (read, text) in _LOG_QUERIES.items():
            logs.CfnQueryDefinition(
                self,
                name.title().replace(" ", ""),
                name=f"spindown/{deployment}/{name}",
                query_string=text,
                log_group_names=groups[read],
            )


def _group(deployment: str, name: str) -> str:
    return f"/spindown/{deployment}/{name}"


_TABLE = "usage"
#: Hive's classes for Parquet.
_PARQUET = "org.apache.hadoop.hive.ql.io.parquet"
#: There is no record before this day.
_FIRST_DAY = "2026-01-01"
#: A query that reads more than this is a mistake: a year of a busy workload is far less.
_BYTES_A_QUERY = 10 * 1024**3

#: Name -> (what it tells, SQL); ``{table}`` is the table.
# CloudFormation replaces a query whose description changes.
_USAGE_QUERIES: Mapping[str, tuple[str, str]] = {
    "cost per item by instance type": (
        "What an item has cost on each instance type in 30 days, cheapest first.",
        """\
SELECT workload, type, instance_type, capacity_type,
       sum(items) AS items,
       sum(dollars) AS dollars,
       sum(dollars) / nullif(sum(items), 0) AS dollars_per_item,
       sum(items) / nullif(sum(seconds) / 3600, 0) AS items_per_slot_hour
FROM {table}
WHERE day >= date_format(current_date - INTERVAL '30' DAY, '%Y-%m-%d')
GROUP BY workload, type, instance_type, capacity_type
ORDER BY workload, type, dollars_per_item""",
    ),
    "over-provisioned jobs": (
        "Jobs of 30 days that used under 30 % of GPU and of its memory, the most expensive first.",
        """\
SELECT workload, type, job_id, instance_type, gpu,
       sum(gpu_mean * seconds) / sum(seconds) AS gpu_mean,
       max(100 * vram_max / nullif(vram_gib, 0)) AS vram_percent,
       max(100 * memory_max / nullif(memory_gib, 0)) AS memory_percent,
       sum(dollars) AS dollars
FROM {table}
WHERE day >= date_format(current_date - INTERVAL '30' DAY, '%Y-%m-%d')
  AND gpu_mean IS NOT NULL AND seconds > 0
GROUP BY workload, type, job_id, instance_type, gpu
HAVING sum(gpu_mean * seconds) / sum(seconds) < 30
   AND max(100 * vram_max / nullif(vram_gib, 0)) < 30
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
    """Database, table, workgroup and queries; the workgroup writes its answers below ``athena/``.

    The table has no crawler: it projects workloads and days from the layout of the keys. Types of
    jobs, which no deploy knows, are folders of a day and a column; Athena reads folders within a
    partition too.
    """

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
        # In SQL a name with hyphens would need quotes.
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
        for title, (description, sql) in _USAGE_QUERIES.items():
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
        key_arn = DeploymentStack.holding(self).key_arn
        configuration = athena.CfnWorkGroup.WorkGroupConfigurationProperty(
            enforce_work_group_configuration=True,
            # What AWS's services publish of themselves costs nothing (Amazon CloudWatch pricing).
            publish_cloud_watch_metrics_enabled=True,
            bytes_scanned_cutoff_per_query=_BYTES_A_QUERY,
            result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                output_location=f"s3://{bucket_name}/{ANSWERS}",
                encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                    encryption_option="SSE_KMS" if key_arn else "SSE_S3", kms_key=key_arn
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
            "classification": "parquet",
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
            input_format=f"{_PARQUET}.MapredParquetInputFormat",
            output_format=f"{_PARQUET}.MapredParquetOutputFormat",
            serde_info=glue.CfnTable.SerdeInfoProperty(
                serialization_library=f"{_PARQUET}.serde.ParquetHiveSerDe"
            ),
        ),
    )


def columns() -> Mapping[str, str]:
    """Return the table's columns and their types."""
    return {name: column.name.lower() for name, column in COLUMNS.items()}
