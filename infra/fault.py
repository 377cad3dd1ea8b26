"""The fault stack: experiments of AWS Fault Injection Service that `spindown verify` starts.

An experiment takes one running spot instance of one workload, by its tags. Only workloads with
``run.verify = true`` have one, so no user's job is interrupted by it.
"""

from collections.abc import Mapping

from aws_cdk import IStackSynthesizer
from aws_cdk import aws_fis as fis
from aws_cdk import aws_iam as iam
from constructs import Construct

from spindown.config import Config
from spindown.contract import tag
from spindown.infra.iam.fault import interrupt_spot, trusted_experiments
from spindown.infra.iam.statement import make_role
from spindown.infra.shared.stack import DeploymentStack


class FaultStack(DeploymentStack):
    """``{deployment}-fault``: a role, and an experiment template for each workload to verify."""

    def __init__(self, scope: Construct, *, config: Config, synthesizer: IStackSynthesizer) -> None:
        """Describe the experiments of the workloads that `spindown verify` may be run with."""
        super().__init__(
            scope,
            deployment=config.deployment,
            part="fault",
            holds="experiments of `spindown verify`",
            synthesizer=synthesizer,
        )
        name = config.deployment.name
        for workload in workloads_to_verify(config):
            below = Construct(self, f"Workload-{workload}")
            ours = tag.whose(name, workload, home=config.deployment.region)
            role = make_role(
                below,
                what=("fault", workload),
                description=f"Interrupts machines of {workload} of Spindown deployment {name}",
                trusted=trusted_experiments(),
                statements=interrupt_spot(ours),
            )
            _add_template(below, ours, role)


def workloads_to_verify(config: Config) -> list[str]:
    """Return the workloads with experiments: none, unless the deployment asks for them."""
    if not config.deployment.fault_injection:
        return []
    return [name for name, one in sorted(config.workloads.items()) if one.run.verify]


def _add_template(scope: Construct, ours: Mapping[str, str], role: iam.Role) -> None:
    """Add what takes one spot instance away, with the usual notice of two minutes."""
    template = fis.CfnExperimentTemplate(
        scope,
        "Interruption",
        description=f"spindown verify: take one spot instance of {ours[tag.WORKLOAD]}",
        role_arn=role.role_arn,
        stop_conditions=[
            fis.CfnExperimentTemplate.ExperimentTemplateStopConditionProperty(source="none")
        ],
        targets={
            "Workers": fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty(
                resource_type="aws:ec2:spot-instance",
                selection_mode="COUNT(1)",
                resource_tags=ours,
                filters=[
                    fis.CfnExperimentTemplate.ExperimentTemplateTargetFilterProperty(
                        path="State.Name", values=["running"]
                    )
                ],
            )
        },
        actions={
            "Interrupt": fis.CfnExperimentTemplate.ExperimentTemplateActionProperty(
                action_id="aws:ec2:send-spot-instance-interruptions",
                parameters={"durationBeforeInterruption": "PT2M"},
                targets={"SpotInstances": "Workers"},
            )
        },
        # `spindown verify` finds it by them.
        tags=ours,
    )
    template.node.add_dependency(role)
