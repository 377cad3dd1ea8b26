"""What the use cases need from the world, named for the role it plays.

``spindown.memory`` keeps every one of them in memory, ``spindown.aws`` on AWS; one contract
suite a port (tests/ports) runs over both. Errors are those of ``spindown.error``; every port
may raise Throttled, AccessDenied and Unreachable besides those it names.
"""

from spindown.port.account import (
    Account,
    AccountPlan,
    Caller,
    ImageView,
    SubnetView,
)
from spindown.port.compute import (
    Advisor,
    Compute,
    InstanceView,
    LaunchAnswer,
    LaunchedInstance,
    LaunchOverride,
    LaunchRequest,
    Market,
    Refusal,
    RefusalKind,
)
from spindown.port.history import (
    PriceHistory,
    Sent,
    TrafficHistory,
)
from spindown.port.object import (
    Absent,
    InputSource,
    Matches,
    ObjectStore,
    ObjectSummary,
    StoredObject,
)
from spindown.port.queue import (
    JobQueue,
    Message,
    Outgoing,
)
from spindown.port.surrounding import (
    Clock,
    Datum,
    Identity,
    JobEvents,
    LiveEdit,
    Metadata,
    MetricSink,
    SettingsStore,
)
from spindown.port.table import (
    ALWAYS,
    Key,
    Table,
    When,
    Write,
    merge,
)
from spindown.port.topic import (
    Nobody,
    Topic,
)

__all__ = [
    "ALWAYS",
    "Absent",
    "Account",
    "AccountPlan",
    "Advisor",
    "Caller",
    "Clock",
    "Compute",
    "Datum",
    "Identity",
    "ImageView",
    "InputSource",
    "InstanceView",
    "JobEvents",
    "JobQueue",
    "Key",
    "LaunchAnswer",
    "LaunchOverride",
    "LaunchRequest",
    "LaunchedInstance",
    "LiveEdit",
    "Market",
    "Matches",
    "Message",
    "Metadata",
    "MetricSink",
    "Nobody",
    "ObjectStore",
    "ObjectSummary",
    "Outgoing",
    "PriceHistory",
    "Refusal",
    "RefusalKind",
    "Sent",
    "SettingsStore",
    "StoredObject",
    "SubnetView",
    "Table",
    "Topic",
    "TrafficHistory",
    "When",
    "Write",
    "merge",
]
