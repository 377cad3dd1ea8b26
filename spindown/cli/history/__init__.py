"""Past traffic and past prices, from files, from AWS or made up: what a simulation is fed with."""
