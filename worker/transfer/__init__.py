"""What goes between S3 and this machine beside the computing: inputs, commits, the user's state."""
