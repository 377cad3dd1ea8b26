"""The operations that the market owns, a table for each service; all others go upstream."""

from spindown.local.market.operation import instance, launch, offer
from spindown.local.market.operation.pricing import PRICING, QUOTA

EC2 = {**instance.OPERATIONS, **launch.OPERATIONS, **offer.OPERATIONS}

__all__ = ["EC2", "PRICING", "QUOTA"]
