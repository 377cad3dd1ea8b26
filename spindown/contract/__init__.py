"""What crosses a process or outlives one: versioned models and their codecs."""
