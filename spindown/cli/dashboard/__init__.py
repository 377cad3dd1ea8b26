"""``spindown dashboard``: the deployed dashboards as pages of this machine."""
