"""What work needs of a machine, by what it has used: a size for each type, or for the workload."""
