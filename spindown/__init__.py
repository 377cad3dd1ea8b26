"""Spindown: GPUs spin up when work arrives and are gone when it is done."""

__version__ = "0.1.0"
