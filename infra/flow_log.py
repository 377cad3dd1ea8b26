"""The flow log of a VPC that is made."""

from aws_cdk import Aws
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from spindown.config import DeploymentConfig
from spindown.infra.iam.statement import allow, make_role, see
from spindown.infra.shared.network import Network
from spindown.infra.shared.resources import make_log


def log_connections(scope: Construct, network: Network, deployment: DeploymentConfig) -> None:
    """Log which connections are made and refused, where it is asked for and the VPC is ours.

    Source of the grant: Amazon VPC User Guide, "IAM role for publishing flow logs to CloudWatch
    Logs".
    """
    if not deployment.flow_log or deployment.network is not None:
        return
    flows = Construct(scope, "Flows")
    group = make_log(flows, f"/spindown/{deployment.name}/flow")
    role = make_role(
        flows,
        what=["flow"],
        description=f"Writes the flow log of {deployment.name}",
        trusted=iam.ServicePrincipal(
            "vpc-flow-logs.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        ),
        statements=[
            allow(
                "WriteLog",
                ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                [group.log_group_arn],
            ),
            see("FindLog", ["logs:DescribeLogGroups"], regions=[Aws.REGION]),
        ],
    )
    ec2.CfnFlowLog(
        flows,
        "FlowLog",
        resource_id=network.vpc_id,
        resource_type="VPC",
        traffic_type="ALL",
        log_group_name=group.log_group_name,
        deliver_logs_permission_arn=role.role_arn,
    )
