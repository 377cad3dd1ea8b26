"""A discrete-event simulator that runs the shipped code in virtual time, over ports in memory.

The judge of the policy: what a month of a given traffic on a given market costs, and how long
work waits. Nothing of the control plane or of what a worker does with a job is modelled; it is
the code that runs on AWS.

Where to begin: ``scenario`` is what goes in and ``result`` what comes out; ``run`` turns the crank.
``agenda`` is the heap of events with the clock. ``world`` puts the ports together: ``compute`` is
EC2 (over ``spindown.memory``, which knows prices and bills), ``poll_queue`` the polls at the queue,
``table`` a quicker table. ``worker`` does in events what ``worker.daemon``, ``worker.slot`` and
``worker.attempt`` do in threads. ``record`` takes notes of all. ``fault`` is what goes wrong,
``sample`` makes traffic and markets, ``baseline`` is what people run instead.
"""

from spindown.simulator.baseline import (
    BASELINES,
    OURS_ON_DEMAND,
    Baseline,
    on_demand_only,
    simulate_baseline,
)
from spindown.simulator.boot import BOOTS, Boot, fit_boot
from spindown.simulator.fault import Alarm, Faults
from spindown.simulator.result import Quantiles, Sample, SimResult
from spindown.simulator.run import Run, simulate
from spindown.simulator.scenario import (
    Arrival,
    Listing,
    SimDelays,
    SimScenario,
    TrueNeed,
    Zone,
)

__all__ = [
    "BASELINES",
    "BOOTS",
    "OURS_ON_DEMAND",
    "Alarm",
    "Arrival",
    "Baseline",
    "Boot",
    "Faults",
    "Listing",
    "Quantiles",
    "Run",
    "Sample",
    "SimDelays",
    "SimResult",
    "SimScenario",
    "TrueNeed",
    "Zone",
    "fit_boot",
    "on_demand_only",
    "simulate",
    "simulate_baseline",
]
