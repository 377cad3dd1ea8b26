"""The ledger: one DynamoDB table of live control state and recent history."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

#: Finds the worker row of an instance; keys only, a consistent read of the row follows.
INSTANCE_INDEX = "instance"


class Ledger(Construct):
    """The table ``{deployment}-ledger``.

    It goes with the stack: DynamoDB keeps a backup of a deleted table for 35 days where
    point-in-time recovery was on (Amazon DynamoDB Developer Guide, "Point-in-time recovery").
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: str) -> None:
        super().__init__(scope, construct_id)
        self.table = dynamodb.TableV2(
            self,
            "Table",
            table_name=f"{deployment}-ledger",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires",
            removal_policy=RemovalPolicy.DESTROY,
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name=INSTANCE_INDEX,
                    partition_key=dynamodb.Attribute(
                        name="instance_id", type=dynamodb.AttributeType.STRING
                    ),
                    projection_type=dynamodb.ProjectionType.KEYS_ONLY,
                )
            ],
        )
