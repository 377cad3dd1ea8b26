"""Count the words of each file."""

from collections.abc import Iterator, Sequence

from spindown.user import Context, Item, Result


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Yield one result an item."""
    for item in batch:
        text = item.path.read_text(errors="replace") if item.path else str(item.value)
        yield Result(item, {"words": len(text.split())})
