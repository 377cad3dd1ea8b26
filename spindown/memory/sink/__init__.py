"""What is told to the outside, in memory: kept to be looked at."""
