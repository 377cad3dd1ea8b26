"""Where a worker belongs, from the tags of its instance, and how it behaves, from its entry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from spindown.contract import tag
from spindown.contract.folder import folder_prefix
from spindown.contract.job.batch import UPLOADS
from spindown.contract.location import work_root
from spindown.error import ContractError
from spindown.port import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The things of the workload that an instance was launched for."""

    deployment: str
    workload: str
    #: Where all of them are, which need not be where the instance runs.
    region: str
    queue_url: str
    dead_letter_url: str
    table: str
    bucket: str
    #: ``s3://bucket/key`` of the code archive.
    code: str
    log_group: str
    #: The shape whose queue it serves (``domain.shape``); "": the workload's own queue.
    shape: str = ""

    @property
    def uploads(self) -> str:
        """Return the prefix of what ``submit`` uploads, which every job may read."""
        return f"s3://{self.bucket}/{work_root(self.workload)}{UPLOADS}"

    @property
    def folders(self) -> str:
        """Return the prefix of what ``spindown run`` sends."""
        return f"s3://{self.bucket}/{folder_prefix(self.workload)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMachine:
    """What the workload requires of an instance, beside which its use is told; None: nothing."""

    vcpus: float | None = None
    memory_gib: float | None = None
    #: Of each GPU.
    vram_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How the daemon behaves on this machine: no setting changes what becomes of a job."""

    #: Jobs' inputs and outputs lie here while they are worked on.
    scratch: Path
    #: The interpreter of the user's code.
    python: str
    #: What becomes the user of the user's code and runs its arguments; empty: that is ours.
    launcher: tuple[str, ...] = ()
    #: ``uid:gid`` of the user's code in a container; "": ours.
    code_user: str = ""
    #: The environment of the user's code, before its own settings.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Ends the instance.
    poweroff: tuple[str, ...] = ("systemctl", "poweroff")
    #: Written at every heartbeat; None: nobody watches it.
    alive: Path | None = None
    #: EC2's advice is to look every 5 s.
    metadata_interval: timedelta = timedelta(seconds=5)
    #: The longest poll that SQS allows.
    poll_at_most: timedelta = timedelta(seconds=20)
    #: How long the scaler may take to write our row after the launch.
    check_in_patience: timedelta = timedelta(minutes=10)
    #: How often the use of CPU, memory and GPUs is looked at, once a job is a minute old.
    usage_interval: timedelta = timedelta(seconds=5)
    #: What that is told beside.
    asked: AskedMachine = AskedMachine()
    #: Where the kernel tells of processes and of control groups.
    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")
    #: Whether each slot gets a control group of its own; the worker must have been given one.
    makes_groups: bool = False
    #: Tests the GPUs before the check-in; "": nobody does, and containers are given none.
    gpu_test: str = ""
    #: How long work in hand may go on after SIGTERM; its results are committed all the same.
    stop_grace: timedelta = timedelta(seconds=20)


def find_asked(identity: Identity) -> AskedMachine:
    """Return what the tags of an instance say that its workload requires."""

    def of(name: str, unit: float) -> float | None:
        tagged = identity.tags.get(name, "")
        return int(tagged) / unit if tagged.isascii() and tagged.isdigit() else None

    return AskedMachine(
        vcpus=of(tag.VCPUS, 1.0),
        memory_gib=of(tag.MEMORY, _MIB_PER_GIB),
        vram_gib=of(tag.GPU_MEMORY, _MIB_PER_GIB),
    )


_MIB_PER_GIB = 1024.0


def find_home(identity: Identity) -> Home:
    """Return where an instance belongs (ContractError: a tag is missing)."""
    names = {
        "deployment": tag.DEPLOYMENT,
        "workload": tag.WORKLOAD,
        "queue_url": tag.QUEUE_URL,
        "dead_letter_url": tag.DLQ_URL,
        "table": tag.TABLE,
        "bucket": tag.BUCKET,
        "code": tag.CODE,
        "log_group": tag.LOG_GROUP,
    }
    for name in names.values():
        if not identity.tags.get(name):
            raise ContractError(f"tag {name}", None, "launch workers from Spindown's own template")
    region = identity.tags.get(tag.REGION) or identity.region
    found = {field_name: identity.tags[name] for field_name, name in names.items()}
    return Home(region=region, shape=identity.tags.get(tag.SHAPE, ""), **found)
