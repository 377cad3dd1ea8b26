"""Names of the tags on our instances: how reconcile finds them, and how a worker finds home.

A worker reads them from instance metadata, which needs no permission. Instance metadata
allows letters, digits and ``+ - = . , _ : @`` in keys, no space and no slash
(AWS, "View tags for your EC2 instances using instance metadata").
"""

DEPLOYMENT = "spindown:deployment"
WORKLOAD = "spindown:workload"
#: Set in the launch call: the id of the launch intent, by which a lost response is adopted.
LAUNCH = "spindown:launch"
QUEUE_URL = "spindown:queue-url"
DLQ_URL = "spindown:dlq-url"
TABLE = "spindown:table"
BUCKET = "spindown:bucket"
#: ``s3://bucket/key`` of the code archive of the workload; its name is its digest.
CODE = "spindown:code"
LOG_GROUP = "spindown:log-group"
