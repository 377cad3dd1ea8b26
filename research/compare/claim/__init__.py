"""What is claimed beside the ratio to the bounds: against others, and in what else it costs."""
