"""Jobs and batches: send them, see what came of them, cancel them, send them back."""
