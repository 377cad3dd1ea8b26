"""The image stack: EC2 Image Builder bakes the images of the workloads that ask for it.

With ``image.mode = "bake"`` the deploy and a schedule bake them, with ``auto`` the hourly function
does once they are earned (``control.bake``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aws_cdk import Aws, IStackSynthesizer, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_imagebuilder as imagebuilder
from aws_cdk import aws_ssm as ssm
from constructs import Construct, IDependable

from spindown.config import Config, DeploymentConfig, WorkloadConfig
from spindown.config.form import Architecture
from spindown.contract import tag
from spindown.contract.image import (
    DISK_KEY,
    STAMP_TAG,
    Kit,
    image_name,
    image_parameter,
    make_stamp,
    render_bake,
)
from spindown.contract.name import resource_name
from spindown.contract.settings import builder_parameter
from spindown.infra.iam import bake as grants
from spindown.infra.iam.statement import make_profile, make_role
from spindown.infra.shared.archive import CodeArchive, KitArchive
from spindown.infra.shared.network import Network
from spindown.infra.shared.resources import make_log
from spindown.infra.shared.stack import DeploymentStack

#: Image Builder itself increases the last number of a recipe's version and the build number of a
#: component. So both are made again when they change (EC2 Image Builder User Guide, "Create a new
#: version of an image recipe").
_RECIPE_VERSION = "1.0.x"
_COMPONENT_VERSION = "1.0.0"

#: Sundays at 03:00 UTC.
_WEEKLY = "cron(0 3 ? * sun *)"

#: An image is deleted when it is this old, unless it is one of the newest or in use.
_EXPIRE_AFTER_WEEKS = 5
_KEPT_IMAGES = 2

#: It takes minutes, but downloading large requirements is slow.
_BAKE_SECONDS = 60 * 60
_TEST_SECONDS = 10 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What one image consists of."""

    deployment: str
    workload: str
    architecture: Architecture
    config: WorkloadConfig
    kit: Kit
    #: The address and the digest of the code archive, if it has requirements.
    code_uri: str | None
    code_digest: str | None
    #: Further regions that get a copy of the image.
    regions: tuple[str, ...] = ()
    #: The account's tags.
    shared_tags: Mapping[str, str] = field(default_factory=dict)
    #: Region -> the account's own key, if it has one.
    keys: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of everything that is made for this image, fit for an ARN."""
        return image_name(self.deployment, self.workload, self.architecture)

    @property
    def stamp(self) -> str:
        """Return what tells its images apart from those that were baked with other things."""
        return make_stamp(self.kit, self.code_digest)

    @property
    def found_by(self) -> dict[str, str]:
        """Return the tags by which its images are found."""
        return {tag.DEPLOYMENT: self.deployment, "Name": self.name}

    @property
    def tags(self) -> dict[str, str]:
        """Return what its images bear."""
        return {**self.shared_tags, **self.found_by}


class BakedImage(Construct):
    """One image: baked in the deploy that changes it, and every week on the latest base image.

    The deploy waits for the image, so a later stack can launch instances of it. The parameter
    ``contract.image.image_parameter`` names the image. With the mode ``auto`` there is only what
    bakes it, which costs nothing.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        recipe: Recipe,
        infrastructure_arn: str,
        expiry_role_arn: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._recipe = recipe
        self.log_group = make_log(self, f"/aws/imagebuilder/{recipe.name}")
        self.component = imagebuilder.CfnComponent(
            self,
            "Component",
            name=recipe.name,
            platform="Linux",
            version=_COMPONENT_VERSION,
            description=f"What workers of {recipe.workload} need",
            data=json.dumps(_describe_steps(recipe)),
        )
        wanted: dict[str, Any] = {
            "image_recipe_arn": self._make_recipe().attr_arn,
            "infrastructure_configuration_arn": infrastructure_arn,
            "distribution_configuration_arn": self._make_distribution().attr_arn,
            # This would list the installed packages, and need permissions for it.
            "enhanced_image_metadata_enabled": False,
        }
        self._is_auto = recipe.config.image.mode == "auto"
        self._image = None if self._is_auto else self._make_image(wanted)
        self._make_pipeline(wanted)
        self._expire(expiry_role_arn)

    def bake_after(self, *needed: IDependable) -> None:
        """Bake no image in the deploy before these resources are there."""
        if self._image is not None:
            self._image.node.add_dependency(*needed)

    def _make_recipe(self) -> imagebuilder.CfnImageRecipe:
        recipe, image = self._recipe, self._recipe.config.image
        mapping = imagebuilder.CfnImageRecipe.InstanceBlockDeviceMappingProperty(
            device_name=image.find_root_device(recipe.architecture),
            ebs=imagebuilder.CfnImageRecipe.EbsInstanceBlockDeviceSpecificationProperty(
                volume_type="gp3",
                volume_size=image.root_volume_gib,
                encrypted=True,
                kms_key_id=_disk_key(Aws.REGION, recipe.keys.get(Stack.of(self).region)),
                delete_on_termination=True,
            ),
        )
        return imagebuilder.CfnImageRecipe(
            self,
            "Recipe",
            name=recipe.name,
            version=_RECIPE_VERSION,
            # The parameter is read at each build, so the base image is the latest.
            parent_image=f"ssm:{image.parameters[recipe.architecture]}",
            components=[
                imagebuilder.CfnImageRecipe.ComponentConfigurationProperty(
                    component_arn=self.component.attr_arn
                )
            ],
            block_device_mappings=[mapping],
        )

    def _make_distribution(self) -> imagebuilder.CfnDistributionConfiguration:
        recipe = self._recipe
        configuration = imagebuilder.CfnDistributionConfiguration
        home = Stack.of(self).region
        parameter = image_parameter(recipe.deployment, recipe.workload, recipe.architecture)
        return configuration(
            self,
            "Distribution",
            name=recipe.name,
            distributions=[
                configuration.DistributionProperty(
                    region=region,
                    # CDK passes this part on unchanged.
                    ami_distribution_configuration={
                        "Name": f"{recipe.name}-{{{{ imagebuilder:buildDate }}}}",
                        "AmiTags": recipe.tags,
                        # The image of the home region has its key from the recipe.
                        **(
                            {}
                            if region == home
                            else {"KmsKeyId": _disk_key(region, recipe.keys.get(region))}
                        ),
                    },
                    # Each region has a parameter that names its own copy.
                    ssm_parameter_configurations=[
                        configuration.SsmParameterConfigurationProperty(
                            parameter_name=parameter, data_type="aws:ec2:image"
                        )
                    ],
                )
                for region in (home, *recipe.regions)
            ],
        )

    def _make_image(self, wanted: Mapping[str, Any]) -> imagebuilder.CfnImage:
        """Bake the first image, and another one whenever the recipe changes."""
        image = imagebuilder.CfnImage(
            self,
            "Image",
            **wanted,
            logging_configuration=imagebuilder.CfnImage.ImageLoggingConfigurationProperty(
                log_group_name=self.log_group.log_group_name
            ),
            tags=self._recipe.tags,
        )
        # The parameter still names it after a roll-back of the deploy; it expires by age.
        image.apply_removal_policy(RemovalPolicy.RETAIN)
        return image

    def _make_pipeline(self, wanted: Mapping[str, Any]) -> None:
        pipeline = imagebuilder.CfnImagePipeline
        pipeline(
            self,
            "Pipeline",
            name=self._recipe.name,
            **wanted,
            schedule=None
            if self._is_auto
            else pipeline.ScheduleProperty(
                schedule_expression=_WEEKLY,
                # The base image may be new, and packages that the requirements do not pin.
                pipeline_execution_start_condition="EXPRESSION_MATCH_ONLY",
            ),
            logging_configuration=pipeline.PipelineLoggingConfigurationProperty(
                image_log_group_name=self.log_group.log_group_name
            ),
            image_tags=self._recipe.tags
            | ({STAMP_TAG: self._recipe.stamp} if self._is_auto else {}),
        )

    def _expire(self, role_arn: str) -> None:
        policy = imagebuilder.CfnLifecyclePolicy
        rule = policy.PolicyDetailProperty(
            action=policy.ActionProperty(
                type="DELETE",
                include_resources=policy.IncludeResourcesProperty(amis=True, snapshots=True),
            ),
            filter=policy.FilterProperty(
                type="AGE",
                value=_EXPIRE_AFTER_WEEKS,
                unit="WEEKS",
                # Nothing starts from an older one where the functions choose
                # (``domain.bake_or_bootstrap``).
                retain_at_least=None if self._is_auto else _KEPT_IMAGES,
            ),
            exclusion_rules=policy.ExclusionRulesProperty(
                amis=policy.AmiExclusionRulesProperty(
                    last_launched=policy.LastLaunchedProperty(value=1, unit="WEEKS")
                )
            ),
        )
        policy(
            self,
            "Expiry",
            name=self._recipe.name,
            resource_type="AMI_IMAGE",
            execution_role=role_arn,
            policy_details=[rule],
            resource_selection=policy.ResourceSelectionProperty(tag_map=self._recipe.found_by),
        )


