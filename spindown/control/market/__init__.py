"""What EC2 offers: the catalogue, refreshed every hour, and the offers on sale now."""

from spindown.control.market.catalogue import (
    CATALOGUE_KEY,
    Refreshed,
    current_catalogue,
    limited_catalogue,
    load_catalogue,
    refresh,
    store,
    survey,
    types_on_sale,
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
    "limited_catalogue",
    "load_catalogue",
    "price_of",
    "price_offers",
    "read_prices",
    "refresh",
    "store",
    "survey",
    "types_on_sale",
    "unstored_catalogue",
]
