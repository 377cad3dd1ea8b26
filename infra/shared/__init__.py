"""What several stacks of a deployment use."""
