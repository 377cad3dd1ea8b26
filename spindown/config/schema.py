"""The tables and keys of spindown.toml, and what they become in the domain."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Self, get_args, get_type_hints

from pydantic import Field, create_model, model_validator

from spindown.config.check import check_policy, odd_types
from spindown.config.deployment import DeploymentConfig, DraftDeploymentConfig
from spindown.config.form import (
    Architecture,
    AtLeastOne,
    AtLeastOneOrNone,
    BucketName,
    Clock,
    Count,
    Duration,
    DurationOrAuto,
    FamilyName,
    Flag,
    InstanceTypeName,
    KeyArn,
    MoreThanOnce,
    Name,
    NotNegative,
    Positive,
    Rate,
    Region,
    S3Uri,
    Share,
    TimeZone,
    TomlTable,
    remedy,
)
from spindown.config.image import ImageConfig
from spindown.config.need import why_internet
from spindown.config.pricing import PricingConfig
from spindown.config.run import RunConfig
from spindown.contract.location import check_listed
from spindown.domain.offer import NEURON_MAKER, CapacityType, InstanceRequirements
from spindown.domain.policy import (
    Dispatch,
    JobNeeds,
    JobType,
    Policy,
    RankBy,
    Rightsize,
    Rung,
    WarmSpan,
    Weekday,
    WhenSpent,
)
from spindown.domain.relative_throughput import GPU_NAMES
from spindown.error import AccessDenied, ConfigError, ContractError

_MIB_PER_GIB = 1024
#: Of deployment and workload: a schedule's name has 64 characters (Amazon EventBridge Scheduler
#: API, "CreateSchedule"), and a tick is called ``{deployment}--{workload}--tick``.
_NAMES_AT_MOST = 56
#: In lower case (EC2 Image Builder API Reference, "CreateInfrastructureConfiguration").
_TAGS_OF_IMAGE_BUILDER = frozenset({"createdby", "ec2imagebuilderarn", "tags"})


class RungConfig(TomlTable):
    """A ``[[workload.NAME.policy.ladder]]`` entry."""

    after: Duration
    capacity_types: frozenset[CapacityType] = Field(min_length=1)
    max_price_per_hour: Positive | None = None


class WarmSpanConfig(TomlTable):
    """A ``[[workload.NAME.policy.warm_schedule]]`` entry."""

    days: frozenset[Weekday] = Field(default=frozenset(Weekday), min_length=1)
    start: Clock
    end: Clock
    workers: AtLeastOne
    time_zone: TimeZone = "UTC"


class CeilingsConfig(TomlTable):
    """``[workload.NAME.policy.requirements_at_most]``."""

    vcpus: AtLeastOne | None = None
    memory_gib: Positive | None = None
    gpus: Count | None = None
    gpu_memory_gib: NotNegative | None = None
    disk_gib: Positive | None = None


class JobTypeConfig(CeilingsConfig):
    """A ``[[workload.NAME.policy.types]]`` entry."""

    name: Name
    dispatch: Dispatch | None = None
    architectures: frozenset[Architecture] | None = Field(default=None, min_length=1)

    def to_domain(self) -> JobType:
        """Return the domain value."""
        needs = {key: getattr(self, key) for key in JobNeeds.__dataclass_fields__}
        return JobType(name=self.name, needs=JobNeeds(**needs), dispatch=self.dispatch)


#: What the keys of the policy may be, where the type in ``domain.policy.Policy`` does not say it:
#: bounds, and tables of their own.
_FORMS: Mapping[str, Any] = {
    "scale_up_threshold": AtLeastOneOrNone,
    "max_workers": Count,
    "warm_workers": Count,
    "shared_slots": Annotated[int, Field(strict=True, ge=2, le=64)],
    "warm_schedule": tuple[WarmSpanConfig, ...],
    "band": Share,
    "min_reliability": Share,
    "ladder": Annotated[tuple[RungConfig, ...], Field(min_length=1)],
    "spot_price_ratio_estimate": Annotated[float, Field(strict=True, gt=0, le=1)],
    "types": tuple[JobTypeConfig, ...],
    "requirements_at_most": CeilingsConfig,
    "regions": Annotated[frozenset[Region], Field(min_length=1)],
    "idle_timeout": DurationOrAuto,
    "checkpoint_interval": DurationOrAuto,
    "items_per_job_estimate": Annotated[float, Field(strict=True, gt=0, le=100_000)],
    "throughput_estimate": Rate,
    "mib_per_item_estimate": NotNegative,
    "alarm_cost_rise": MoreThanOnce,
    "alarm_max_idle_share": Share,
    "max_items_per_job": Annotated[int, Field(strict=True, ge=1, le=100_000)],
}
#: What all others are, by their type in ``domain.policy.Policy``.
_FORM_OF_TYPE: Mapping[object, Any] = {
    timedelta: Duration,
    int: AtLeastOne,
    float: Positive,
    RankBy: RankBy,
    Rightsize: Rightsize,
    Dispatch: Dispatch,
    WhenSpent: WhenSpent,
}


class PolicyTable(TomlTable):
    """The keys of ``[workload.NAME.policy]``, all optional: those of ``domain.policy.Policy``."""

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the table that writes what differs from the defaults (raises ValidationError)."""
        usual, asked = Policy(), asdict(policy)
        return cls.model_validate(
            {
                name: value
                for name, value in asked.items()
                if getattr(policy, name) != getattr(usual, name)
            }
        )

    @property
    def changes(self) -> Mapping[str, Any]:
        """Return the keys that were written, as values of the domain."""
        written = {name: getattr(self, name) for name in self.model_fields_set}
        for name, kind in (("ladder", Rung), ("warm_schedule", WarmSpan)):
            if written.get(name) is not None:
                written[name] = tuple(kind(**dict(each)) for each in written[name])
        if written.get("types") is not None:
            written["types"] = tuple(each.to_domain() for each in written["types"])
        if isinstance(most := written.get("requirements_at_most"), CeilingsConfig):
            written["requirements_at_most"] = JobNeeds(**dict(most))
        return written

    def apply_to(self, base: Policy) -> Policy:
        """Return ``base`` with the keys that were written here."""
        changes = self.changes
        for name, value in changes.items():
            if value is None and name not in _CLEARABLE:
                raise ConfigError(name, None, "write a value, or leave the key out")
        return replace(base, **changes)


