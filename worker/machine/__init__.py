"""What the worker asks of its machine before it takes work."""
