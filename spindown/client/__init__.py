"""The Python interface: work is sent, followed and fetched by a program (docs/python.md)."""
