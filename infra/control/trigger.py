"""What AWS invokes functions by: ticks, spare ticks, wake-up alarms, and EC2's events.

Commands and other functions wake the scaler besides; ``functions.scaler`` names all that do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_events_targets import LambdaFunction
from constructs import Construct

from spindown.contract.event import TICK
from spindown.contract.name import resource_name
from spindown.domain.notice_time import NOTICE
from spindown.infra.control.function import ControlFunction
from spindown.infra.iam.statement import allow, make_role, regional
from spindown.infra.workload import WorkloadResources

#: EC2's events that concern a worker. EC2 sends them with best effort, and for every instance of
#: the account; the function finds in the ledger whose instance it is.
INSTANCE_EVENTS: Mapping[str, Mapping[str, Any]] = {
    "Warning": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Spot Instance Interruption Warning"],
    },
    "Rebalance": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance Rebalance Recommendation"],
    },
    "StateChange": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["shutting-down", "stopped", "terminated"]},
    },
}

#: How often EventBridge tries to pass such an event on, within the time of a notice.
EVENT_TRIES = 3


@jsii.implements(cloudwatch.IAlarmAction)
class _Invoke:
    """Invokes a function, without a permission for each alarm, which CDK's own action would add.

    Lambda allows 20 KB of permissions for a function, and an alarm needs half a KB (AWS Lambda
    Developer Guide, "Lambda quotas").
    """

    def __init__(self, function: ControlFunction) -> None:
        self._function = function

    def bind(self, _scope: Construct, _alarm: cloudwatch.IAlarm) -> cloudwatch.AlarmActionConfig:
        """Return the action for CloudWatch: the function's ARN."""
        return cloudwatch.AlarmActionConfig(alarm_action_arn=self._function.function.function_arn)


class Triggers(Construct):
    """What wakes the scaler for each workload, an hourly refresh, and three rules of events.

    A workload has the schedule of its ticks, a rule of spare ticks, and an alarm of its queue.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: str,
        workloads: Sequence[WorkloadResources],
        scaler: ControlFunction,
        interruption: ControlFunction,
        offers: ControlFunction,
        failed_events: sqs.IQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        role = self._make_role(deployment, [scaler, offers])
        scaler.function.add_permission(
            "TakeAlarms",
            scope=self,
            principal=iam.ServicePrincipal("lambda.alarms.cloudwatch.amazonaws.com"),
            source_account=Aws.ACCOUNT_ID,
            source_arn=regional("cloudwatch", f"alarm:{resource_name(deployment, '*')}"),
        )
        # One for all, as for alarms: see `_Invoke`.
        scaler.function.add_permission(
            "TakeSpareTicks",
            scope=self,
            principal=iam.ServicePrincipal("events.amazonaws.com"),
            source_account=Aws.ACCOUNT_ID,
            source_arn=regional("events", f"rule/{resource_name(deployment, '*', 'tick')}"),
        )
        for workload in workloads:
            self._schedule(
                f"Tick-{workload.name}",
                name=resource_name(deployment, workload.name, "tick"),
                rate="rate(1 minute)",
                function=scaler,
                role=role,
                event={"source": TICK, "workload": workload.name},
            )
            self._tick_again(deployment, workload, scaler)
            self._watch_queue(deployment, workload, scaler)
        self._schedule(
            "RefreshOffers",
            name=resource_name(deployment, "offers"),
            rate="rate(1 hour)",
            function=offers,
            role=role,
            event={"source": TICK},
        )
        self._pass_events(interruption, failed_events)

    def _pass_events(self, interruption: ControlFunction, failed_events: sqs.IQueue) -> None:
        for name, wanted in INSTANCE_EVENTS.items():
            pattern = events.EventPattern(
                source=wanted["source"],
                detail_type=wanted["detail-type"],
                detail=wanted.get("detail"),
            )
            target = LambdaFunction(
                interruption.function,
                # Where Lambda does not take it at all; what the function fails on, Lambda keeps.
                dead_letter_queue=failed_events,
                retry_attempts=EVENT_TRIES - 1,
                max_event_age=Duration.seconds(NOTICE.total_seconds()),
            )
            events.Rule(self, name, event_pattern=pattern, targets=[target])

    def _make_role(self, deployment: str, functions: Sequence[ControlFunction]) -> iam.Role:
        arns = [one.function.function_arn for one in functions]
        return make_role(
            self,
            what=["tick"],
            description=f"Ticks of {deployment}",
            trusted=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            statements=[allow("InvokeFunctions", ["lambda:InvokeFunction"], arns)],
        )

    def _schedule(
        self,
        construct_id: str,
        *,
        name: str,
        rate: str,
        function: ControlFunction,
        role: iam.Role,
        event: Mapping[str, str],
    ) -> None:
        """Add a schedule that drops late invocations: the next one does everything."""
        target = scheduler.CfnSchedule.TargetProperty(
            arn=function.function.function_arn,
            role_arn=role.role_arn,
            input=Stack.of(self).to_json_string(dict(event)),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_retry_attempts=0, maximum_event_age_in_seconds=60
            ),
        )
        scheduler.CfnSchedule(
            self,
            construct_id,
            name=name,
            schedule_expression=rate,
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=target,
        ).node.add_dependency(role)

    def _tick_again(
        self, deployment: str, workload: WorkloadResources, scaler: ControlFunction
    ) -> None:
        """Tick every few minutes by another service, should the schedule be off or refused.

        EventBridge's rules need no role, and share neither quotas nor state with Scheduler. The
        name is that of the schedule: with a longer one some would have more than 64 characters.
        """
        target = events.CfnRule.TargetProperty(
            id="scaler",
            arn=scaler.function.function_arn,
            input=Stack.of(self).to_json_string({"source": TICK, "workload": workload.name}),
            retry_policy=events.CfnRule.RetryPolicyProperty(
                maximum_retry_attempts=0, maximum_event_age_in_seconds=60
            ),
        )
        events.CfnRule(
            self,
            f"SpareTick-{workload.name}",
            name=resource_name(deployment, workload.name, "tick"),
            description=f"Ticks of {workload.name} should its schedule fail",
            schedule_expression="rate(5 minutes)",
            targets=[target],
        )

    def _watch_queue(
        self, deployment: str, workload: WorkloadResources, scaler: ControlFunction
    ) -> None:
        """Invoke the scaler when a queue begins to hold messages.

        An alarm acts only when its state changes: it is a wake-up, and the tick is the guarantee.
        There is none for messages that wait long: the tick of each minute sees them, and SQS leaves
        those that came back three times out of its age (Amazon SQS Developer Guide, "Available
        CloudWatch metrics").
        """
        cloudwatch.Alarm(
            self,
            f"Backlog-{workload.name}",
            alarm_name=resource_name(deployment, workload.name, "backlog"),
            alarm_description=f"Work waits for {workload.name}: wakes the scaler",
            metric=workload.jobs.queue.metric_approximate_number_of_messages_visible(
                period=Duration.minutes(1), statistic="Maximum"
            ),
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        ).add_alarm_action(_Invoke(scaler))
