"""What a spot machine is charged at least by how long it lives: who lives shortly saves little.

With reclaims at a rate of l an hour, whoever is alive at age a < 1 - n (n: the notice) is given
notice in the next instant with the chance l da, and is then spared what has been charged and will
be until the notice is over, a + n hours at most. Nobody foresees that, so in the mean over reclaims
(what is spared less this sum is a martingale, and a life is a stopping time) a machine that
lives T hours is charged

    price x (T - l G(T))    at least,    G(T) = ((m + n)^2 - n^2) / 2,    m = min(T, 1 - n)

hours for each life that really comes about, whatever rule has ended it. So a policy's mean bill is
that of its own schedules at these charges at least, and not below the cheapest schedule at them.

G is convex up to 1 - n and constant from there, so G(T) / T is most at the end of a span that
begins at 0, and (l G(T) + s) / T, for any s, at one end of a span from there on. Two lines are thus
below all charges: of *short* lives, up to ``SHORT`` hours, without a surcharge; and of *long* ones,
which are dearer by a surcharge each and cheaper by the hour. A life may choose the cheaper one.
"""

from spindown.domain.notice_time import NOTICE

#: Hours up to which a life is short.
SHORT = 0.4
_NOTICE_HOURS = NOTICE.total_seconds() / 3600.0
_FREE_UNTIL = 1.0 - _NOTICE_HOURS


def spared(hours: float) -> float:
    """Return G: the hours that are spared in the mean, for each reclaim an hour."""
    until = min(hours, _FREE_UNTIL)
    return ((until + _NOTICE_HOURS) ** 2 - _NOTICE_HOURS**2) / 2.0


def short_hour(price: float, reclaims_per_hour: float) -> float:
    """Return the USD that an hour of a short life costs at least.

    Worked: $1 an hour and 0.1 reclaims: 0.977.
    """
    return price * (1.0 - reclaims_per_hour * spared(SHORT) / SHORT)


def long_hour(price: float, reclaims_per_hour: float, surcharge: float) -> float:
    """Return the same of a long life that costs a surcharge in USD besides.

    Worked: $1 an hour, 0.1 reclaims and the surcharge of ``fair_surcharge``: 0.928.
    """
    most = max(
        (reclaims_per_hour * price * spared(hours) + surcharge) / hours
        for hours in (SHORT, _FREE_UNTIL)
    )
    return price - most


def fair_surcharge(price: float, reclaims_per_hour: float) -> float:
    """Return the surcharge in USD with which a long life meets its charge at both ends."""
    rise = (spared(_FREE_UNTIL) - spared(SHORT)) / (_FREE_UNTIL - SHORT)
    return max(0.0, reclaims_per_hour * price * (rise * SHORT - spared(SHORT)))