#: How the file spells a key of the policy that is None and can be written so.
NONE_IS: Mapping[str, str] = {
    "scale_up_threshold": "none",
    "idle_timeout": "auto",
    "checkpoint_interval": "auto",
}
_TYPES = get_type_hints(Policy)
#: Keys that may be cleared: those that may be None in the domain.
_CLEARABLE = frozenset(name for name, kind in _TYPES.items() if NoneType in get_args(kind))


def _form_of(name: str) -> Any:
    """Return the form of a key of the policy; None: the key is not written."""
    kind = next((each for each in get_args(_TYPES[name]) if each is not NoneType), _TYPES[name])
    return (_FORMS[name] if name in _FORMS else _FORM_OF_TYPE[kind]) | None


_DEFINITIONS: dict[str, Any] = {name: (_form_of(name), None) for name in _TYPES}
#: The same keys as ``domain.policy.Policy``, made from its fields so that they stand once.
PolicyConfig = create_model(
    "PolicyConfig",
    __base__=PolicyTable,
    __module__=__name__,
    **_DEFINITIONS,
)


#: How the names of Inferentia and Trainium begin, of devices as of types.
_NEURON = ("Inferentia", "Trainium", "inf", "trn")


def _near_gpu(name: str) -> str:
    """Return what to write in place of a GPU that EC2 does not have."""
    alike = {known.casefold(): known for known in sorted(GPU_NAMES)}
    near = [alike[each] for each in get_close_matches(name.casefold(), alike, n=3, cutoff=0.4)]
    what = " or ".join(near) if near else f"one of {', '.join(sorted(GPU_NAMES))}"
    return f"write {what} for {name}; of a newer GPU name its types in instance_types"


