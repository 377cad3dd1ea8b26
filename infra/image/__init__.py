"""What turns an instance into a worker: the kit, and images that are baked with it."""
