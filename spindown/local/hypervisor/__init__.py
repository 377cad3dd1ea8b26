"""Instances as processes: the market decides that one runs, the hypervisor runs its guest."""

from spindown.local.hypervisor.hypervisor import GuestSetup, Hypervisor

__all__ = ["GuestSetup", "Hypervisor"]
