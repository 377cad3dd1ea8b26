"""Batches of jobs: submit, read results, cancel, redrive, and resend old messages."""
