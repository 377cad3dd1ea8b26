"""Tell before a launch whether it can work: what was found, what is needed, and the remedy.

``subject`` says what is examined, by spindown.toml or as deployed. ``fact`` asks the account and
the market. ``check`` judges the facts. ``examine`` runs the three steps and returns a ``finding``
for each thing. ``survey`` lists what a region offers, for `spindown init`.
"""
