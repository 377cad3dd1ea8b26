"""The comparison on a terminal: who costs what, and what was aimed at."""

import re

from rich.console import Console
from rich.markdown import Markdown

_SHOWN = ("A promise of 10 minutes", "Targets")
#: Columns that the table of all baselines needs where no terminal says how many there are.
_WIDTH = 180


def show(page: str) -> None:
    """Print the tables of a page that most want to see; the others stay in its file."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    parts = re.split(r"^## ", page, flags=re.MULTILINE)
    for title in _SHOWN:
        console.print(*(Markdown(f"## {part}") for part in parts if part.startswith(title)))