class RequirementsConfig(TomlTable):
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
    families_denied: frozenset[FamilyName] = frozenset()
    instance_types: frozenset[InstanceTypeName] | None = Field(default=None, min_length=1)
    allow_fractional_gpu: Flag = False
    allow_bare_metal: Flag = False

    @model_validator(mode="after")
    def _be_possible(self) -> "RequirementsConfig":
        if self.gpu_manufacturer == "":
            raise remedy("gpu_manufacturer", "write a maker, such as NVIDIA")
        if self.gpu_count_max is not None and self.gpu_count_max < self.gpu_count_min:
            raise remedy(
                "gpu_count_max", f"make it at least gpu_count_min ({self.gpu_count_min:g})"
            )
        for name in sorted(self.gpu_names or ()):
            if name not in GPU_NAMES:
                raise remedy("gpu_names", _near_gpu(name))
        if self.gpu_count_min == 0 and not self.allow_fractional_gpu:
            for key in ("gpu_memory_gib_min", "gpu_memory_total_gib_min"):
                if getattr(self, key) > 0:
                    advice = "leave it out: gpu_count_min = 0 asks for no GPU, so none can have it"
                    raise remedy(key, advice)
        both = (self.gpu_names or frozenset()) & self.gpu_names_denied
        if both:
            raise remedy("gpu_names_denied", f"take {min(both)} out of one of the two lists")
        return self

    @property
    def is_without_gpu(self) -> bool:
        """Tell whether the work needs no GPU and asks for nothing of one: it gets none."""
        if self.gpu_count_min > 0:
            return False
        asked = self.model_fields_set - {"gpu_count_min"}
        is_asked = any(name.startswith("gpu_") for name in asked) or self.allow_fractional_gpu
        return self.gpu_count_max == 0 or not (is_asked or self.names_neuron)

    @property
    def asks_for_neuron(self) -> bool:
        """Tell whether it asks for Inferentia or Trainium in any way."""
        return self.names_neuron or self.gpu_manufacturer == NEURON_MAKER

    @property
    def names_neuron(self) -> bool:
        """Tell whether it names Inferentia or Trainium, or a type that has them."""
        names = (*(self.gpu_names or ()), *(self.instance_types or ()))
        return any(name.startswith(_NEURON) for name in names)

    def to_domain(self) -> InstanceRequirements:
        """Return the domain value, in MiB."""
        values = {
            f.name: getattr(self, f.name)
            for f in fields(InstanceRequirements)
            if hasattr(self, f.name)
        }
        if self.is_without_gpu:
            values["gpu_count_max"] = 0.0
        if self.names_neuron and "gpu_manufacturer" not in self.model_fields_set:
            # Who names them means them, whatever the default maker is.
            values["gpu_manufacturer"] = None
        return InstanceRequirements(
            **values,
            gpu_memory_mib_min=_to_mib(self.gpu_memory_gib_min),
            gpu_memory_total_mib_min=_to_mib(self.gpu_memory_total_gib_min),
            memory_mib_min=_to_mib(self.memory_gib_min),
        )


def _to_mib(gib: float) -> int:
    return round(gib * _MIB_PER_GIB)


class SourceConfig(TomlTable):
    """``[[workload.NAME.sources]]``: objects of which each is a job as soon as it is there."""

    bucket: BucketName
    #: What their keys begin and end with; "": anything.
    prefix: Annotated[str, Field(strict=True, max_length=512)] = ""
    suffix: Annotated[str, Field(strict=True, max_length=128)] = ""


