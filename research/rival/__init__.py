"""Rivals at their best setting, beside ours as it is shipped, under measured boots."""
