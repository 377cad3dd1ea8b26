"""Decide what a tick does: each module adds its actions to a draft, and changes nothing else."""
