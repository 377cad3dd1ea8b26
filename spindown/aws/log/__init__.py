"""What a worker sends to CloudWatch Logs: lines, and metrics in the embedded metric format."""
