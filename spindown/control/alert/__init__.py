"""What people are told: what is wrong, since when, and what to do about it."""