class WorkloadConfig(TomlTable):
    """``[workload.NAME]``."""

    run: RunConfig
    requirements: RequirementsConfig = Field(default_factory=RequirementsConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    image: ImageConfig = Field(default_factory=ImageConfig)
    #: S3 prefixes that its jobs may read.
    inputs: tuple[S3Uri, ...] = ()
    sources: tuple[SourceConfig, ...] = ()
    #: S3 prefixes that its code may read by itself, and no message may name.
    models: tuple[S3Uri, ...] = ()
    #: Keys that what it reads is encrypted with.
    kms_keys: tuple[KeyArn, ...] = ()

    @model_validator(mode="after")
    def _have_images(self) -> "WorkloadConfig":
        # A container needs an engine, which of these images only those for GPUs have.
        if self.requirements.is_without_gpu and self.run.image is None:
            self.__dict__["image"] = self.image.without_gpu()
        missing = self.requirements.architectures - set(self.image.parameters)
        if missing:
            raise remedy("image.parameters", f"name one for {min(missing)} as well")
        for advice in self._lacking_drivers():
            raise remedy("image.parameters", advice)
        if self.requirements.asks_for_neuron and self.run.image is not None:
            raise remedy("run.image", "leave it out: a container is given NVIDIA's devices alone")
        policy = self.policy.apply_to(Policy())
        for advice in odd_types(policy, self.to_requirements(), self.image.root_volume_gib):
            raise remedy("policy.types", advice)
        if self.models and not self.run.metadata_access:
            raise remedy("models", "set run.metadata_access = true as well: the code reads them")
        return self

    @model_validator(mode="after")
    def _read_what_comes(self) -> "WorkloadConfig":
        """Refuse a source whose objects no worker could read."""
        if self.sources and self.run.folders:
            raise remedy("sources", "leave them out: this workload runs folders that are sent")
        for source in self.sources:
            uri = f"s3://{source.bucket}/{source.prefix}"
            try:
                covered = check_listed(uri, self.inputs).key
            except (AccessDenied, ContractError):
                folder = source.prefix.rstrip("/") + "/" if source.prefix else ""
                whole = f"s3://{source.bucket}/{folder}"
                first = f"write the prefix {folder}, and " if folder != source.prefix else ""
                advice = f"{first}add {whole} to inputs: workers read it"
                raise remedy("sources", advice) from None
            # As a pattern of keys, in is the beginning of in-private too.
            if covered != source.prefix:
                raise remedy("sources", f"write the prefix {covered}: inputs cover no more")
        return self

    def _lacking_drivers(self) -> Iterator[str]:
        """Yield what fixes an image that cannot drive what is asked for."""
        wanted, image = self.requirements, self.image
        for gpu in sorted((wanted.gpu_names or frozenset()) & image.gpus_undriven):
            yield f"name an image with NVIDIA's closed driver: the open one has no {gpu}"
        maker = NEURON_MAKER if wanted.asks_for_neuron else wanted.gpu_manufacturer
        if image.is_of_aws and maker not in {None, "NVIDIA"}:
            yield f"name an image with a driver of {maker}: AWS's own has NVIDIA's alone"
        if image.is_of_aws and wanted.allow_fractional_gpu:
            yield "name an image with NVIDIA's GRID driver: no other drives a part of a GPU"

    def to_requirements(self) -> InstanceRequirements:
        """Return what its instances must have, without GPUs that its image cannot drive."""
        wanted = self.requirements.to_domain()
        return replace(wanted, gpu_names_denied=wanted.gpu_names_denied | self.image.gpus_undriven)

    @property
    def has_types(self) -> bool:
        """Tell whether it declares types of jobs."""
        return bool(self.policy.changes.get("types"))

    def to_policy(self) -> Policy:
        """Return the policy with the defaults filled in, checked as a whole."""
        return check_policy(self.policy.apply_to(Policy()))


class Config(TomlTable):
    """The whole of spindown.toml."""

    #: Python files whose functions are workloads too; ``config.load`` adds their tables.
    functions: tuple[str, ...] = ()
    deployment: DeploymentConfig
    workload: dict[Name, WorkloadConfig] = Field(min_length=1)
    pricing: PricingConfig = Field(default_factory=PricingConfig)

    def function_file(self, workload: str) -> Path | None:
        """Return the file of the function that a workload is; None: it is none, or not in here."""
        known = self.workload.get(workload)
        code = None if known is None else known.run.code
        return next((one for one in map(Path, self.functions) if one == code), None)

    @model_validator(mode="after")
    def _leave_room_for_names(self) -> "Config":
        for name in self.workload:
            if len(self.deployment.name) + len(name) > _NAMES_AT_MOST:
                advice = f"{_NAMES_AT_MOST} characters are the most for both"
                raise remedy(f"workload.{name}", f"shorten it or deployment.name: {advice}")
        return self

    @model_validator(mode="after")
    def _tell_types_from_workloads(self) -> "Config":
        """Refuse a type with the workload's name, which records of jobs without a type have."""
        for name, workload in self.workload.items():
            if any(each.name == name for each in workload.policy.changes.get("types") or ()):
                advice = f"give type {name} another name than the workload's"
                raise remedy(f"workload.{name}.policy.types", advice)
        return self

    @model_validator(mode="after")
    def _leave_tags_to_image_builder(self) -> "Config":
        """Refuse what Image Builder tags by itself, where it is used at all."""
        if any(workload.image.is_baked for workload in self.workload.values()):
            for key in self.deployment.tags:
                if key.lower() in _TAGS_OF_IMAGE_BUILDER:
                    advice = "take this key out: EC2 Image Builder sets it on what is baked"
                    raise remedy(f"deployment.tags.{key}", advice)
        return self

    @model_validator(mode="after")
    def _say_whose_machines_are_paid(self) -> "Config":
        """Refuse machines that two workloads would count as theirs, or none."""
        for number, one in enumerate(self.pricing.paid):
            key = f"pricing.paid.{number}.workload"
            if one.workload is None and len(self.workload) > 1:
                raise remedy(key, "say whose machines they are")
            if one.workload is not None and one.workload not in self.workload:
                known = ", ".join(sorted(self.workload))
                raise remedy(key, f"name one of {known}")
        return self

    @model_validator(mode="after")
    def _price_what_may_run(self) -> "Config":
        """Refuse prices of regions and zones where no worker may run."""
        deployment = self.deployment
        for number, discount in enumerate(self.pricing.discount):
            if unknown := discount.regions - deployment.regions.keys():
                advice = f"take {min(unknown)} out, or add [deployment.outpost.{min(unknown)}]"
                raise remedy(f"pricing.discount.{number}.regions", advice)
        for number, paid in enumerate(self.pricing.paid):
            region = paid.place(deployment.region)
            place = deployment.regions.get(region)
            if place is None:
                key = "region" if paid.region else "zone"
                advice = f"take it out, or add [deployment.outpost.{region}]"
                raise remedy(f"pricing.paid.{number}.{key}", advice)
            # A file that nothing can be deployed from yet may name no zones.
            if paid.zone and place.zones and paid.zone not in place.zones:
                advice = f"name one of {', '.join(place.zones)}, or add {paid.zone} to zones"
                raise remedy(f"pricing.paid.{number}.zone", advice)
        return self

    @model_validator(mode="after")
    def _reach_all_without_addresses(self) -> "Config":
        """Refuse a network without a way out where something needs the internet."""
        if self.deployment.public_addresses:
            return self
        for region, outpost in self.deployment.outpost.items():
            if outpost.network is None:
                advice = "name a network with NAT: endpoints lead to no other region"
                raise remedy(f"deployment.outpost.{region}.network", advice)
        if self.deployment.network is not None:
            return self
        for name, workload in self.workload.items():
            needs = why_internet(workload.run, workload.image)
            if needs:
                advice = f"name a network with NAT, or give {name} an image with all in it: {needs}"
                raise remedy("deployment.public_addresses", advice)
        return self

    @model_validator(mode="after")
    def _find_secrets_at_home(self) -> "Config":
        """Refuse the ARN of a secret that no function and no worker asks for in its region."""
        named = {"deployment.alarm_webhook": self.deployment.alarm_webhook or ""}
        for name, workload in self.workload.items():
            for variable, secret in workload.run.secrets.items():
                named[f"workload.{name}.run.secrets.{variable}"] = secret
        for field, secret in named.items():
            home = self.deployment.region
            if secret.startswith("arn:") and secret.split(":")[3] != home:
                raise remedy(field, f"name a secret of {home}, or replicate this one to there")
        return self

    @model_validator(mode="after")
    def _stay_in_regions(self) -> "Config":
        known = set(self.deployment.regions)
        for name, workload in self.workload.items():
            unknown = (workload.policy.changes.get("regions") or frozenset()) - known
            if unknown:
                advice = f"take {min(unknown)} out, or add [deployment.outpost.{min(unknown)}]"
                raise remedy(f"workload.{name}.policy.regions", advice)
        return self

    @property
    def workloads(self) -> Mapping[str, WorkloadConfig]:
        """Return the workloads by name."""
        return self.workload


class DraftConfig(Config):
    """A spindown.toml whose zones may be missing, as ``spindown init`` writes it unasked."""

    deployment: DraftDeploymentConfig
