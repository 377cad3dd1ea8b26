"""What EC2 offers, at what price, and how often it takes an instance back."""

from spindown.aws.market.market import CHANGES_AT_MOST, PRICING_REGION, Ec2Market

__all__ = ["CHANGES_AT_MOST", "PRICING_REGION", "Ec2Market"]
