"""The operations that the market owns, a table for each service; all others go upstream."""

from spindown.local.market.operation import instance, launch, offer, pricing, quota

EC2 = {
    **instance.OPERATIONS,
    **launch.OPERATIONS,
    **offer.OPERATIONS,
}
PRICING = pricing.OPERATIONS
QUOTA = quota.OPERATIONS