def _describe_steps(recipe: Recipe) -> Mapping[str, Any]:
    """Return the component: install, then test on a new instance of the image that it works."""
    script = render_bake(recipe.kit, code_uri=recipe.code_uri, stamp=recipe.stamp)
    return {
        "schemaVersion": 1.0,
        "phases": [
            {"name": "build", "steps": [_step("Install", script, _BAKE_SECONDS)]},
            {"name": "test", "steps": [_step("Check", _CHECK, _TEST_SECONDS)]},
        ],
    }


#: The check that ends an install, on an instance that has booted the image.
_CHECK = "/opt/spindown/system/smoke.sh"


def _disk_key(region: str, own: str | None) -> str:
    """Return the key that encrypts an image's disk: the same key as that of its instances.

    Without a name it would be the account's default. If that is a customer's own key, the disks of
    instances cannot be made from it. Image Builder takes the ARN of a key or of an alias (EC2 Image
    Builder API Reference, "EbsInstanceBlockDeviceSpecification", "AmiDistributionConfiguration").
    """
    usual = f"arn:{Aws.PARTITION}:kms:{region}:{Aws.ACCOUNT_ID}:{DISK_KEY}"
    return own or usual


def _step(name: str, script: str, seconds: int) -> Mapping[str, Any]:
    return {
        "name": name,
        "action": "ExecuteBash",
        "timeoutSeconds": seconds,
        "inputs": {"commands": [script]},
    }


