"""What instances of a workload must reach, as endpoints or as the internet."""

from spindown.config import DeploymentConfig, WorkloadConfig
from spindown.contract.run import ecr_registry, is_parameter

#: What every worker uses, as the names of endpoints end (AWS PrivateLink Guide, "AWS services that
#: integrate"): results and code, the ledger, jobs, its log, events of jobs.
_ALWAYS = frozenset({"s3", "dynamodb", "sqs", "logs", "events"})
#: Of Amazon ECR; the layers of images are in S3 (Amazon ECR User Guide, "VPC endpoints").
_REGISTRY = frozenset({"ecr.api", "ecr.dkr"})
#: Of Session Manager (AWS Systems Manager User Guide, "Create VPC endpoints").
_SESSIONS = frozenset({"ssm", "ssmmessages"})


def needed_endpoints(deployment: DeploymentConfig, workload: WorkloadConfig) -> frozenset[str]:
    """Return the services that a worker of a workload calls, by the names of their endpoints."""
    found = set(_ALWAYS)
    for secret in workload.run.secrets.values():
        found.add("ssm" if is_parameter(secret) else "secretsmanager")
    if workload.run.image and ecr_registry(workload.run.image):
        found |= _REGISTRY
    if deployment.session_manager:
        found |= _SESSIONS
    return frozenset(found)


def why_internet(workload: WorkloadConfig) -> str:
    """Return why an instance needs more than endpoints; "": it does not."""
    if workload.image.mode == "bootstrap":
        return "an instance installs packages at its start"
    if workload.image.mode == "bake":
        return "packages are installed while its image is baked"
    if workload.run.image and not ecr_registry(workload.run.image):
        return "its container image is not in Amazon ECR"
    return ""
