"""The functions of a deployment and what each may do."""

from collections.abc import Sequence

from aws_cdk import Aws, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from spindown.contract.row import SCALER_TIMEOUT
from spindown.contract.settings import ENV_BUCKET, ENV_TABLE, ENV_TOPIC, ENV_WEBHOOK
from spindown.domain.notice_time import NOTICE
from spindown.infra.control.function import ControlFunction
from spindown.infra.control.teardown import Teardown
from spindown.infra.control.trigger import Triggers
from spindown.infra.iam import control as grants
from spindown.infra.iam.statement import see_missing_objects
from spindown.infra.iam.worker import read_secrets
from spindown.infra.shared.resources import SharedResources, keep_failed_events, teller, topic_name
from spindown.infra.workload import WorkloadResources

#: The interruption function reconciles as well, under the same lock.
_RECONCILE_TIMEOUT = Duration.seconds(SCALER_TIMEOUT.total_seconds())


#: Longer than it routes for (``job.route.RUN_FOR``), by the calls that are under way then.
_INTAKE_TIMEOUT = Duration.minutes(2)


class ControlPlane(Construct):
    """The functions, with everything that invokes them."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        shared: SharedResources,
        workloads: Sequence[WorkloadResources],
        code: lambda_.Code,
        table_code: lambda_.Code,
    ) -> None:
        super().__init__(scope, construct_id)
        self._shared = shared
        self._workloads = workloads
        self._code = code
        #: The same with DuckDB.
        self._table_code = table_code
        #: Events on which a function has failed for good, or that reached none.
        self.failed_events = keep_failed_events(self)
        self.scaler = self._make_scaler()
        self.interruption = self._make_interruption()
        self.offers = self._make_offers()
        #: Routes the messages of workloads with types; None: there is none.
        self.intake = self._make_intake()
        if (secret := shared.deployment.alarm_webhook) is not None:
            self._add_webhook(secret)
        trigger = Triggers(
            self,
            "Trigger",
            deployment=shared.deployment.name,
            workloads=workloads,
            scaler=self.scaler,
            interruption=self.interruption,
            offers=self.offers,
            failed_events=self.failed_events,
        )
        #: What ends the instances; it is created after everything that an instance needs.
        self.teardown = self._make_teardown()
        self.teardown.go_after(trigger)

    def _make_scaler(self) -> ControlFunction:
        return ControlFunction(
            self,
            "Scaler",
            deployment=self._shared.deployment.name,
            name="scaler",
            has_named_role=self._has_outposts,
            description="Reconciles a workload: sizes its fleet, launches and ends workers",
            code=self._code,
            statements=[
                *self._reconcile(),
                *grants.look_at_batches(
                    bucket_arn=self._shared.store.bucket.bucket_arn,
                    deployment=self._shared.deployment.name,
                ),
            ],
            memory_mib=512,
            places=self._places(),
            timeout=_RECONCILE_TIMEOUT,
            # The next tick repeats what a failed one did not do.
            retries=0,
            oldest_event=Duration.minutes(1),
        )

    def _make_interruption(self) -> ControlFunction:
        return ControlFunction(
            self,
            "Interruption",
            deployment=self._shared.deployment.name,
            name="interruption",
            has_named_role=self._has_outposts,
            description="Answers EC2's notices: bounds leases, requeues, reconciles at once",
            code=self._code,
            statements=self._reconcile(),
            memory_mib=512,
            places=self._places(),
            timeout=_RECONCILE_TIMEOUT,
            retries=2,
            # A notice is useless after the interruption.
            oldest_event=Duration.seconds(NOTICE.total_seconds()),
            failed_events=self.failed_events,
        )

    def _make_offers(self) -> ControlFunction:
        return ControlFunction(
            self,
            "Offers",
            deployment=self._shared.deployment.name,
            name="offers",
            has_named_role=self._has_outposts,
            description="Refreshes the catalogue, renews old messages, explains expensive items",
            code=self._table_code,
            statements=[
                *self._refresh_offers(),
                *self._renew_messages(),
                *self._judge_costs(),
                *self._count_lost(),
                *grants.compact_usage(bucket_arn=self._shared.store.bucket.bucket_arn),
                *self._learn_sizes(),
                *self._bake_images(),
            ],
            memory_mib=512,
            places=self._places(),
            # Lambda's longest. A region takes half a minute, and there may be ten besides the old
            # messages; a refresh that is cut off writes no catalogue.
            timeout=Duration.minutes(15),
            retries=1,
            oldest_event=Duration.hours(1),
            failed_events=self.failed_events,
        )

    def _make_intake(self) -> ControlFunction | None:
        typed = [one for one in self._workloads if one.config.has_types]
        if not typed:
            return None
        names, shared = [one.name for one in typed], self._shared
        return ControlFunction(
            self,
            "Intake",
            deployment=shared.deployment.name,
            name="intake",
            description="Routes messages to the queues of the shapes that they need",
            code=self._code,
            statements=[
                grants.read_settings(deployment=shared.deployment.name),
                grants.keep_shapes(table_arn=shared.ledger.table.table_arn, workloads=names),
                grants.see_leases(table_arn=shared.ledger.table.table_arn, workloads=names),
                see_missing_objects(bucket_arn=shared.store.bucket.bucket_arn),
                grants.keep_bodies(bucket_arn=shared.store.bucket.bucket_arn, workloads=names),
                grants.read_sizes(bucket_arn=shared.store.bucket.bucket_arn, workloads=names),
                *grants.give_up_jobs(bucket_arn=shared.store.bucket.bucket_arn, workloads=names),
                *grants.route_jobs(
                    queue_arns=[one.jobs.queue.queue_arn for one in typed],
                    shapes_arns=[one.jobs.shapes_arn for one in typed],
                    tagged=bool(shared.deployment.tags),
                    dead_letters_arns=[one.jobs.dead_letters.queue_arn for one in typed],
                ),
                grants.wake("scaler", deployment=shared.deployment.name),
            ],
            # CPU comes with memory (AWS Lambda, "Configure Lambda function memory": a vCPU at
            # 1,769 MB), and signing four calls a message is most of the work.
            memory_mib=1024,
            places=self._places(),
            timeout=_INTAKE_TIMEOUT,
            # The next tick wakes it again.
            retries=0,
            oldest_event=Duration.minutes(1),
        )

    def _add_webhook(self, secret: str) -> None:
        """Let the topic invoke a function that posts its texts to a webhook."""
        made = ControlFunction(
            self,
            "Webhook",
            deployment=self._shared.deployment.name,
            name="webhook",
            description="Posts alarms and alerts to a webhook",
            code=self._code,
            statements=read_secrets([secret], own_key=self._shared.deployment.kms_key_arn),
            memory_mib=256,
            places={ENV_WEBHOOK: secret},
            timeout=Duration.seconds(30),
            retries=2,
            # What is older than this is no news.
            oldest_event=Duration.hours(1),
            failed_events=self.failed_events,
        )
        topic, deployment = self._shared.topic.topic, self._shared.deployment
        for region in deployment.regions:
            if principal := teller(region, home=deployment.region):
                at_home = region == deployment.region
                made.function.add_permission(
                    "TakeTexts" if at_home else f"TakeTexts-{region}",
                    principal=iam.ServicePrincipal(principal),
                    source_arn=topic.topic_arn
                    if at_home
                    else f"arn:{Aws.PARTITION}:sns:{region}:{Aws.ACCOUNT_ID}:"
                    + topic_name(deployment.name),
                )
        sns.Subscription(
            self,
            "ToWebhook",
            topic=topic,
            protocol=sns.SubscriptionProtocol.LAMBDA,
            endpoint=made.function.function_arn,
        )

    def _make_teardown(self) -> Teardown:
        shared = self._shared
        teardown = Teardown(
            self,
            "Teardown",
            deployment=shared.deployment.name,
            home=shared.deployment.region,
            workloads=[one.name for one in self._workloads],
            code=self._code,
            table=shared.ledger.table,
            failed_events=self.failed_events,
        )
        teardown.outlive(shared.network, shared.ledger, shared.store, *self._workloads)
        return teardown

    def _places(self) -> dict[str, str]:
        """Return where things are that a function must not ask SSM for."""
        return {
            ENV_TABLE: self._shared.ledger.table.table_name,
            ENV_BUCKET: self._shared.store.bucket.bucket_name,
            ENV_TOPIC: self._shared.topic.topic.topic_arn,
        }

    @property
    def _has_outposts(self) -> bool:
        """Tell whether outposts attach grants to roles, by their names."""
        return bool(self._shared.deployment.outpost)

    def _reconcile(self) -> list[iam.PolicyStatement]:
        """Return what a tick may do; the very first one refreshes the offers too."""
        queue_arns = [arn for one in self._workloads for arn in one.jobs.work_arns]
        has_types = any(one.config.has_types for one in self._workloads)
        wake = [grants.wake("intake", deployment=self._shared.deployment.name)]
        return [
            *(wake if has_types else []),
            *self._refresh_offers(),
            grants.keep_ledger(table_arn=self._shared.ledger.table.table_arn),
            grants.keep_decisions(bucket_arn=self._shared.store.bucket.bucket_arn),
            grants.see_queues(queue_arns),
            grants.requeue_jobs(queue_arns),
            grants.see_instances(),
            grants.see_prices(),
            *self._launch(),
            grants.end_workers(
                deployment=self._shared.deployment.name, home=self._shared.deployment.region
            ),
            grants.tell_people(topic_arn=self._shared.topic.topic.topic_arn),
        ]

    def _refresh_offers(self) -> list[iam.PolicyStatement]:
        bucket_arn, deployment = self._shared.store.bucket.bucket_arn, self._shared.deployment
        return [
            grants.read_settings(deployment=self._shared.deployment.name),
            see_missing_objects(bucket_arn=bucket_arn),
            grants.keep_offers(bucket_arn=bucket_arn),
            *grants.see_market(home=deployment.region, regions=list(deployment.regions)),
        ]

    def _judge_costs(self) -> list[iam.PolicyStatement]:
        return [
            grants.read_ledger(table_arn=self._shared.ledger.table.table_arn),
            grants.keep_notes(table_arn=self._shared.ledger.table.table_arn),
            grants.see_prices(),
            grants.tell_people(topic_arn=self._shared.topic.topic.topic_arn),
        ]

    def _count_lost(self) -> list[iam.PolicyStatement]:
        queue_arns = [
            arn
            for one in self._workloads
            for arn in (*one.jobs.work_arns, one.jobs.dead_letters.queue_arn)
        ]
        return grants.count_lost(
            bucket_arn=self._shared.store.bucket.bucket_arn,
            table_arn=self._shared.ledger.table.table_arn,
            queue_arns=queue_arns,
        )

    def _renew_messages(self) -> list[iam.PolicyStatement]:
        queue_arns = [arn for one in self._workloads for arn in one.jobs.work_arns]
        return [
            grants.renew_messages(queue_arns),
            grants.remove_queues(deployment=self._shared.deployment.name),
            grants.keep_items(bucket_arn=self._shared.store.bucket.bucket_arn),
        ]

    def _learn_sizes(self) -> list[iam.PolicyStatement]:
        """Return what learning how large jobs are takes, where there are types."""
        bucket_arn = self._shared.store.bucket.bucket_arn
        has_types = any(one.config.has_types for one in self._workloads)
        return [grants.learn_sizes(bucket_arn=bucket_arn)] if has_types else []

    def _bake_images(self) -> list[iam.PolicyStatement]:
        """Return what having images baked takes, where the functions do."""
        names = [one.name for one in self._workloads if one.settings.bake is not None]
        return grants.bake_images(deployment=self._shared.deployment.name) if names else []

    def _launch(self) -> list[iam.PolicyStatement]:
        network, deployment = self._shared.network, self._shared.deployment.name
        fleets = [one.fleet for one in self._workloads]
        templates = [ref.id for fleet in fleets for ref in fleet.template_refs.values()]
        images = [name for fleet in fleets for name in fleet.image_parameters]
        return [
            *grants.use_parts(
                template_ids=templates,
                subnet_arns=network.subnet_arns,
                security_group_id=network.security_group_id,
                owners=self._shared.deployment.image_owners,
                images=images,
            ),
            *grants.use_baked(deployment=deployment, images=images),
            *grants.make_tagged(
                deployment=deployment,
                spot_too=bool(self._shared.deployment.tags),
                has_addresses=self._shared.deployment.public_addresses,
                launched=[
                    grants.bound_launches(
                        one.name,
                        [ref.id for ref in one.fleet.template_refs.values()],
                        one.config.to_requirements(),
                    )
                    for one in self._workloads
                ],
            ),
            *grants.pass_roles(worker_role_arns=[fleet.role.role_arn for fleet in fleets]),
            *grants.encrypt_disks(self._shared.deployment.kms_key_arn),
            grants.resolve_images(images),
        ]
