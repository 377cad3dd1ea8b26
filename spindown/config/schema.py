"""The tables and keys of spindown.toml, and what they become in the domain."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from spindown.config.check import check_policy
from spindown.config.deployment import DeploymentConfig, DraftDeploymentConfig
from spindown.config.form import (
    Architecture,
    AtLeastOne,
    Clock,
    Count,
    DeviceName,
    Duration,
    DurationOrAuto,
    KeyArn,
    Name,
    NotNegative,
    ParameterName,
    Positive,
    Region,
    S3Uri,
    Share,
    Table,
    TimeZone,
    mend,
)
from spindown.config.run import RunConfig
from spindown.domain.offer import CapacityType, Requirements
from spindown.domain.policy import Policy, RankBy, Rung, WarmSpan, Weekday
from spindown.error import ConfigError

_MIB_PER_GIB = 1024
#: Of deployment and workload: a schedule's name has 64 characters (Amazon EventBridge Scheduler
#: API, "CreateSchedule"), and a tick is called ``{deployment}-{workload}-tick``.
_NAMES_AT_MOST = 58


class RungConfig(Table):
    """A ``[[workload.NAME.policy.ladder]]`` entry."""

    after: Duration
    capacity_types: frozenset[CapacityType] = Field(min_length=1)
    max_price_per_hour: Positive | None = None


class WarmSpanConfig(Table):
    """A ``[[workload.NAME.policy.warm_schedule]]`` entry."""

    days: frozenset[Weekday] = Field(default=frozenset(Weekday), min_length=1)
    start: Clock
    end: Clock
    workers: AtLeastOne
    time_zone: TimeZone = "UTC"


class PolicyConfig(Table):
    """The keys of ``[workload.NAME.policy]``, all optional; see ``domain.policy.Policy``."""

    scale_up_threshold: AtLeastOne | None = None
    start_within: Duration | None = None
    drain_within: Duration | None = None
    finish_within: Duration | None = None
    max_workers: Count | None = None
    warm_workers: Count | None = None
    warm_schedule: tuple[WarmSpanConfig, ...] | None = None
    max_attempts_per_tick: AtLeastOne | None = None
    rank_by: RankBy | None = None
    band: Share | None = None
    max_price_per_hour: Positive | None = None
    max_price_per_gpu_hour: Positive | None = None
    min_reliability: Share | None = None
    ladder: tuple[RungConfig, ...] | None = Field(default=None, min_length=1)
    spot_price_ratio_estimate: Annotated[float, Field(gt=0, le=1)] | None = None
    max_dollars_per_hour: Positive | None = None
    regions: frozenset[Region] | None = Field(default=None, min_length=1)
    unavailable_for: Duration | None = None
    unavailable_at_most: Duration | None = None
    quota_blocked_for: Duration | None = None
    scale_up_timeout: Duration | None = None
    idle_timeout: DurationOrAuto = None
    scale_down_delay: Duration | None = None
    max_lifetime: Duration | None = None
    lifetime_grace: Duration | None = None
    heartbeat_stale_after: Duration | None = None
    heartbeat_interval: Duration | None = None
    lease_duration: Duration | None = None
    commit_margin: Duration | None = None
    checkpoint_items: AtLeastOne | None = None
    checkpoint_interval: DurationOrAuto = None
    max_losses: AtLeastOne | None = None
    max_failures: AtLeastOne | None = None
    max_failures_on_two: AtLeastOne | None = None
    failures_to_quarantine: AtLeastOne | None = None
    boot_estimate: Duration | None = None
    items_per_job_estimate: Positive | None = None
    throughput_estimate: Positive | None = None
    mib_per_item_estimate: NotNegative | None = None
    max_items_per_job: Annotated[int, Field(ge=1, le=100_000)] | None = None
    tick: Duration | None = None

    def apply_to(self, base: Policy) -> Policy:
        """Return ``base`` with the keys that were written here."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        if self.ladder is not None:
            changes["ladder"] = tuple(Rung(**dict(rung)) for rung in self.ladder)
        if self.warm_schedule is not None:
            changes["warm_schedule"] = tuple(WarmSpan(**dict(span)) for span in self.warm_schedule)
        _refuse_cleared(changes)
        return replace(base, **changes)


