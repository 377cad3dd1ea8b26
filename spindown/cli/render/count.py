"""Numbers of things in words."""


def say_count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 job``, ``7,856 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def say_items(done: int, failed: int, of: int | None) -> str:
    """Return how many items are done, and how many have failed: ``4/9 items done, 2 failed``."""
    what = f"{done:,}/{say_count(of, 'item')}" if of is not None else say_count(done, "item")
    return f"{what} done" + (f", {failed:,} failed" if failed else "")


def say_waiting(jobs: int) -> str:
    """Return how many jobs wait: ``1 job waits``, ``40 jobs wait``."""
    return f"{say_count(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}"
