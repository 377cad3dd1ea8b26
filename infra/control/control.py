"""The three functions of a deployment and what each may do."""

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import grant
from infra.control.function import ControlFunction
from infra.control.trigger import Trigger
from infra.ground import Ground
from infra.workload.workload import Workload
from spindown.domain.interruption import NOTICE

#: A notice is worth nothing after the interruption.
_NOTICE = Duration.seconds(NOTICE.total_seconds())


class Control(Construct):
    """Scaler, interruption and offers, with all that invokes them."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        ground: Ground,
        workloads: Sequence[Workload],
        code: lambda_.Code,
    ) -> None:
        super().__init__(scope, construct_id)
        self._ground = ground
        self._code = code
        self._table_arn = ground.ledger.table.table_arn
        self._bucket_arn = ground.store.bucket.bucket_arn
        self._read_settings = grant.read_settings(
            deployment=ground.deployment.name, workloads=[one.name for one in workloads]
        )
        self._queue_arns = [one.jobs.queue.queue_arn for one in workloads]
        #: Events that a function has failed on for good, for a person to look at.
        self.failed_events = sqs.Queue(
            self,
            "FailedEvents",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.scaler = self._make_scaler(workloads)
        self.interruption = self._make_interruption()
        self.offers = self._make_offers()
        Trigger(
            self,
            "Trigger",
            deployment=ground.deployment.name,
            workloads=workloads,
            scaler=self.scaler,
            interruption=self.interruption,
            offers=self.offers,
        )

    def _make_scaler(self, workloads: Sequence[Workload]) -> ControlFunction:
        ground = self._ground
        fleets = [workload.fleet for workload in workloads]
        return ControlFunction(
            self,
            "Scaler",
            deployment=ground.deployment.name,
            name="scaler",
            description="Reconciles a workload: sizes its fleet, launches and ends workers",
            code=self._code,
            statements=[
                self._read_settings,
                grant.keep_ledger(table_arn=self._table_arn),
                *self._read_market(),
                grant.keep_decisions(bucket_arn=self._bucket_arn),
                grant.see_queues(self._queue_arns),
                grant.requeue_jobs(self._queue_arns),
                grant.see_instances(),
                grant.see_prices(),
                *grant.launch_workers(
                    deployment=ground.deployment.name,
                    template_ids=[ref.id for one in fleets for ref in one.template_refs.values()],
                    subnet_ids=list(ground.network.subnets.values()),
                    security_group_id=ground.network.security_group_id,
                    image_parameters=[name for one in fleets for name in one.image_parameters],
                    worker_role_arns=[one.role.role_arn for one in fleets],
                ),
                grant.end_workers(deployment=ground.deployment.name),
            ],
            memory_mib=512,
            timeout=Duration.seconds(90),
            # The next tick does again what one has failed to do.
            retries=0,
            oldest_event=Duration.minutes(1),
        )

    def _make_interruption(self) -> ControlFunction:
        deployment = self._ground.deployment.name
        return ControlFunction(
            self,
            "Interruption",
            deployment=deployment,
            name="interruption",
            description="Bounds the leases of a worker that EC2 takes; requeues what it held",
            code=self._code,
            statements=[
                self._read_settings,
                grant.keep_ledger(table_arn=self._table_arn),
                grant.requeue_jobs(self._queue_arns),
                grant.see_instances(),
            ],
            memory_mib=256,
            timeout=Duration.seconds(30),
            retries=2,
            oldest_event=_NOTICE,
            failed_events=self.failed_events,
        )

    def _make_offers(self) -> ControlFunction:
        deployment = self._ground.deployment.name
        return ControlFunction(
            self,
            "Offers",
            deployment=deployment,
            name="offers",
            description="Refreshes the catalogue: types, zones, on-demand prices, quotas",
            code=self._code,
            statements=[
                self._read_settings,
                grant.keep_ledger(table_arn=self._table_arn),
                *self._read_market(),
            ],
            memory_mib=512,
            timeout=Duration.minutes(5),
            retries=1,
            oldest_event=Duration.hours(1),
            failed_events=self.failed_events,
        )

    def _read_market(self) -> list[iam.PolicyStatement]:
        """Return the renewal of the catalogue, by offers or by the first reconcile of all."""
        return [
            grant.see_missing_objects(bucket_arn=self._bucket_arn),
            grant.keep_offers(bucket_arn=self._bucket_arn),
            *grant.see_market(),
        ]
