"""What EC2 offers: the catalogue, refreshed every hour, and the offers on sale now."""

from spindown.control.market.catalogue import (
    CATALOGUE_KEY,
    Refreshed,
    current_catalogue,
    holdable_types,
    limited_catalogue,
    load_catalogue,
    refresh,
    store,
    survey,
    types_on_sale,
    types_within_reach,
    unstored_catalogue,
)
from spindown.control.market.priced_offers import (
    PricedOffers,
    PriceList,
    current_offers,
    price_of,
    price_offers,
    read_prices,
)

__all__ = [
    "CATALOGUE_KEY",
    "PriceList",
    "PricedOffers",
    "Refreshed",
    "current_catalogue",
    "current_offers",
    "holdable_types",
    "limited_catalogue",
    "load_catalogue",
    "price_of",
    "price_offers",
    "read_prices",
    "refresh",
    "store",
    "survey",
    "types_on_sale",
    "types_within_reach",
    "unstored_catalogue",
]
