"""A workload's queue of jobs, and the queue of those that could not be done."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spindown.contract.event import queue_name

#: Every receive counts, an interruption's too, and must not use up a job's chances: failures
#: are counted in its manifest, and this only stops what nobody counts.
MAX_RECEIVE_COUNT = 100


class JobQueue(Construct):
    """``{deployment}-{workload}`` and ``{deployment}-{workload}-dlq``, both standard queues.

    The dead-letter queue keeps messages longer, since a message moved there keeps its age.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, deployment: str, workload: str
    ) -> None:
        super().__init__(scope, construct_id)
        name = queue_name(deployment, workload)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            queue_name=f"{name}-dlq",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(12),
            receive_message_wait_time=Duration.seconds(20),
            visibility_timeout=Duration.minutes(5),
            removal_policy=RemovalPolicy.DESTROY,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=MAX_RECEIVE_COUNT
            ),
        )
