"""A model of EC2: instances and their lives, pools that run dry, prices, quotas, refusals, bills.

One model for three users: the ports in memory (``spindown.memory``) let tests move it by hand, the
simulator (``spindown.simulator``) plays months in virtual time, and the local system
(``spindown.local``) runs it in real time behind EC2's own wire protocol.

The model does nothing by itself. Time, ids and the capacity of pools are passed in, and what
happens to an instance is a function of a few instants that are known beforehand: when it runs,
when it ends. So whoever uses the model plans for these instants what others must hear of.

Where to begin: ``engine.Ec2`` launches, ends and bills. ``instance`` is one instance, ``listing``
is what is sold: types, zones, prices, quotas. ``agenda`` is virtual time: a clock and a heap of
planned events.
"""

from spindown.ec2sim.agenda import Agenda, MemoryClock, Planned, Turn
from spindown.ec2sim.engine import (
    CapacityLimit,
    Ec2,
    Ec2Bill,
    Ec2Fleet,
    FleetPart,
)
from spindown.ec2sim.instance import (
    Ec2Instance,
    EndReason,
    InstanceState,
    LaunchOrder,
    LaunchTemplate,
    SpotNotice,
    Subnet,
)
from spindown.ec2sim.listing import QUOTAS, Listings, PriceSteps, VcpuQuota, quota_of

__all__ = [
    "QUOTAS",
    "Agenda",
    "CapacityLimit",
    "Ec2",
    "Ec2Bill",
    "Ec2Fleet",
    "Ec2Instance",
    "EndReason",
    "FleetPart",
    "InstanceState",
    "LaunchOrder",
    "LaunchTemplate",
    "Listings",
    "MemoryClock",
    "Planned",
    "PriceSteps",
    "SpotNotice",
    "Subnet",
    "Turn",
    "VcpuQuota",
    "quota_of",
]
