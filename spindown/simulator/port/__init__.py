"""Ports of a simulation, where those in memory would take too long for a month."""

from spindown.simulator.port.table import SimTable

__all__ = ["SimTable"]
