"""The process in which the user's code runs, and both ends of the line to it."""
