"""What EC2 offers: the catalogue, refreshed every hour, and the offers on sale now."""

from spindown.app.offers.catalogue import (
    CATALOGUE_KEY,
    Refreshed,
    current_catalogue,
    load_catalogue,
    refresh,
    survey,
)
from spindown.app.offers.sale import Sale, current_sale, price_now

__all__ = [
    "CATALOGUE_KEY",
    "Refreshed",
    "Sale",
    "current_catalogue",
    "current_sale",
    "load_catalogue",
    "price_now",
    "refresh",
    "survey",
]
