"""Read all that a tick decides by: rows, queue, EC2 and, where it matters, prices."""
