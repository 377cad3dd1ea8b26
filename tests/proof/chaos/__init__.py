"""The local system under attack: real processes, real signals, and a check of what came of it."""
