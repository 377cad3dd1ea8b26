"""A program of the user with all that descends from it, which ends as one."""
