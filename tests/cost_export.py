"""Exports of AWS's bill as AWS Data Exports writes them, by its documented columns.

"Cost and Usage Report (CUR) 2.0" and "FOCUS 1.2 with AWS columns" of the AWS Data Exports User
Guide (docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html and
table-dictionary-focus-1-2-aws-columns.html): the columns that are read, and some beside them.
"""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

CUR_COLUMNS = (
    "bill_billing_period_start_date",
    "bill_payer_account_id",
    "identity_line_item_id",
    "line_item_availability_zone",
    "line_item_currency_code",
    "line_item_line_item_type",
    "line_item_operation",
    "line_item_product_code",
    "line_item_resource_id",
    "line_item_unblended_cost",
    "line_item_usage_account_id",
    "line_item_usage_amount",
    "line_item_usage_end_date",
    "line_item_usage_start_date",
    "line_item_usage_type",
    "product",
    "resource_tags",
)
FOCUS_COLUMNS = (
    "BilledCost",
    "BillingCurrency",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "EffectiveCost",
    "ResourceId",
    "ServiceName",
    "Tags",
    "x_Operation",
    "x_ServiceCode",
    "x_UsageType",
)


@dataclass(frozen=True, kw_only=True)
class Used:
    """One line of an export."""

    at: datetime
    dollars: float
    amount: float
    resource: str = ""
    usage_type: str = "USW2-SpotUsage:g4dn.xlarge"
    service: str = "AmazonEC2"
    line_type: str = "Usage"
    tags: Mapping[str, str] | None = None
    length: timedelta = timedelta(hours=1)


def cur_row(line: Used) -> dict[str, str]:
    return {
        "bill_billing_period_start_date": f"{line.at:%Y-%m-01T00:00:00.000Z}",
        "bill_payer_account_id": "123456789012",
        "identity_line_item_id": "ab",
        "line_item_availability_zone": "us-west-2a",
        "line_item_currency_code": "USD",
        "line_item_line_item_type": line.line_type,
        "line_item_operation": "RunInstances:SV052",
        "line_item_product_code": line.service,
        "line_item_resource_id": line.resource,
        "line_item_unblended_cost": repr(line.dollars),
        "line_item_usage_account_id": "123456789012",
        "line_item_usage_amount": repr(line.amount),
        "line_item_usage_end_date": f"{line.at + line.length:%Y-%m-%dT%H:%M:%S.000Z}",
        "line_item_usage_start_date": f"{line.at:%Y-%m-%dT%H:%M:%S.000Z}",
        "line_item_usage_type": line.usage_type,
        "product": "{}",
        "resource_tags": json.dumps(
            {f"user_{name.replace(':', '_')}": value for name, value in (line.tags or {}).items()}
        ),
    }


def focus_row(line: Used) -> dict[str, str]:
    return {
        "BilledCost": repr(line.dollars),
        "BillingCurrency": "USD",
        "BillingPeriodStart": f"{line.at:%Y-%m-01T00:00:00Z}",
        "ChargeCategory": line.line_type,
        "ChargePeriodEnd": f"{line.at + line.length:%Y-%m-%dT%H:%M:%SZ}",
        "ChargePeriodStart": f"{line.at:%Y-%m-%dT%H:%M:%SZ}",
        "ConsumedQuantity": repr(line.amount),
        "ConsumedUnit": "Hours",
        "EffectiveCost": repr(line.dollars),
        "ResourceId": f"arn:aws:ec2:us-west-2:123456789012:instance/{line.resource}",
        "ServiceName": "Amazon Elastic Compute Cloud",
        "Tags": json.dumps({f"user:{name}": value for name, value in (line.tags or {}).items()}),
        "x_Operation": "RunInstances:SV052",
        "x_ServiceCode": line.service,
        "x_UsageType": line.usage_type,
    }


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Path:
    """Write rows as CSV, gzipped if the name says so."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


#: Column -> what makes of its text what Parquet has (the "Data type" of the dictionaries).
_TYPED = {
    "line_item_unblended_cost": "CAST({} AS DOUBLE)",
    "line_item_usage_amount": "CAST({} AS DOUBLE)",
    "line_item_usage_end_date": "CAST({} AS TIMESTAMP_MS)",
    "line_item_usage_start_date": "CAST({} AS TIMESTAMP_MS)",
    "resource_tags": "CAST(CAST({} AS JSON) AS MAP(VARCHAR, VARCHAR))",
    "BilledCost": "CAST({} AS DOUBLE)",
    "ConsumedQuantity": "CAST({} AS DOUBLE)",
    "ChargePeriodEnd": "CAST({} AS TIMESTAMP_MS)",
    "ChargePeriodStart": "CAST({} AS TIMESTAMP_MS)",
    "Tags": "CAST(CAST({} AS JSON) AS MAP(VARCHAR, VARCHAR))",
}


def write_parquet(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Path:
    """Write rows as Parquet with the types of the dictionaries."""
    source = write_csv(path.with_suffix(".source.csv"), columns, rows)
    selected = ", ".join(
        f"{_TYPED.get(name, '{}').format(f'{chr(34)}{name}{chr(34)}')} AS {chr(34)}{name}{chr(34)}"
        for name in columns
    )
    with duckdb.connect() as database:
        database.execute(
            f"COPY (SELECT {selected} FROM read_csv(?, all_varchar = true)) TO '{path}'",  # noqa: S608 - our own text
            [str(source)],
        )
    source.unlink()
    return path
