"""A batch from its side of the queue: submit it, read what came of it."""
