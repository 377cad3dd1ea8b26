"""What a job is outside of any process: its message, batch, manifest and results."""
