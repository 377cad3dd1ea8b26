"""The Python interface: send work, follow and fetch it (`spindown docs python`)."""
