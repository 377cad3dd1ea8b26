"""4,000 mixed jobs a day for a month: ours beside a pool of one size, bin packing and oracles.

``story`` has the jobs and the market, ``shipped`` runs the product on them, ``rival`` what people
run instead, ``floor`` what anybody could reach who is told only the type. ``python -m
research.scale`` runs all, keeps docs/scale.json and writes docs/scale.md.
"""
