"""From what is missing to instances: choose offers, walk the list, write outcomes, adopt."""
