"""Traffic and a market of our own making, so that a simulation needs no data of anybody's."""

from spindown.simulator.sample.market import sample_market
from spindown.simulator.sample.traffic import daily_stream, office_batches, rare_bursts

__all__ = ["daily_stream", "office_batches", "rare_bursts", "sample_market"]
