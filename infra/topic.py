"""Where alarms go: one topic, and whoever spindown.toml names."""

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct


class AlarmTopic(Construct):
    """The topic ``{deployment}-alarms``; AWS asks the address of a subscription to confirm.

    CloudWatch's alarms tell it, and so do the functions, in their own words.

    It is not encrypted: CloudWatch publishes to an encrypted topic only through a key of our
    own, which costs 1 USD a month, and the texts hold names and settings, no secret.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, deployment: str, email: str | None
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=f"{deployment}-alarms",
            display_name=f"Spindown {deployment}",
            enforce_ssl=True,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="TakeAlarms",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        if email is not None:
            sns.Subscription(
                self,
                "Email",
                topic=self.topic,
                protocol=sns.SubscriptionProtocol.EMAIL,
                endpoint=email,
            )
