"""Every port in memory, as strict as the real thing: for tests, rehearsal and simulation.

Nothing waits and nothing is random but through the clock and the random numbers given.
"""

from spindown.ec2sim import MemoryClock
from spindown.memory.account import MemoryAccount
from spindown.memory.compute import MemoryCompute
from spindown.memory.image_builder import MemoryImageBuilder
from spindown.memory.interception import Interceptor, PortCall, intercept
from spindown.memory.log import MemoryLog
from spindown.memory.market import MemoryAdvisor, MemoryMarket
from spindown.memory.metadata import MemoryMetadata
from spindown.memory.metric import MemoryMetricSink, MemoryTrafficHistory
from spindown.memory.queue import MemoryJobQueue
from spindown.memory.settings import MemorySettingsStore
from spindown.memory.store import MemoryInputSource, MemoryObjectStore
from spindown.memory.table import MemoryTable
from spindown.memory.topic import MemoryJobEvents, MemoryTopic

__all__ = [
    "Interceptor",
    "MemoryAccount",
    "MemoryAdvisor",
    "MemoryClock",
    "MemoryCompute",
    "MemoryImageBuilder",
    "MemoryInputSource",
    "MemoryJobEvents",
    "MemoryJobQueue",
    "MemoryLog",
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
]
