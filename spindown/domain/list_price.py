"""AWS list prices of what is used beside machines: USD, us-east-1, with source and date."""

from dataclasses import dataclass
from enum import StrEnum

from spindown.domain.offer import REGION_TRANSFER_PRICE_PER_GIB


class Usage(StrEnum):
    """What AWS bills; the value is its name on the page."""

    ALARM_METRIC = "alarm metrics"
    CUSTOM_METRIC = "custom metrics"
    DASHBOARD = "dashboards"
    LOG_GIB = "GB of logs taken in"
    LAMBDA_REQUEST = "function invocations"
    LAMBDA_GIB_SECOND = "GB-seconds of functions"
    SCHEDULE = "scheduled invocations"
    QUEUE_REQUEST = "queue requests"
    TABLE_READ = "table read units"
    TABLE_WRITE = "table write units"
    TABLE_GIB = "GB in the table"
    TABLE_BACKUP_GIB = "GB of the table's backups"
    OBJECT_READ = "object reads"
    OBJECT_WRITE = "object writes"
    OBJECT_GIB = "GB of objects"
    PARAMETER = "advanced parameters"
    EVENT = "events of jobs"
    REGION_GIB = "GB from one region to another"
    INTERNET_GIB = "GB to the internet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The list price of one unit."""

    #: USD.
    each: float
    #: Free units a month that every account has without end.
    free: float
    source: str


#: Date of the public copies of the price pages with which the figures were compared.
AS_OF = "May 2026"

_CLOUDWATCH = "https://aws.amazon.com/cloudwatch/pricing/"
_LAMBDA = "https://aws.amazon.com/lambda/pricing/"
_SCHEDULER = "https://aws.amazon.com/eventbridge/pricing/"
_SQS = "https://aws.amazon.com/sqs/pricing/"
_DYNAMODB = "https://aws.amazon.com/dynamodb/pricing/on-demand/"
_SYSTEMS_MANAGER = "https://aws.amazon.com/systems-manager/pricing/"
_EC2 = "https://aws.amazon.com/ec2/pricing/on-demand/"
_S3 = "https://aws.amazon.com/s3/pricing/"

PRICES: dict[Usage, Price] = {
    # Each metric that an alarm reads counts; an anomaly detection band counts as two more.
    Usage.ALARM_METRIC: Price(each=0.10, free=10, source=_CLOUDWATCH),
    # Billed for each hour in which a value is sent.
    Usage.CUSTOM_METRIC: Price(each=0.30, free=10, source=_CLOUDWATCH),
    # A free dashboard shows at most 50 metrics.
    Usage.DASHBOARD: Price(each=3.00, free=3, source=_CLOUDWATCH),
    Usage.LOG_GIB: Price(each=0.50, free=5, source=_CLOUDWATCH),
    Usage.LAMBDA_REQUEST: Price(each=0.20e-6, free=1e6, source=_LAMBDA),
    # Arm.
    Usage.LAMBDA_GIB_SECOND: Price(each=0.0000133334, free=400_000, source=_LAMBDA),
    Usage.SCHEDULE: Price(each=1.00e-6, free=14e6, source=_SCHEDULER),
    Usage.QUEUE_REQUEST: Price(each=0.40e-6, free=1e6, source=_SQS),
    # Since 2024-11-01.
    Usage.TABLE_READ: Price(each=0.125e-6, free=0, source=_DYNAMODB),
    Usage.TABLE_WRITE: Price(each=0.625e-6, free=0, source=_DYNAMODB),
    Usage.TABLE_GIB: Price(each=0.25, free=25, source=_DYNAMODB),
    Usage.TABLE_BACKUP_GIB: Price(each=0.20, free=0, source=_DYNAMODB),
    Usage.OBJECT_READ: Price(each=0.0004e-3, free=0, source=_S3),
    Usage.OBJECT_WRITE: Price(each=0.005e-3, free=0, source=_S3),
    Usage.OBJECT_GIB: Price(each=0.023, free=0, source=_S3),
    Usage.PARAMETER: Price(each=0.05, free=0, source=_SYSTEMS_MANAGER),
    # Events of one's own, on the default bus too.
    Usage.EVENT: Price(each=1.00e-6, free=0, source=_SCHEDULER),
    Usage.REGION_GIB: Price(each=REGION_TRANSFER_PRICE_PER_GIB, free=0, source=_EC2),
    # The first 10 TB a month.
    Usage.INTERNET_GIB: Price(each=0.09, free=100, source=_EC2),
}
