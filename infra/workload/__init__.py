"""One workload of a deployment: its queue, its code, its fleet."""
