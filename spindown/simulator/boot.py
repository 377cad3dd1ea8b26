"""How long boots last, from the launch to the moment at which code has its first item.

A case is composed of a measured phase and of what follows it. Measured are launches of EC2 in 2026
(Spare Cores' inspector): to the begin of user data, or to the end of an install of drivers and
docker. What follows is our own install in a clean root (9 s), the worker's start (3 s), bytes over
the 125 MB a second that a gp3 volume writes (EBS User Guide), and an assumed ``setup`` of the code.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

#: Of a normal distribution: the deviation that 19 of 20 do not exceed.
_Z_95 = 1.645
#: Shortest boot, as a share of the usual one.
_LEAST_BOOT = 1 / 3
#: Spread of boots of which only the usual length is known.
_USUAL_SIGMA = 0.36


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """How long a launch takes to its first item: a shifted lognormal distribution, seconds."""

    at_least: float
    #: Of what comes on top of ``at_least``.
    median: float
    #: Of its logarithm; 0: always the median.
    sigma: float

    def draw(self, random: Random) -> float:
        """Draw the time of one launch."""
        if self.sigma <= 0.0:
            return self.at_least + self.median
        return self.at_least + self.median * random.lognormvariate(0.0, self.sigma)


def fit_boot(p50: float, p95: float | None = None, *, least: float | None = None) -> Boot:
    """Return boots with these quantiles in seconds.

    Args:
        p50: the median.
        p95: the 95th percentile; None: the usual spread.
        least: the shortest of all; None: a third of the median.
    """
    least = p50 * _LEAST_BOOT if least is None else least
    median = max(p50 - least, 1.0)
    if p95 is None:
        return Boot(at_least=least, median=median, sigma=_USUAL_SIGMA)
    sigma = math.log(max((p95 - least) / median, 1.0)) / _Z_95
    return Boot(at_least=least, median=median, sigma=sigma)


#: What an instance starts from -> boots. ``research.rival`` composes them, and its test holds them.
BOOTS: Mapping[str, Boot] = MappingProxyType(
    {
        "baked": fit_boot(39.0, 53.0, least=24.0),
        "bootstrap": fit_boot(90.0, 231.0, least=70.0),
        "model": fit_boot(177.0, 318.0, least=157.0),
    }
)
