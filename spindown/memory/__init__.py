"""Every port in memory, as strict as the real thing: for tests, rehearsal and simulation.

Nothing waits and nothing is random but through the clock and the random numbers given.
"""

from spindown.memory.account import MemoryAccount
from spindown.memory.clock import MemoryClock
from spindown.memory.compute import MemoryCompute
from spindown.memory.instance import Bill
from spindown.memory.interception import Interceptor, PortCall, intercept
from spindown.memory.market import MemoryAdvisor, MemoryMarket, quota_code
from spindown.memory.metadata import MemoryMetadata
from spindown.memory.queue import MemoryJobQueue
from spindown.memory.settings import MemorySettingsStore
from spindown.memory.sink.metric import MemoryMetricSink, MemoryTrafficHistory
from spindown.memory.sink.topic import MemoryJobEvents, MemoryTopic
from spindown.memory.store import MemoryInputSource, MemoryObjectStore
from spindown.memory.table import MemoryTable

__all__ = [
    "Bill",
    "Interceptor",
    "MemoryAccount",
    "MemoryAdvisor",
    "MemoryClock",
    "MemoryCompute",
    "MemoryInputSource",
    "MemoryJobEvents",
    "MemoryJobQueue",
    "MemoryMarket",
    "MemoryMetadata",
    "MemoryMetricSink",
    "MemoryObjectStore",
    "MemorySettingsStore",
    "MemoryTable",
    "MemoryTopic",
    "MemoryTrafficHistory",
    "PortCall",
    "intercept",
    "quota_code",
]
