"""What instances of a workload must reach, as endpoints or as the internet."""

from spindown.config.image import ImageConfig
from spindown.config.run import RunConfig
from spindown.contract.run_spec import ecr_registry, is_parameter

#: What every worker uses, as the names of endpoints end (AWS PrivateLink Guide, "AWS services that
#: integrate"): results and code, the ledger, jobs, its log, events of jobs.
_ALWAYS = frozenset({"s3", "dynamodb", "sqs", "logs", "events"})
#: Of Amazon ECR; the layers of images are in S3 (Amazon ECR User Guide, "VPC endpoints").
_REGISTRY = frozenset({"ecr.api", "ecr.dkr"})
#: Of Session Manager (AWS Systems Manager User Guide, "Create VPC endpoints").
_SESSIONS = frozenset({"ssm", "ssmmessages"})


#: Those that are gateways: free of charge, in route tables (AWS PrivateLink Guide, "Gateway
#: endpoints").
GATEWAYS = ("s3", "dynamodb")


def needed_endpoints(run: RunConfig, *, session_manager: bool) -> frozenset[str]:
    """Return the services that a worker of a workload calls, by the names of their endpoints."""
    found = set(_ALWAYS)
    for secret in run.secrets.values():
        found.add("ssm" if is_parameter(secret) else "secretsmanager")
    if run.image and ecr_registry(run.image):
        found |= _REGISTRY
    if session_manager:
        found |= _SESSIONS
    return frozenset(found)


def why_internet(run: RunConfig, image: ImageConfig) -> str:
    """Return why an instance needs more than endpoints; "": it does not."""
    if image.mode in {"auto", "bootstrap"}:
        return "an instance installs packages at its start"
    if image.mode == "bake":
        return "packages are installed while its image is baked"
    if run.image and not ecr_registry(run.image):
        return "its container image is not in Amazon ECR"
    return ""
