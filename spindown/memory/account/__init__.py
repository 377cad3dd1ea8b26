"""The account in memory: as good as new and well, until a test takes something away."""

from spindown.memory.account.account import MemoryAccount

__all__ = ["MemoryAccount"]
