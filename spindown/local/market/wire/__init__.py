"""The wire: ASGI, EC2's query protocol and JSON 1.1, driven by botocore's own service models."""
