"""What judges the product and is no part of it: bounds, rare baselines, the comparison."""