#: The instance types on which images are made: cheap ones with enough memory to unpack large
#: packages. None has a GPU, since installing needs none.
_BUILD_TYPES: Mapping[Architecture, tuple[str, ...]] = {
    "x86_64": ("m7i.large", "m6i.large", "m5.large"),
    "arm64": ("m7g.large", "m6g.large"),
}


class ImageStack(DeploymentStack):
    """``{deployment}-image``, deployed before the core stack, whose launches need its images.

    So it has a network of its own, with one subnet, unless spindown.toml names one. Where no launch
    needs them (``precedes_core``) it is deployed after core, in whose network it builds.
    """

    def __init__(
        self, scope: Construct, *, config: Config, root: Path, synthesizer: IStackSynthesizer
    ) -> None:
        """Describe ``config``; its paths are relative to ``root`` (raises ConfigError)."""
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
        self._network = (
            Network(self, "Network", deployment=_in_one_zone(deployment))
            if precedes_core(config)
            else None
        )
        self._builder = make_role(
            Construct(self, "Builder"),
            what=["image", "builder"],
            description=f"Instances on which images of {deployment.name} are made",
            trusted=iam.ServicePrincipal("ec2.amazonaws.com"),
            statements=[],
        )
        self._profile = make_profile(
            self, "Profile", self._builder, what=["image", "builder"], is_named=False
        )
        self._infrastructure: dict[Architecture, str] = {}
        self._add_images(baked_workloads(config))

    def _add_images(self, workloads: Mapping[str, WorkloadConfig]) -> None:
        deployment = self._config.deployment.name
        expiry = make_role(
            Construct(self, "Expiry"),
            what=["image", "expiry"],
            description=f"Expires images of {deployment}",
            trusted=iam.ServicePrincipal("imagebuilder.amazonaws.com"),
            statements=grants.expire(
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
        for statement in grants.bake(
            component_arns=[image.component.attr_arn for image in images],
            archives_arns=[archive.releases_arn for archive in archives],
            log_group_arns=[image.log_group.log_group_arn for image in images],
            key_arns=sorted({arn for one in workloads.values() for arn in one.kms_keys}),
        ):
            self._builder.add_to_policy(statement)
        if self._network is not None:
            for image in images:
                image.bake_after(self._builder, self._network)

    def _add_code(self, name: str, workload: WorkloadConfig) -> CodeArchive | None:
        """Add the code of a workload if an image must hold its requirements."""
        if not workload.run.requirements:
            return None
        return CodeArchive(
            self,
            f"Code-{name}",
            root=self._root,
            deployment=self._config.deployment.name,
            name=name,
            workload=workload,
            assets=self._assets,
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
            shared_tags=self._config.deployment.tags,
            keys={
                region: place.kms_key_arn
                for region, place in self._config.deployment.regions.items()
            },
        )

    def _find_infrastructure(self, architecture: Architecture) -> str:
        """Return the ARN of an architecture's build configuration; add it at the first use."""
        if architecture not in self._infrastructure:
            name = resource_name(self._config.deployment.name, architecture.replace("_", "-"))
            configuration = imagebuilder.CfnInfrastructureConfiguration
            subnet_id, group_id = self._find_place()
            made = configuration(
                self,
                f"Infrastructure-{architecture}",
                name=name,
                instance_profile_name=self._profile.ref,
                instance_types=list(_BUILD_TYPES[architecture]),
                subnet_id=subnet_id,
                security_group_ids=[group_id],
                instance_metadata_options=configuration.InstanceMetadataOptionsProperty(
                    http_tokens="required", http_put_response_hop_limit=1
                ),
                terminate_instance_on_failure=True,
                # Not the tag of workers: reconcile would end these instances as unknown ones. Not a
                # Name either, which Image Builder reserves (EC2 Image Builder API Reference,
                # "CreateInfrastructureConfiguration").
                resource_tags={
                    **self._config.deployment.tags,
                    "spindown:images-of": self._config.deployment.name,
                },
            )
            self._infrastructure[architecture] = made.attr_arn
        return self._infrastructure[architecture]

    def _find_place(self) -> tuple[str, str]:
        """Return the subnet and the security group of instances on which images are made."""
        if self._network is None:
            read, name = ssm.StringParameter.value_for_string_parameter, self.deployment.name
            return (
                read(self, builder_parameter(name, "subnet")),
                read(self, builder_parameter(name, "group")),
            )
        (subnet_id,) = self._network.subnets.values()
        return subnet_id, self._network.security_group_id


def baked_workloads(config: Config) -> Mapping[str, WorkloadConfig]:
    """Return the workloads whose images are baked, by name."""
    return {name: one for name, one in config.workloads.items() if one.image.is_baked}


def precedes_core(config: Config) -> bool:
    """Tell whether launches of a workload need an image that is baked in the deploy."""
    return any(one.image.mode == "bake" for one in config.workloads.values())


def _in_one_zone(deployment: DeploymentConfig) -> DeploymentConfig:
    """Return the deployment with its first zone only."""
    zone = deployment.zones[0]
    network = deployment.network
    if network is not None:
        network = network.model_copy(
            update={
                "subnets": {zone: network.subnets[zone]},
                # Those of core serve here too, and there can be no others.
                "route_tables": (),
                "interface_endpoints": False,
            }
        )
    return deployment.model_copy(update={"zones": (zone,), "network": network})
