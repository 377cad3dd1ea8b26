"""Names of the tags on our instances: how the scaler finds them, and how a worker finds home.

A worker reads them from instance metadata, which needs no permission. Instance metadata
allows letters, digits and ``+ - = . , _ : @`` in keys, no space and no slash
(AWS, "View tags for your EC2 instances using instance metadata").

At home the launch template bears them all; whose a launch is, the request repeats, since IAM looks
there before it lets anybody make a fleet. A template in another region cannot know what lies at
home, so there the launch says it (``home_tags``).
"""

from collections.abc import Mapping

from spindown.contract.settings import DeploymentSettings, WorkloadSettings

DEPLOYMENT = "spindown:deployment"
WORKLOAD = "spindown:workload"
#: Set in the launch call: the id of the launch intent, by which a lost response is adopted.
LAUNCH = "spindown:launch"
#: Set in the launch call: from then on whoever finds the instance running may end it, also
#: somebody who knows nothing but its tags (``whose``).
LEASE_UNTIL = "spindown:lease-until"
#: Where home is; without this tag, where the instance runs.
REGION = "spindown:region"
QUEUE_URL = "spindown:queue-url"
DLQ_URL = "spindown:dlq-url"
TABLE = "spindown:table"
BUCKET = "spindown:bucket"
#: ``s3://bucket/key`` of the code archive of the workload; its name is its digest.
CODE = "spindown:code"
LOG_GROUP = "spindown:log-group"
#: Of a queue: the version of the code that is deployed, with which a submit compares its own.
CODE_VERSION = "spindown:code-version"
#: "allow" if the user's code may ask instance metadata; else the instance has no such tag.
METADATA_ACCESS = "spindown:metadata-access"
#: "allow" if the worker starts containers; else the instance has no such tag.
CONTAINERS = "spindown:containers"
#: Set in the launch call: the shape whose queue its worker receives from; absent: the workload's.
SHAPE = "spindown:shape"
#: MiB that one GPU must have, by which a worker tests its machine; absent: any will do.
GPU_MEMORY = "spindown:gpu-memory-mib"
#: vCPUs and MiB that an instance must have, beside which its use is told; absent: any will do.
VCPUS = "spindown:vcpus"
MEMORY = "spindown:memory-mib"

#: What only home knows of itself.
HOME = frozenset({REGION, QUEUE_URL, DLQ_URL, TABLE, BUCKET, CODE, LOG_GROUP})


def whose(deployment: str, workload: str, *, home: str) -> Mapping[str, str]:
    """Return the tags that only instances of this workload of this deployment bear.

    The home region is one of them: a deployment of another may have the same name, and launch here.
    """
    return {DEPLOYMENT: deployment, WORKLOAD: workload, REGION: home}


def home_tags(deployment: DeploymentSettings, workload: WorkloadSettings) -> Mapping[str, str]:
    """Return the tags by which a worker finds home from another region."""
    return {
        REGION: deployment.region,
        QUEUE_URL: workload.queue_url,
        DLQ_URL: workload.dlq_url,
        TABLE: deployment.table,
        BUCKET: deployment.bucket,
        CODE: workload.run.code,
        LOG_GROUP: workload.log_group,
    }
