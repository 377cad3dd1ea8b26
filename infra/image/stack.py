"""The image stack: images that are baked, for the workloads that want theirs so."""

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import IStackSynthesizer
from aws_cdk import aws_iam as iam
from aws_cdk import aws_imagebuilder as imagebuilder
from constructs import Construct

from infra.grant import image as grant
from infra.grant.statement import make_role
from infra.ground import DeploymentStack
from infra.image.baked import BakedImage, Recipe
from infra.image.kit import KitArchive
from infra.network import Network
from infra.workload.code import CodeArchive
from spindown.config import Config, DeploymentConfig, WorkloadConfig
from spindown.config.form import Architecture

#: What images are made on: of each architecture the cheap types with memory enough to unpack
#: large packages. None has a GPU, since installing needs none.
_BUILD_TYPES: Mapping[Architecture, tuple[str, ...]] = {
    "x86_64": ("m7i.large", "m6i.large", "m5.large"),
    "arm64": ("m7g.large", "m6g.large"),
}


class ImageStack(DeploymentStack):
    """``{deployment}-image``: deployed before the core stack, whose launches need its images.

    So it has a network of its own, with one subnet, unless spindown.toml names one.
    """

    def __init__(
        self, scope: Construct, *, config: Config, root: Path, synthesizer: IStackSynthesizer
    ) -> None:
        """Describe ``config``; ``root`` is where its relative paths begin (ConfigError)."""
        deployment = config.deployment
        super().__init__(
            scope,
            deployment=deployment,
            part="image",
            holds="images of its workers",
            synthesizer=synthesizer,
        )
        # The stack works with a bound copy; both keep one list of assets.
        synthesizer.bind(self)
        self._config = config
        self._root = root
        self._assets = synthesizer
        self._kit = KitArchive(self, "Kit", assets=synthesizer)
        self._network = Network(self, "Network", deployment=_in_one_zone(deployment))
        self._builder = make_role(
            Construct(self, "Builder"),
            description=f"Instances on which images of {deployment.name} are made",
            trusted=iam.ServicePrincipal("ec2.amazonaws.com"),
            statements=[],
        )
        self._profile = iam.CfnInstanceProfile(self, "Profile", roles=[self._builder.role_name])
        self._infrastructure: dict[Architecture, str] = {}
        self._add_images(baked_workloads(config))

    def _add_images(self, workloads: Mapping[str, WorkloadConfig]) -> None:
        deployment = self._config.deployment.name
        expiry = make_role(
            Construct(self, "Expiry"),
            description=f"Expires images of {deployment}",
            trusted=iam.ServicePrincipal("imagebuilder.amazonaws.com"),
            statements=grant.expire(
                deployment=deployment, regions=sorted(self._config.deployment.outpost)
            ),
        )
        codes = {name: self._add_code(name, one) for name, one in workloads.items()}
        images = [
            BakedImage(
                self,
                f"{name}-{architecture}",
                recipe=self._make_recipe(name, architecture, codes[name]),
                infrastructure_arn=self._find_infrastructure(architecture),
                expiry_role_arn=expiry.role_arn,
            )
            for name, workload in workloads.items()
            for architecture in sorted(workload.requirements.architectures)
        ]
        archives = [self._kit, *(code for code in codes.values() if code is not None)]
        for statement in grant.bake(
            component_arns=[image.component.attr_arn for image in images],
            archive_arns=[archive.arn for archive in archives],
            log_group_arns=[image.log_group.log_group_arn for image in images],
            key_arns=sorted({arn for one in workloads.values() for arn in one.kms_keys}),
        ):
            self._builder.add_to_policy(statement)
        for image in images:
            image.bake_after(self._builder, self._network)

    def _add_code(self, name: str, workload: WorkloadConfig) -> CodeArchive | None:
        """Add the code of a workload if an image must have its requirements."""
        if not workload.run.requirements:
            return None
        return CodeArchive(
            self, f"Code-{name}", root=self._root, name=name, workload=workload, assets=self._assets
        )

    def _make_recipe(
        self, name: str, architecture: Architecture, code: CodeArchive | None
    ) -> Recipe:
        return Recipe(
            deployment=self._config.deployment.name,
            workload=name,
            architecture=architecture,
            config=self._config.workloads[name],
            kit=self._kit.kit,
            code_uri=code.uri if code else None,
            code_digest=code.digest if code else None,
            regions=tuple(sorted(self._config.deployment.outpost)),
        )

    def _find_infrastructure(self, architecture: Architecture) -> str:
        """Return the ARN of what images of an architecture are made on; add it at first use."""
        if architecture not in self._infrastructure:
            name = f"{self._config.deployment.name}-{architecture.replace('_', '-')}"
            configuration = imagebuilder.CfnInfrastructureConfiguration
            (subnet_id,) = self._network.subnets.values()
            made = configuration(
                self,
                f"Infrastructure-{architecture}",
                name=name,
                instance_profile_name=self._profile.ref,
                instance_types=list(_BUILD_TYPES[architecture]),
                subnet_id=subnet_id,
                security_group_ids=[self._network.security_group_id],
                instance_metadata_options=configuration.InstanceMetadataOptionsProperty(
                    http_tokens="required", http_put_response_hop_limit=1
                ),
                terminate_instance_on_failure=True,
                # Not by the tag of workers, which reconcile would end: it knows none of these. Nor
                # by a name, which Image Builder keeps for itself (EC2 Image Builder API Reference,
                # "CreateInfrastructureConfiguration").
                resource_tags={"spindown:images-of": self._config.deployment.name},
            )
            self._infrastructure[architecture] = made.attr_arn
        return self._infrastructure[architecture]


def baked_workloads(config: Config) -> Mapping[str, WorkloadConfig]:
    """Return the workloads whose images are baked, by name."""
    return {name: one for name, one in config.workloads.items() if one.image.mode == "bake"}


def _in_one_zone(deployment: DeploymentConfig) -> DeploymentConfig:
    """Return the deployment as if it had only its first zone."""
    zone = deployment.zones[0]
    network = deployment.network
    if network is not None:
        network = network.model_copy(update={"subnets": {zone: network.subnets[zone]}})
    return deployment.model_copy(update={"zones": (zone,), "network": network})
