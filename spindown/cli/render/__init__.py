"""Values on a screen or a plot: each module renders, none gathers."""
