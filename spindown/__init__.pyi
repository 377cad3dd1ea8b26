from spindown.client.function import Function as Function
from spindown.client.function import function as function
from spindown.client.mapper import AsyncMapper as AsyncMapper
from spindown.client.mapper import AsyncResultStream as AsyncResultStream
from spindown.client.stream import ItemResult as ItemResult
from spindown.client.stream import ResultStream as ResultStream
from spindown.client.workload import BatchCount as BatchCount
from spindown.client.workload import Submission as Submission
from spindown.client.workload import Workload as Workload
from spindown.error import BadInput as BadInput
from spindown.error import ItemFailed as ItemFailed
from spindown.error import JobFailed as JobFailed
from spindown.error import SpindownError as SpindownError
from spindown.error import WorkFailed as WorkFailed

__version__: str
