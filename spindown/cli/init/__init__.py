"""``spindown init``: a first spindown.toml, by hand or from what the account offers."""
