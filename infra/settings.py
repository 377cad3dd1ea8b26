"""What is deployed, written down for those who work with it: SSM parameters of JSON."""

import json
from collections.abc import Mapping

from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spindown.contract.codec import encode
from spindown.contract.settings import (
    DeploymentSettings,
    WorkloadSettings,
    deployment_parameter,
    workload_parameter,
)

#: Left out of what is written down, since reading fills it in.
_EMPTY: tuple[object, ...] = (None, [], {})


class Settings(Construct):
    """One parameter for the deployment and one for each workload.

    Live edits lie in parameters that no template knows, so that no deploy overwrites them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: DeploymentSettings,
        workloads: Mapping[str, WorkloadSettings],
    ) -> None:
        super().__init__(scope, construct_id)
        self._put("Deployment", deployment_parameter(deployment.name), deployment)
        for name, workload in workloads.items():
            self._put(f"Workload-{name}", workload_parameter(deployment.name, name), workload)

    def _put(
        self, construct_id: str, name: str, value: DeploymentSettings | WorkloadSettings
    ) -> None:
        ssm.CfnParameter(
            self,
            construct_id,
            name=name,
            type="String",
            # Free up to 4 KiB, which long lists of GPUs or zones may pass.
            tier="Intelligent-Tiering",
            value=json.dumps({k: v for k, v in encode(value).items() if v not in _EMPTY}),
        )