_CLEARABLE = {
    "idle_timeout",
    "checkpoint_interval",
    "checkpoint_items",
    "max_price_per_gpu_hour",
    "max_dollars_per_hour",
    "regions",
    "finish_within",
}


def _refuse_cleared(changes: Mapping[str, object]) -> None:
    for name, value in changes.items():
        if value is None and name not in _CLEARABLE:
            raise ConfigError(name, None, "write a value, or leave the key out")


class RequirementsConfig(Table):
    """``[workload.NAME.requirements]``; memory in GiB."""

    gpu_names: frozenset[str] | None = Field(default=None, min_length=1)
    gpu_names_denied: frozenset[str] = frozenset()
    gpu_manufacturer: str | None = "NVIDIA"
    gpu_count_min: NotNegative = 1.0
    gpu_count_max: NotNegative | None = None
    gpu_memory_gib_min: NotNegative = 0.0
    gpu_memory_total_gib_min: NotNegative = 0.0
    vcpus_min: Count = 0
    memory_gib_min: NotNegative = 0.0
    architectures: frozenset[Architecture] = Field(default=frozenset({"x86_64"}), min_length=1)
    families_denied: frozenset[str] = frozenset()
    instance_types: frozenset[str] | None = Field(default=None, min_length=1)
    allow_fractional_gpu: bool = False
    allow_bare_metal: bool = False

    @model_validator(mode="after")
    def _be_possible(self) -> "RequirementsConfig":
        if self.gpu_count_max is not None and self.gpu_count_max < self.gpu_count_min:
            raise mend("gpu_count_max", "make it at least gpu_count_min")
        both = (self.gpu_names or frozenset()) & self.gpu_names_denied
        if both:
            raise mend("gpu_names_denied", f"take {min(both)} out of one of the two lists")
        return self

    def to_domain(self) -> Requirements:
        """Return the domain value, in MiB."""
        values = {
            f.name: getattr(self, f.name) for f in fields(Requirements) if hasattr(self, f.name)
        }
        return Requirements(
            **values,
            gpu_memory_mib_min=_to_mib(self.gpu_memory_gib_min),
            gpu_memory_total_mib_min=_to_mib(self.gpu_memory_total_gib_min),
            memory_mib_min=_to_mib(self.memory_gib_min),
        )


def _to_mib(gib: float) -> int:
    return round(gib * _MIB_PER_GIB)


#: Parameters that the service-linked role of Image Builder may read (AWS Managed Policy Reference,
#: "AWSServiceRoleForImageBuilder").
_READ_BY_IMAGE_BUILDER = ("/aws/service/", "/imagebuilder/")


#: GPUs older than Turing: NVIDIA's open kernel modules drive none of them (NVIDIA Driver
#: Installation Guide, "Kernel Modules"), nor does AWS's image with those list their families (AWS
#: Deep Learning AMIs, release notes of "Base OSS Nvidia Driver GPU AMI").
_NEED_CLOSED_DRIVER = frozenset({"K80", "M60", "V100"})


