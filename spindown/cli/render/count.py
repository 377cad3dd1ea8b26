"""Numbers of things in words."""


def say_count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 job``, ``7,856 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
