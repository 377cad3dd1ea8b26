"""An outpost stack: all that workers need in another region, and what home needs to use it."""

import json
from collections.abc import Sequence

from aws_cdk import Aws, IStackSynthesizer
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spindown.config import DeploymentConfig
from spindown.contract import tag
from spindown.contract.codec import encode
from spindown.contract.name import failed_events_name, resource_name
from spindown.contract.settings import RegionSettings, outpost_parameter
from spindown.domain.notice_time import NOTICE
from spindown.infra.control.bundle import FunctionBundle, Target
from spindown.infra.control.teardown import Teardown
from spindown.infra.control.trigger import EVENT_TRIES, INSTANCE_EVENTS
from spindown.infra.flow_log import log_connections
from spindown.infra.iam import control as grants
from spindown.infra.iam.limit import split_statements
from spindown.infra.iam.statement import allow, make_role
from spindown.infra.observability.alarm import make_alarm, unsent_events
from spindown.infra.shared.network import Network
from spindown.infra.shared.resources import AlarmTopic, keep_failed_events, take_events, teller
from spindown.infra.shared.stack import DeploymentStack, iam_name
from spindown.infra.template import add_templates, refs_of
from spindown.infra.workload import WorkloadResources


class OutpostStack(DeploymentStack):
    """``{deployment}-outpost-{region}``: network, templates, grants, and events sent home.

    It refers to the home region by names, and describes itself in a parameter of its own region. So
    neither stack holds a value that only the deploy of the other one knows.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        deployment: DeploymentConfig,
        region: str,
        workloads: Sequence[WorkloadResources],
        target: Target,
        synthesizer: IStackSynthesizer,
    ) -> None:
        """Describe the outpost in ``region`` for the workloads of the core stack."""
        super().__init__(
            scope,
            deployment=deployment,
            part=f"outpost-{region}",
            holds=f"workers in {region}",
            synthesizer=synthesizer,
            region=region,
        )
        self._deployment = deployment
        self._workloads = workloads
        place = deployment.regions[region]
        placed = {
            "region": region,
            "zones": place.zones,
            "network": place.network,
            "egress": place.egress,
        }
        here = deployment.model_copy(update=placed)
        self._network = Network(self, "Network", deployment=here)
        log_connections(self, self._network, here)
        # What instances need until they have ended, and what launches them, which is deleted first.
        self._stays = Construct(self, "Stay")
        self._use = Construct(self, "Use")
        launched = [self._add_workload(workload) for workload in workloads]
        self._grant("Reconcile", ["scaler", "interruption"], self._reconcile(launched))
        self._grant("Offers", ["offers"], [self._read_outposts(), *self._see_market()])
        self._send_events_home()
        self._end_fleet_first(FunctionBundle(target))

    def _add_workload(self, workload: WorkloadResources) -> grants.Launched:
        """Add a workload's templates and the parameter that names them."""
        name, deployment = workload.name, self._deployment
        profile = f"{deployment.role_path or '/'}{iam_name(deployment, name)}"
        templates = add_templates(
            Construct(self._stays, f"Workload-{name}"),
            name=resource_name(deployment.name, name),
            workload=workload.config,
            images=workload.fleet.images,
            profile_arn=f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:instance-profile{profile}",
            security_group_id=self._network.security_group_id,
            # The launch request adds the tags that say where home is.
            tags={key: text for key, text in workload.fleet.tags.items() if key not in tag.HOME},
            user_data=workload.fleet.user_data,
        )
        refs = refs_of(templates)
        place = RegionSettings(subnets=self._network.subnets, templates=refs)
        ssm.CfnParameter(
            self._use,
            f"Outpost-{name}",
            name=outpost_parameter(deployment.name, name),
            type="String",
            value=json.dumps(encode(place)),
        )
        return grants.bound_launches(
            name, [ref.id for ref in refs.values()], workload.config.to_requirements()
        )

    def _grant(
        self, construct_id: str, functions: Sequence[str], statements: list[iam.PolicyStatement]
    ) -> None:
        """Attach the statements, in as few policies as hold them, to roles of the home region."""
        for number, part in enumerate(split_statements(self, statements), 1):
            iam.CfnManagedPolicy(
                self._use,
                construct_id if number == 1 else f"{construct_id}{number}",
                description=f"What {' and '.join(functions)} may do in this region",
                policy_document=iam.PolicyDocument(statements=part),
                roles=[iam_name(self._deployment, function) for function in functions],
            )

    def _read_outposts(self) -> iam.PolicyStatement:
        names = [workload.name for workload in self._workloads]
        return grants.read_outposts(deployment=self._deployment.name, workloads=names)

    def _see_market(self) -> list[iam.PolicyStatement]:
        """Allow reading the market here; home already grants list prices and quotas."""
        return [grants.see_types(), grants.see_prices()]

    def _reconcile(self, launched: Sequence[grants.Launched]) -> list[iam.PolicyStatement]:
        """Return what a tick may do here; home already grants passing the workers' roles."""
        deployment, network = self._deployment.name, self._network
        images = [name for one in self._workloads for name in one.fleet.image_parameters]
        return [
            self._read_outposts(),
            *self._see_market(),
            grants.see_instances(),
            *grants.use_parts(
                template_ids=[id_ for one in launched for id_ in one.template_ids],
                subnet_arns=network.subnet_arns,
                security_group_id=network.security_group_id,
                owners=self._deployment.image_owners,
                images=images,
            ),
            *grants.make_tagged(
                deployment=deployment,
                launched=launched,
                spot_too=bool(self._deployment.tags),
                has_addresses=self._deployment.public_addresses,
            ),
            *grants.encrypt_disks(self.key_arn),
            grants.resolve_images(images),
            grants.end_workers(deployment=deployment, home=self._deployment.region),
        ]

    def _send_events_home(self) -> None:
        """Send events of instances to the event bus at home, where rules match them.

        What does not come there is kept for a person to read: nothing else would tell of it.

        A bus accepts the events of its own account. Events to another region need a role (Amazon
        EventBridge User Guide, "Sending and receiving events between AWS Regions").
        """
        bus_arn = (
            f"arn:{Aws.PARTITION}:events:{self._deployment.region}:{Aws.ACCOUNT_ID}"
            ":event-bus/default"
        )
        role = make_role(
            Construct(self._stays, "Sender"),
            what=["sender"],
            description=f"Sends events of instances to {self._deployment.region}",
            trusted=iam.ServicePrincipal(
                "events.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            statements=[allow("SendEventsHome", ["events:PutEvents"], [bus_arn])],
        )
        name = failed_events_name(self._deployment.name)
        queue = keep_failed_events(self._stays, name=name)
        home = events.CfnRule.TargetProperty(
            id="home",
            arn=bus_arn,
            role_arn=role.role_arn,
            retry_policy=events.CfnRule.RetryPolicyProperty(
                maximum_retry_attempts=EVENT_TRIES - 1,
                maximum_event_age_in_seconds=NOTICE.total_seconds(),
            ),
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=queue.queue_arn),
        )
        rules = [
            events.CfnRule(
                self._stays,
                name,
                description=f"Tells {self._deployment.region}: {pattern['detail-type'][0]}",
                event_pattern=pattern,
                targets=[home],
            )
            for name, pattern in INSTANCE_EVENTS.items()
        ]
        take_events(queue, "KeepFailedEvents", rules)
        if self._deployment.alarm_email is not None or self._reaches_webhook:
            self._tell_of_failed_events()

    @property
    def _reaches_webhook(self) -> bool:
        """Tell whether there is a webhook, and SNS here calls its function, which is at home."""
        deployment = self._deployment
        is_called = bool(teller(self.region, home=deployment.region))
        return deployment.alarm_webhook is not None and is_called

    def _tell_of_failed_events(self) -> None:
        """Add an alarm of that queue, and a topic: an alarm rings in its own region alone.

        So AWS asks the address to confirm this topic as well. A function may be told from another
        region (Amazon SNS Developer Guide, "Cross-region delivery").
        """
        deployment = self._deployment
        topic = AlarmTopic(
            self._stays, "Alarms", deployment=deployment.name, email=deployment.alarm_email
        ).topic
        if self._reaches_webhook:
            function = f"function:{resource_name(deployment.name, 'webhook')}"
            sns.Subscription(
                self._stays,
                "ToWebhook",
                topic=topic,
                protocol=sns.SubscriptionProtocol.LAMBDA,
                endpoint=f"arn:{Aws.PARTITION}:lambda:{deployment.region}:{Aws.ACCOUNT_ID}:"
                + function,
            )
        definition = unsent_events(deployment.name, region=self.region, home=deployment.region)
        make_alarm(self._stays, definition, prefix=deployment.name, topic=topic)

    def _end_fleet_first(self, bundle: FunctionBundle) -> None:
        """End every instance here before anything that it needs is deleted.

        The ledger is at home, so no lock stops launches. But home launches nothing here without its
        grants and templates, which are deleted first.
        """
        try:
            teardown = Teardown(
                self,
                "Teardown",
                deployment=self._deployment.name,
                home=self._deployment.region,
                workloads=[workload.name for workload in self._workloads],
                code=bundle.code,
            )
        except RuntimeError as exc:
            raise bundle.failure or exc from exc
        teardown.outlive(self._network, self._stays)
        teardown.go_after(self._use)
        # By then home may not launch into a subnet that is removed.
        teardown.end_with_subnets(list(self._network.subnets.values()), after=self._use)
