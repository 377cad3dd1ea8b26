"""The page of a simulation: one HTML file with its plots inside, for a browser without network."""
