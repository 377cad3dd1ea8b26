"""The tables and keys of spindown.toml, and what they become in the domain."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from spindown.config.check import check_policy
from spindown.config.duration import parse_duration
from spindown.domain.offer import CapacityType, Requirements
from spindown.domain.policy import Policy, RankBy, Rung
from spindown.error import ConfigError

_MIB_PER_GIB = 1024


def mend(field: str, advice: str) -> PydanticCustomError:
    """Return a complaint about a field of the table under validation."""
    return PydanticCustomError("mend", "{mend}", {"mend": advice, "field": field})


def _parse_duration_or_auto(value: object) -> timedelta | None:
    return None if value in {"auto", None} else parse_duration(value)


def _name_pattern(what: str, pattern: str, mend: str) -> BeforeValidator:
    def check(value: object) -> object:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"write {what} of {mend}")
        return value

    return BeforeValidator(check)


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
DurationOrAuto = Annotated[timedelta | None, BeforeValidator(_parse_duration_or_auto)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Name = Annotated[
    str,
    _name_pattern("a name", r"[a-z][a-z0-9-]{0,30}", "a-z, 0-9 and -, 31 characters at most"),
]
S3Uri = Annotated[str, _name_pattern("an S3 prefix", r"s3://[a-z0-9.-]{3,63}/.*", "s3://bucket/…/")]
EmailAddress = Annotated[
    str,
    _name_pattern(
        "an email address",
        r"[^@\s<>\"',;]+@[^@\s<>\"',;]+\.[^@\s<>\"',;]+",
        "the form you@example.com",
    ),
]
Architecture = Literal["x86_64", "arm64"]
ParameterName = Annotated[
    str, _name_pattern("an SSM parameter", r"(/[\w.-]+)+", "the form /path/of/parameter")
]
DeviceName = Annotated[
    str, _name_pattern("a device", r"/dev/(sd[a-z]\d?|xvd[a-z]+)", "the form /dev/sda1")
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class RungConfig(_Table):
    """A ``[[workload.NAME.policy.ladder]]`` entry."""

    after: Duration
    capacity_types: frozenset[CapacityType] = Field(min_length=1)
    max_price_per_hour: Positive | None = None


class PolicyConfig(_Table):
    """The keys of ``[workload.NAME.policy]``, all optional; see ``domain.policy.Policy``."""

    scale_up_threshold: AtLeastOne | None = None
    start_within: Duration | None = None
    drain_within: Duration | None = None
    max_workers: Count | None = None
    warm_workers: Count | None = None
    max_attempts_per_tick: AtLeastOne | None = None
    rank_by: RankBy | None = None
    band: Share | None = None
    max_price_per_hour: Positive | None = None
    max_price_per_gpu_hour: Positive | None = None
    min_reliability: Share | None = None
    ladder: tuple[RungConfig, ...] | None = Field(default=None, min_length=1)
    spot_price_ratio_estimate: Annotated[float, Field(gt=0, le=1)] | None = None
    max_dollars_per_hour: Positive | None = None
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
    max_items_per_job: Annotated[int, Field(ge=1, le=100_000)] | None = None
    tick: Duration | None = None

    def apply_to(self, base: Policy) -> Policy:
        """Return ``base`` with the keys that were written here."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        if self.ladder is not None:
            changes["ladder"] = tuple(Rung(**dict(rung)) for rung in self.ladder)
        _refuse_cleared(changes)
        return replace(base, **changes)


_CLEARABLE = {
    "idle_timeout",
    "checkpoint_interval",
    "checkpoint_items",
    "max_price_per_gpu_hour",
    "max_dollars_per_hour",
}


def _refuse_cleared(changes: Mapping[str, object]) -> None:
    for name, value in changes.items():
        if value is None and name not in _CLEARABLE:
            raise ConfigError(name, None, "write a value, or leave the key out")


class RequirementsConfig(_Table):
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


