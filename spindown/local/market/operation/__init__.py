"""The operations that the market owns, a table for each service; all others go upstream."""

from spindown.local.market.operation import fleet, instance, offer, pricing, quota, run, tag

EC2 = {
    **fleet.OPERATIONS,
    **instance.OPERATIONS,
    **offer.OPERATIONS,
    **run.OPERATIONS,
    **tag.OPERATIONS,
}
PRICING = pricing.OPERATIONS
QUOTA = quota.OPERATIONS
