"""Values on a screen: each module renders, none gathers."""
