"""The functions of a deployment and what each may do."""

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.control.function import ControlFunction
from infra.control.teardown import Teardown
from infra.control.trigger import Trigger
from infra.grant import control as grant
from infra.grant import launch
from infra.grant.statement import see_missing_objects
from infra.ground import Ground, fixed_name
from infra.workload.workload import Workload
from spindown.contract.row import SCALER_TIMEOUT
from spindown.domain.interruption import NOTICE

#: The interruption function reconciles as well, under the same lock.
_RECONCILE_TIMEOUT = Duration.seconds(SCALER_TIMEOUT.total_seconds())


class Control(Construct):
    """Scaler, interruption, offers and teardown, with all that invokes them."""

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
        self._workloads = workloads
        self._code = code
        #: Events that a function has failed on for good, for a person to look at.
        self.failed_events = sqs.Queue(
            self,
            "FailedEvents",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.scaler = self._make_scaler()
        self.interruption = self._make_interruption()
        self.offers = self._make_offers()
        trigger = Trigger(
            self,
            "Trigger",
            deployment=ground.deployment.name,
            workloads=workloads,
            scaler=self.scaler,
            interruption=self.interruption,
            offers=self.offers,
        )
        #: What ends the instances; made after whatever an instance needs.
        self.teardown = self._make_teardown()
        self.teardown.go_after(trigger)

    def _make_scaler(self) -> ControlFunction:
        return ControlFunction(
            self,
            "Scaler",
            deployment=self._ground.deployment.name,
            name="scaler",
            role_name=self._role_name("scaler"),
            description="Reconciles a workload: sizes its fleet, launches and ends workers",
            code=self._code,
            statements=self._reconcile(),
            memory_mib=512,
            timeout=_RECONCILE_TIMEOUT,
            # The next tick does again what one has failed to do.
            retries=0,
            oldest_event=Duration.minutes(1),
        )

    def _make_interruption(self) -> ControlFunction:
        return ControlFunction(
            self,
            "Interruption",
            deployment=self._ground.deployment.name,
            name="interruption",
            role_name=self._role_name("interruption"),
            description="Answers EC2's notices: bounds leases, requeues, reconciles at once",
            code=self._code,
            statements=self._reconcile(),
            memory_mib=512,
            timeout=_RECONCILE_TIMEOUT,
            retries=2,
            # A notice is worth nothing after the interruption.
            oldest_event=Duration.seconds(NOTICE.total_seconds()),
            failed_events=self.failed_events,
        )

    def _make_offers(self) -> ControlFunction:
        return ControlFunction(
            self,
            "Offers",
            deployment=self._ground.deployment.name,
            name="offers",
            role_name=self._role_name("offers"),
            description="Refreshes the catalogue, renews old messages, explains dear items",
            code=self._code,
            statements=[
                *self._refresh_offers(),
                *self._renew_messages(),
                *self._judge_costs(),
            ],
            memory_mib=512,
            # Half a minute a region, of which there may be ten, besides old messages: Lambda's
            # longest, since what is cut off writes no catalogue at all.
            timeout=Duration.minutes(15),
            retries=1,
            oldest_event=Duration.hours(1),
            failed_events=self.failed_events,
        )

    def _make_teardown(self) -> Teardown:
        ground = self._ground
        teardown = Teardown(
            self,
            "Teardown",
            deployment=ground.deployment.name,
            workloads=[one.name for one in self._workloads],
            code=self._code,
            table=ground.ledger.table,
            failed_events=self.failed_events,
        )
        teardown.outlive(ground.network, ground.ledger, ground.store, *self._workloads)
        return teardown

    def _role_name(self, function: str) -> str | None:
        """Return the fixed name of a role to which outposts attach grants, if there are any."""
        deployment = self._ground.deployment
        return fixed_name(deployment, function) if deployment.outpost else None

    def _reconcile(self) -> list[iam.PolicyStatement]:
        """Return what a reconcile does; the first of all refreshes the offers, too."""
        queue_arns = [one.jobs.queue.queue_arn for one in self._workloads]
        return [
            *self._refresh_offers(),
            grant.keep_ledger(table_arn=self._ground.ledger.table.table_arn),
            grant.keep_decisions(bucket_arn=self._ground.store.bucket.bucket_arn),
            grant.see_queues(queue_arns),
            grant.requeue_jobs(queue_arns),
            grant.see_instances(),
            grant.see_prices(),
            *self._launch(),
            grant.end_workers(deployment=self._ground.deployment.name),
            grant.tell_people(topic_arn=self._ground.topic.topic.topic_arn),
        ]

    def _refresh_offers(self) -> list[iam.PolicyStatement]:
        bucket_arn = self._ground.store.bucket.bucket_arn
        return [
            grant.read_settings(deployment=self._ground.deployment.name),
            see_missing_objects(bucket_arn=bucket_arn),
            grant.keep_offers(bucket_arn=bucket_arn),
            *grant.see_market(),
        ]

    def _judge_costs(self) -> list[iam.PolicyStatement]:
        return [
            grant.keep_concerns(
                table_arn=self._ground.ledger.table.table_arn,
                workloads=[one.name for one in self._workloads],
            ),
            grant.see_prices(),
            grant.tell_people(topic_arn=self._ground.topic.topic.topic_arn),
        ]

    def _renew_messages(self) -> list[iam.PolicyStatement]:
        queue_arns = [one.jobs.queue.queue_arn for one in self._workloads]
        return [
            grant.see_backlogs(table_arn=self._ground.ledger.table.table_arn),
            grant.renew_messages(queue_arns),
            grant.keep_items(bucket_arn=self._ground.store.bucket.bucket_arn),
        ]

    def _launch(self) -> list[iam.PolicyStatement]:
        network, deployment = self._ground.network, self._ground.deployment.name
        fleets = [one.fleet for one in self._workloads]
        templates = [ref.id for fleet in fleets for ref in fleet.template_refs.values()]
        return [
            *launch.use_parts(
                template_ids=templates,
                subnet_ids=list(network.subnets.values()),
                security_group_id=network.security_group_id,
            ),
            *launch.make_tagged(deployment=deployment, template_ids=templates),
            *launch.pass_roles(worker_role_arns=[fleet.role.role_arn for fleet in fleets]),
            launch.resolve_images([name for fleet in fleets for name in fleet.image_parameters]),
        ]
