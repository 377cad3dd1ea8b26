"""The account, asked through the services that each know a part of it."""

from spindown.aws.account.account import FREE_TIER_REGION, AwsAccount, Clients

__all__ = ["FREE_TIER_REGION", "AwsAccount", "Clients"]
