"""Carry out a plan under the fence."""
