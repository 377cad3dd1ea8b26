"""The inputs of a simulation: past traffic and past prices, from files, from AWS or made up."""
