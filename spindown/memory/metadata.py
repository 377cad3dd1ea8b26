"""The metadata of one instance in memory: who it is, and what EC2 has announced to it."""

from datetime import datetime

from spindown.port import Identity


class MemoryMetadata:
    """Metadata in memory; a test or ``MemoryCompute`` announces."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._interruption: datetime | None = None
        self._rebalance: datetime | None = None

    def identity(self) -> Identity:
        """Return who we are."""
        return self._identity

    def interruption(self) -> datetime | None:
        """Return when EC2 takes the instance away, once announced."""
        return self._interruption

    def rebalance(self) -> datetime | None:
        """Return when a rebalance recommendation was given, if one was."""
        return self._rebalance

    def announce_interruption(self, at: datetime) -> None:
        """Announce that EC2 takes the instance away at an instant."""
        self._interruption = at

    def recommend_rebalance(self, at: datetime) -> None:
        """Give a rebalance recommendation."""
        self._rebalance = at
