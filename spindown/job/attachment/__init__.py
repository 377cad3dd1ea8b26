"""What goes along with a job besides its results: the user's own state, the output of its code."""
