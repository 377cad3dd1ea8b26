"""What is examined: the workloads of spindown.toml, of the deployment, or of both.

Before a deploy there is only the file. After it, the deployment names places and templates, and
the policy in force applies. The file still names images and inputs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spindown.config import Config, DeploymentConfig, WorkloadConfig
from spindown.config.deployment import USUAL_QUALIFIER, NetworkConfig
from spindown.config.need import needed_endpoints, why_internet
from spindown.contract.image import image_parameter
from spindown.contract.row import PolicyRow
from spindown.contract.settings import DeploymentSettings, RegionSettings, WorkloadSettings
from spindown.control.policy_edit import effective_policy
from spindown.domain.account_pricing import Pricing
from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import Policy
from spindown.error import NotFound, SpindownError
from spindown.operate.doctor.unknown import Unknown
from spindown.port import LiveEdit, SettingsStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredImage:
    """An image that instances start from, or that their image is built from."""

    parameter: str
    architecture: str
    #: Name of its root device, by the template.
    root_device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCase:
    """One workload."""

    name: str
    requirements: InstanceRequirements
    policy: Policy
    #: Region -> where workers may run. Before a deploy there are no templates, and a subnet that
    #: the deploy makes is "".
    places: Mapping[str, RegionSettings]
    root_gib: int
    #: None: EC2's prices are paid.
    pricing: Pricing | None = None
    images: tuple[RequiredImage, ...] = ()
    #: Whether instances start from images that Image Builder builds.
    is_baked: bool = False
    #: Whether an image is baked once that costs less than the installs at boots.
    is_auto: bool = False
    #: What it may read: S3 prefixes of inputs and models; secrets; KMS keys.
    inputs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    #: Buckets whose new objects are its jobs.
    sources: tuple[str, ...] = ()
    #: Further regions that could not be read -> why.
    unread: Mapping[str, str] = field(default_factory=dict)
    is_deployed: bool = False
    #: Services that its workers call, as the names of their endpoints end.
    endpoints: frozenset[str] = frozenset()
    #: Why its instances need more than endpoints; "": they do not.
    needs_internet: str = ""
    #: Whether packages are installed on an instance, at its start or while an image is baked.
    installs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSubject:
    """A deployment, whether deployed yet or not."""

    deployment: str
    region: str
    cases: tuple[DoctorCase, ...]
    is_deployed: bool = False
    #: Name of its ledger's table; "": it has none yet.
    table: str = ""
    #: Its own bucket; "": it is not known before the first deploy.
    bucket: str = ""
    #: The secret that holds the address of a webhook, by the file; "": none is told.
    webhook: str = ""
    #: Whom alarms tell by mail, by the file; "": nobody, or not known.
    email: str = ""
    #: ARN of the topic that carries alarms; "": not deployed.
    topic: str = ""
    #: USD that a month may cost; None: no limit.
    budget_usd: float | None = None
    #: What names the roles and the bucket of ``cdk bootstrap``.
    qualifier: str = USUAL_QUALIFIER
    #: Region -> the account's own key that encrypts disks there; without one EBS's default does.
    disk_keys: Mapping[str, str] = field(default_factory=dict)
    #: Region -> the network that the file names; a deploy makes the others.
    networks: Mapping[str, NetworkConfig] = field(default_factory=dict)
    #: Region -> where its workers may send, as ``RANGE:PORT``; none: anywhere.
    egress: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Whether its workers may have public addresses.
    may_have_addresses: bool = True
    #: The account's tags, which a launch bears.
    tags: Mapping[str, str] = field(default_factory=dict)
    #: Why it is unknown whether it is deployed; None: it is known.
    unread: Unknown | None = None
    #: Whether it is in an account; the local system has no images, plan, roles and keys.
    is_on_aws: bool = True

    def subnets(self, region: str) -> Collection[str]:
        """Return every subnet of a region that is known by its id."""
        places = (case.places[region] for case in self.cases if region in case.places)
        known = {id_ for place in places for id_ in place.subnets.values() if id_}
        return known | named_subnets(self.networks.get(region))

    @property
    def regions(self) -> tuple[str, ...]:
        """Return every region where workers may run."""
        return tuple(sorted({region for case in self.cases for region in case.places}))


def named_subnets(network: NetworkConfig | None) -> frozenset[str]:
    """Return the subnets of a network that the file names, of workers and of functions."""
    if network is None:
        return frozenset()
    return frozenset({*network.subnets.values(), *network.function_subnets})


def from_config(config: Config) -> DoctorSubject:
    """Return the subject that spindown.toml describes."""
    deployment = config.deployment
    places = {
        region: RegionSettings(
            subnets=one.network.subnets if one.network else dict.fromkeys(one.zones, ""),
            templates={},
        )
        for region, one in deployment.regions.items()
    }
    return DoctorSubject(
        deployment=deployment.name,
        region=deployment.region,
        cases=tuple(
            replace(
                _planned(name, workload, places, deployment),
                pricing=config.pricing.of(
                    name, deployment.region, has_addresses=deployment.public_addresses
                ),
            )
            for name, workload in sorted(config.workloads.items())
        ),
        budget_usd=deployment.budget_per_month,
        qualifier=deployment.qualifier,
        disk_keys={
            region: one.kms_key_arn
            for region, one in deployment.regions.items()
            if one.kms_key_arn is not None
        },
        networks={
            region: one.network
            for region, one in deployment.regions.items()
            if one.network is not None
        },
        egress={region: one.egress for region, one in deployment.regions.items() if one.egress},
        may_have_addresses=deployment.public_addresses,
        webhook=deployment.alarm_webhook or "",
        email=deployment.alarm_email or "",
    )


def find_subject(planned: DoctorSubject | None, store: SettingsStore) -> DoctorSubject:
    """Return what is deployed, completed from the file; before a deploy, the file's subject.

    Raises:
        SpindownError: there is no file, and the deployment cannot be read.
    """
    try:
        deployment = store.deployment()
        workloads = [store.workload(name) for name in deployment.workloads]
    except NotFound:
        if planned is None:
            raise
        return planned
    except SpindownError as exc:
        if planned is None:
            raise
        return replace(planned, unread=Unknown.after(exc))
    return as_deployed(deployment, workloads, planned)


def in_local_system(subject: DoctorSubject) -> DoctorSubject:
    """Return the subject without what there is in accounts alone."""
    cases = tuple(replace(case, images=()) for case in subject.cases)
    return replace(subject, cases=cases, is_on_aws=False)


def as_deployed(
    deployment: DeploymentSettings,
    workloads: Iterable[tuple[WorkloadSettings, LiveEdit | None]],
    planned: DoctorSubject | None = None,
) -> DoctorSubject:
    """Return what is deployed, completed from the file if there is one."""
    cases = {case.name: case for case in planned.cases} if planned is not None else {}
    for settings, edit in workloads:
        known = cases.get(settings.name)
        cases[settings.name] = _deployed(deployment.name, settings, edit, known)
    name, region = deployment.name, deployment.region
    return replace(
        planned or DoctorSubject(deployment=name, region=region, cases=()),
        deployment=name,
        region=region,
        cases=tuple(cases[one] for one in sorted(cases)),
        is_deployed=True,
        table=deployment.table,
        bucket=deployment.bucket,
        topic=deployment.topic,
        budget_usd=deployment.budget_per_month,
        tags=deployment.tags,
    )


def _planned(
    name: str,
    workload: WorkloadConfig,
    places: Mapping[str, RegionSettings],
    deployment: DeploymentConfig,
) -> DoctorCase:
    image = workload.image
    return DoctorCase(
        name=name,
        requirements=workload.to_requirements(),
        policy=workload.to_policy(),
        places=places,
        root_gib=image.root_volume_gib,
        images=tuple(
            RequiredImage(
                parameter=image.parameters[architecture],
                architecture=architecture,
                root_device=image.find_root_device(architecture),
            )
            for architecture in sorted(workload.requirements.architectures)
        ),
        is_baked=image.mode == "bake",
        is_auto=image.mode == "auto" and image.is_baked,
        inputs=(*workload.inputs, *workload.models),
        secrets=tuple(sorted(set(workload.run.secrets.values()))),
        keys=workload.kms_keys,
        sources=tuple(sorted({one.bucket for one in workload.sources})),
        endpoints=needed_endpoints(workload.run, session_manager=deployment.session_manager),
        needs_internet=why_internet(workload.run, workload.image),
        installs=workload.image.mode != "ami",
    )


def _deployed(
    deployment: str, settings: WorkloadSettings, edit: LiveEdit | None, planned: DoctorCase | None
) -> DoctorCase:
    case = DoctorCase(
        name=settings.name,
        requirements=settings.requirements,
        policy=effective_policy(settings, edit, PolicyRow()).policy,
        places=settings.regions,
        root_gib=settings.run.root_volume_gib,
        pricing=settings.pricing,
        unread=settings.unread,
        is_deployed=True,
    )
    if planned is None:
        return case
    baked = tuple(
        RequiredImage(
            parameter=image_parameter(deployment, case.name, need.architecture),
            architecture=need.architecture,
            root_device=need.root_device,
        )
        for need in (planned.images if planned.is_baked else ())
    )
    undeployed = planned.places.keys() - case.places.keys() - settings.unread.keys()
    return replace(
        case,
        unread={**settings.unread, **dict.fromkeys(undeployed, "only the file names it")},
        images=planned.images + baked,
        is_baked=planned.is_baked,
        is_auto=planned.is_auto,
        inputs=planned.inputs,
        secrets=planned.secrets,
        keys=planned.keys,
        sources=planned.sources,
        endpoints=planned.endpoints,
        needs_internet=planned.needs_internet,
        installs=planned.installs,
    )
