"""What can be bought: instance types, offers at a whole price, quotas, and what fits a workload."""

from spindown.domain.offer.catalogue import (
    GP3_PRICE_PER_GIB_MONTH,
    HOURS_PER_MONTH,
    LIST_PRICES_TRUSTED_FOR,
    PUBLIC_IPV4_PRICE_PER_HOUR,
    REGION_TRANSFER_PRICE_PER_GIB,
    Catalogue,
    SpotPrice,
    build_offers,
    extra_price_per_hour,
    trusted,
)
from spindown.domain.offer.offer import (
    InstanceType,
    Offer,
    Pool,
    Requirements,
    slot_count,
)
from spindown.domain.offer.quota import QUOTA_CODES, CapacityType, Quota, quota_class

__all__ = [
    "GP3_PRICE_PER_GIB_MONTH",
    "HOURS_PER_MONTH",
    "LIST_PRICES_TRUSTED_FOR",
    "PUBLIC_IPV4_PRICE_PER_HOUR",
    "QUOTA_CODES",
    "REGION_TRANSFER_PRICE_PER_GIB",
    "CapacityType",
    "Catalogue",
    "InstanceType",
    "Offer",
    "Pool",
    "Quota",
    "Requirements",
    "SpotPrice",
    "build_offers",
    "extra_price_per_hour",
    "quota_class",
    "slot_count",
    "trusted",
]
