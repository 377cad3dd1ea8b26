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
from spindown.control.market.sale import (
    PriceList,
    Sale,
    current_sale,
    price_of,
    read_prices,
    sale_of,
)

__all__ = [
    "CATALOGUE_KEY",
    "PriceList",
    "Refreshed",
    "Sale",
    "current_catalogue",
    "current_sale",
    "limited_catalogue",
    "load_catalogue",
    "price_of",
    "read_prices",
    "refresh",
    "sale_of",
    "store",
    "survey",
    "types_on_sale",
    "unstored_catalogue",
]
