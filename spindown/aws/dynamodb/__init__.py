"""The ledger's table on DynamoDB."""

from spindown.aws.dynamodb.table import DynamoTable

__all__ = ["DynamoTable"]
