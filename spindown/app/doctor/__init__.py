"""Whether a launch can work, found out before one has to: what, found, needed, remedy.

``subject`` says what is to be examined, by spindown.toml or as deployed; ``fact`` asks the
account and the market; ``account``, ``market`` and ``place`` judge facts and ask nothing;
``examine`` puts it together.
"""