class RunConfig(_Table):
    """``[workload.NAME.run]``: the user's code and how it is called."""

    #: ``module:callable``, found below ``code``.
    entrypoint: Annotated[
        str,
        _name_pattern("an entrypoint", r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "the form module:callable"),
    ]
    #: Directory of the user's code, relative to spindown.toml.
    code: Path
    #: requirements.txt below ``code``, installed on the instance.
    requirements: str | None = None
    batch_size: AtLeastOne = 16
    item_timeout: Duration = timedelta(minutes=10)
    setup_timeout: Duration = timedelta(minutes=15)
    env: dict[str, str] = Field(default_factory=dict)
    slots: Literal["per-gpu", "per-instance"] | Annotated[int, Field(ge=1, le=64)] = "per-gpu"


#: Parameters that the service-linked role of Image Builder may read (AWS Managed Policy Reference,
#: "AWSServiceRoleForImageBuilder").
_READ_BY_IMAGE_BUILDER = ("/aws/service/", "/imagebuilder/")


class ImageConfig(_Table):
    """``[workload.NAME.image]``: what the instance boots from."""

    #: ``bootstrap``: each instance installs the worker on the image of ``parameters``. ``bake``:
    #: Image Builder does so, once a week, and instances start what it made. ``ami``: the image of
    #: ``parameters`` has the worker already (``worker/system/install.sh``).
    mode: Literal["bootstrap", "bake", "ami"] = "bootstrap"
    #: architecture -> SSM parameter that holds the AMI id.
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

    def find_root_device(self, architecture: Architecture) -> str:
        """Return the root device of the image of ``architecture``, which its family decides."""
        is_amazon_linux = re.search(r"amazon-linux|al2023|amzn2", self.parameters[architecture])
        return self.root_device or ("/dev/xvda" if is_amazon_linux else "/dev/sda1")


class WorkloadConfig(_Table):
    """``[workload.NAME]``."""

    run: RunConfig
    requirements: RequirementsConfig = Field(default_factory=RequirementsConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    image: ImageConfig = Field(default_factory=ImageConfig)
    #: S3 prefixes that its jobs may read.
    inputs: tuple[S3Uri, ...] = ()

    @model_validator(mode="after")
    def _have_images(self) -> "WorkloadConfig":
        missing = self.requirements.architectures - set(self.image.parameters)
        if missing:
            raise mend("image.parameters", f"name one for {min(missing)} as well")
        return self

    def to_policy(self) -> Policy:
        """Return the policy with the defaults filled in, checked as a whole."""
        return check_policy(self.policy.apply_to(Policy()))


class NetworkConfig(_Table):
    """``[deployment.network]``: an existing network; without it a small one is made."""

    vpc_id: Annotated[str, _name_pattern("a VPC id", r"vpc-[0-9a-f]+", "the form vpc-0123abcd")]
    #: zone -> subnet id.
    subnets: dict[str, str] = Field(min_length=1)


class DeploymentConfig(_Table):
    """``[deployment]``."""

    name: Name
    region: Annotated[
        str, _name_pattern("a region", r"[a-z]{2}(-[a-z]+)+-\d", "the form us-east-1")
    ]
    zones: tuple[str, ...] = Field(min_length=1)
    budget_per_month: Positive | None = None
    #: Who gets the alarms; AWS asks this address to confirm. None: nobody is told.
    alarm_email: EmailAddress | None = None
    network: NetworkConfig | None = None
    #: Whether people with the right may open a shell on workers by SSM Session Manager.
    session_manager: bool = False

    @model_validator(mode="after")
    def _be_in_region(self) -> "DeploymentConfig":
        for zone in self.zones:
            if not re.fullmatch(re.escape(self.region) + "[a-z]", zone):
                raise mend("zones", f"list zones of {self.region}, such as {self.region}a")
        if len(set(self.zones)) < len(self.zones):
            raise mend("zones", "name each zone once")
        if self.network is not None and set(self.network.subnets) != set(self.zones):
            raise mend("network", "give one subnet for each of the zones")
        return self


class Config(_Table):
    """The whole of spindown.toml."""

    deployment: DeploymentConfig
    workload: dict[Name, WorkloadConfig] = Field(min_length=1)

    @property
    def workloads(self) -> Mapping[str, WorkloadConfig]:
        """Return the workloads by name."""
        return self.workload
