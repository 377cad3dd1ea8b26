"""Numbers of things in words."""

from spindown.reason_text import say_count


def say_items(done: int, failed: int, of: int | None) -> str:
    """Return how many items are done, and how many have failed: ``4/9 items done, 2 failed``."""
    what = f"{done:,}/{say_count(of, 'item')}" if of is not None else say_count(done, "item")
    return f"{what} done" + (f", {failed:,} failed" if failed else "")


def say_waiting(jobs: int) -> str:
    """Return how many jobs wait: ``1 job waits``, ``40 jobs wait``."""
    return f"{say_count(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}"
