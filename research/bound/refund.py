"""What of the hours of a spot instance is free in the mean for who cannot foresee reclaims.

Reclaims come at a rate that does not depend on the past. A rule that ends an instance sees its age
and whether EC2 has given notice, not when it will. So in the mean nobody does better than by ending
it at some age T, unless EC2 takes it before. Let l be the rate an hour and n the notice in hours.
For T <= 1 - n it is charged for T if no notice comes before, else for nothing, and then it lives
until the notice is over:

    charged(T) = T e^-lT        lived(T) = (1/l + n) (1 - e^-lT)

Whom notice comes to after 1 - n is charged; so for T from there to 1 both grow by e^-l(1-n) for
each hour of T, and beyond the first hour everything is charged.

With b hours of a boot, charged / (lived - b) is least where T is 1 - n or 1, or is 1: up to 1 - n
it falls with T, since x / (e^x - 1) does and lived grows; from there to 1 it is a quotient of
linear functions of T, so it is least at an end; beyond 1 both grow alike.

For every such rule, then: mean charge >= (1 - share) x price x mean hours of work. Summed over the
launches of a policy, its bill is in the mean not below that of its own schedule at that price, and
so not below that of the cheapest schedule of the same traffic. Within the first hour, in which
alone it refunds, EC2 charges the price of its beginning, so the mean above holds where prices move.
That a machine may thus pay a price of up to an hour ago, ``supply`` takes note of.
"""

import math

from spindown.domain.notice_time import NOTICE

_NOTICE_HOURS = NOTICE.total_seconds() / 3600.0


def refund_share(reclaims_per_hour: float, boot_hours: float = 0.0) -> float:
    """Return the largest mean share of its working hours that a spot instance does not pay for.

    Args:
        reclaims_per_hour: the rate at which EC2 takes such an instance.
        boot_hours: paid like work, and none.

    Worked: a rate of 0.1 gives 0.051, and 0.024 with a boot of 90 s.
    """
    if reclaims_per_hour <= 0.0:
        return 0.0
    free_until = 1.0 - _NOTICE_HOURS
    stays = math.exp(-reclaims_per_hour * free_until)
    lived = (1.0 / reclaims_per_hour + _NOTICE_HOURS) * (1.0 - stays) - boot_hours
    least = 1.0
    for more in (0.0, _NOTICE_HOURS):
        works = lived + more * stays
        if works > 0.0:
            least = min(least, (free_until + more) * stays / works)
    return 1.0 - least
