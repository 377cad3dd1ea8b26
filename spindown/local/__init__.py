"""The deployed template, run on this machine."""