class ImageConfig(Table):
    """``[workload.NAME.image]``: what the instance boots from."""

    #: ``bootstrap``: each instance installs the worker on the image of ``parameters``. ``bake``:
    #: Image Builder does so, once a week, and instances start what it made. ``ami``: the image of
    #: ``parameters`` has the worker already (``worker/system/install.sh``).
    mode: Literal["bootstrap", "bake", "ami"] = "bootstrap"
    #: architecture -> SSM parameter that holds the AMI id; one of yours needs the data type
    #: ``aws:ec2:image``.
    parameters: dict[Architecture, ParameterName] = Field(
        default_factory=lambda: {
            arch: f"/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04"
            "/latest/ami-id"
            for arch in ("x86_64", "arm64")
        }
    )
    root_volume_gib: Annotated[int, Field(ge=8, le=16_384)] = 100
    #: Name of the image's root device. None: what images of its family have.
    root_device: DeviceName | None = None

    @model_validator(mode="after")
    def _fit_mode(self) -> "ImageConfig":
        if self.mode == "ami" and "parameters" not in self.model_fields_set:
            raise mend("parameters", 'for mode "ami" name the parameter of your own image')
        readable = all(one.startswith(_READ_BY_IMAGE_BUILDER) for one in self.parameters.values())
        if self.mode == "bake" and not readable:
            below = " or ".join(_READ_BY_IMAGE_BUILDER)
            raise mend("parameters", f'for mode "bake" name parameters below {below}')
        return self

    @property
    def gpus_undriven(self) -> frozenset[str]:
        """Return the GPUs that its images have no driver for, as far as their names tell."""
        # All of them are in x86_64 machines.
        is_open = "oss-nvidia-driver" in self.parameters.get("x86_64", "")
        return _NEED_CLOSED_DRIVER if is_open else frozenset()

    def find_root_device(self, architecture: Architecture) -> str:
        """Return the root device of the image of ``architecture``, which its family decides."""
        is_amazon_linux = re.search(r"amazon-linux|al2023|amzn2", self.parameters[architecture])
        return self.root_device or ("/dev/xvda" if is_amazon_linux else "/dev/sda1")


class WorkloadConfig(Table):
    """``[workload.NAME]``."""

    run: RunConfig
    requirements: RequirementsConfig = Field(default_factory=RequirementsConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    image: ImageConfig = Field(default_factory=ImageConfig)
    #: S3 prefixes that its jobs may read.
    inputs: tuple[S3Uri, ...] = ()
    #: S3 prefixes that its code may read by itself, and no message may name.
    models: tuple[S3Uri, ...] = ()
    #: Keys that what it reads is encrypted with.
    kms_keys: tuple[KeyArn, ...] = ()

    @model_validator(mode="after")
    def _have_images(self) -> "WorkloadConfig":
        missing = self.requirements.architectures - set(self.image.parameters)
        if missing:
            raise mend("image.parameters", f"name one for {min(missing)} as well")
        undriven = (self.requirements.gpu_names or frozenset()) & self.image.gpus_undriven
        if undriven:
            advice = (
                f"name an image with NVIDIA's closed driver: the open one has no {min(undriven)}"
            )
            raise mend("image.parameters", advice)
        if self.models and not self.run.metadata_access:
            raise mend("models", "set run.metadata_access = true as well: the code reads them")
        return self

    def to_requirements(self) -> Requirements:
        """Return what its instances must have, without GPUs that its image cannot drive."""
        wanted = self.requirements.to_domain()
        return replace(wanted, gpu_names_denied=wanted.gpu_names_denied | self.image.gpus_undriven)

    def to_policy(self) -> Policy:
        """Return the policy with the defaults filled in, checked as a whole."""
        return check_policy(self.policy.apply_to(Policy()))


class Config(Table):
    """The whole of spindown.toml."""

    deployment: DeploymentConfig
    workload: dict[Name, WorkloadConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _leave_room_for_names(self) -> "Config":
        for name in self.workload:
            if name.endswith("-dlq"):
                advice = "choose another name: those of dead-letter queues end in -dlq"
                raise mend(f"workload.{name}", advice)
            if len(self.deployment.name) + len(name) > _NAMES_AT_MOST:
                advice = f"{_NAMES_AT_MOST} characters are the most for both"
                raise mend(f"workload.{name}", f"shorten it or deployment.name: {advice}")
        return self

    @model_validator(mode="after")
    def _stay_in_regions(self) -> "Config":
        known = set(self.deployment.outposts)
        for name, workload in self.workload.items():
            unknown = (workload.policy.regions or frozenset()) - known
            if unknown:
                advice = f"take {min(unknown)} out, or add [deployment.outpost.{min(unknown)}]"
                raise mend(f"workload.{name}.policy.regions", advice)
        return self

    @property
    def workloads(self) -> Mapping[str, WorkloadConfig]:
        """Return the workloads by name."""
        return self.workload


class DraftConfig(Config):
    """A spindown.toml whose zones may be missing, as ``spindown init`` writes it unasked."""

    deployment: DraftDeploymentConfig
