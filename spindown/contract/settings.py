"""Where a deployment's things are: written at deploy into SSM, read by Lambda, CLI and doctor.

``/spindown/{deployment}/deployment`` holds a Deployment, ``/spindown/{deployment}/workload/
{name}`` a WorkloadSettings; both are owned by the templates. Where workers may run in another
region, that region's SSM says: ``/spindown/{deployment}/outpost/{name}`` holds a RegionSettings. A
live edit of a policy lies in ``/spindown/{deployment}/live/{name}``, which no template knows, so
no deploy can overwrite it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from spindown.domain.account_pricing import Pricing
from spindown.domain.batch import EndsTold
from spindown.domain.offer import CapacityType, InstanceRequirements
from spindown.domain.policy import Policy

#: Environment variables of every function.
ENV_DEPLOYMENT = "SPINDOWN_DEPLOYMENT"
#: Of those that tick or refresh: where the ledger, the bucket and the topic are, so that a
#: storm of events, each in a container of its own, reads no settings (SSM answers 40 reads a
#: second; AWS general reference, "Systems Manager endpoints and quotas").
ENV_TABLE = "SPINDOWN_TABLE"
ENV_BUCKET = "SPINDOWN_BUCKET"
ENV_TOPIC = "SPINDOWN_TOPIC"
#: The name of the secret that holds the address of a webhook, never the address.
ENV_WEBHOOK = "SPINDOWN_WEBHOOK"
#: Where the spot advisor is, if not where AWS keeps it; empty: it is not read.
ENV_SPOT_ADVISOR = "SPINDOWN_SPOT_ADVISOR"

#: Bytes of a parameter, of the tier that costs $0.05 a month, and of the one that is free (AWS
#: General Reference, "Systems Manager endpoints and quotas").
PARAMETER_BYTES_MAX = 8_192
FREE_PARAMETER_BYTES_MAX = 4_096

#: CloudWatch namespace of every metric of ours.
NAMESPACE = "Spindown"


def deployment_parameter(deployment: str) -> str:
    """Return the SSM name of the deployment's settings."""
    return f"/spindown/{deployment}/deployment"


def workload_parameter(deployment: str, workload: str) -> str:
    """Return the SSM name of a workload's settings as deployed."""
    return f"/spindown/{deployment}/workload/{workload}"


def builder_parameter(deployment: str, what: str) -> str:
    """Return the SSM name of where images are baked: of its ``subnet`` or its security ``group``.

    The stack of images that is deployed after core reads them, so neither exports to the other.
    """
    return f"/spindown/{deployment}/builder/{what}"


def outpost_parameter(deployment: str, workload: str) -> str:
    """Return the SSM name of a workload's outpost, in the region that it is in."""
    return f"/spindown/{deployment}/outpost/{workload}"


def live_parameter(deployment: str, workload: str) -> str:
    """Return the SSM name of a workload's live policy edits."""
    return f"/spindown/{deployment}/live/{workload}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings:
    """What all workloads of a deployment share."""

    name: str
    region: str
    table: str
    bucket: str
    workloads: tuple[str, ...]
    #: Name of the scaler function, for the nudge after a submit.
    scaler: str
    #: ARN of the topic that carries alarms to people; "": there is none.
    topic: str = ""
    #: Which ends of batches it carries.
    batches_told: EndsTold = EndsTold.ALL
    #: USD; no launch whose reservation would bring the month above it. None: no budget.
    budget_per_month: float | None = None
    #: The account's tags on all that is made, beside our own.
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRef:
    """A launch template at one version; never ``$Latest``."""

    id: str
    version: str


def on_spot(architecture: str) -> str:
    """Return by what name a region has the template of launches on spot."""
    return f"{architecture}/spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """Where workers may run in one region."""

    #: zone name -> subnet id; one subnet a zone.
    subnets: Mapping[str, str]
    #: architecture -> launch template. Where spot requests bear tags, launches on spot have one of
    #: their own (``on_spot``).
    templates: Mapping[str, TemplateRef]

    def template(self, architecture: str, capacity_type: CapacityType) -> TemplateRef:
        """Return what a launch is made from."""
        usual = self.templates[architecture]
        if capacity_type is CapacityType.ON_DEMAND:
            return usual
        return self.templates.get(on_spot(architecture), usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What the scaler must know of how the workload runs."""

    #: "per-gpu", "per-instance" or a number.
    slots: str = "per-gpu"
    #: ``s3://bucket/key`` of the code archive.
    code: str = ""
    code_digest: str = ""
    #: ``RunSpec.version`` of what is in it.
    code_version: str = ""
    root_volume_gib: int = 100
    #: Whether its jobs are folders with a command (``contract.folder``).
    folders: bool = False
    #: Whether its jobs are those of ``spindown verify``.
    verify: bool = False
    #: What a program has between SIGTERM and SIGKILL; none for a function.
    stop_grace: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BakeSettings:
    """How images are baked once they are earned: of ``image.mode = "auto"``."""

    #: Architecture -> ARN of the pipeline of Image Builder.
    pipelines: Mapping[str, str]
    #: What tells apart images that were baked with other things (``contract.image.make_stamp``).
    stamp: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """One workload as deployed."""

    name: str
    queue_url: str
    dlq_url: str
    log_group: str
    #: region -> where workers may run there. Written down: home; read: all that could be read.
    regions: Mapping[str, RegionSettings]
    #: Further regions, each of which describes itself.
    outposts: tuple[str, ...] = ()
    #: Those of them that could not be read, and why; never written down.
    unread: Mapping[str, str] = field(default_factory=dict)
    run: RunSettings = field(default_factory=RunSettings)
    requirements: InstanceRequirements = field(default_factory=InstanceRequirements)
    policy: Policy = field(default_factory=Policy)
    #: None: no image is baked by the functions.
    bake: BakeSettings | None = None
    #: What is paid other than EC2's prices; None: nothing.
    pricing: Pricing | None = None

    @property
    def deployed_regions(self) -> frozenset[str]:
        """Return where workers may run, those that could not be read included."""
        return frozenset({*self.regions, *self.outposts})
