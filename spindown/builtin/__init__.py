"""Code of workloads that Spindown brings: deployed like a user's own, chosen by no message."""
