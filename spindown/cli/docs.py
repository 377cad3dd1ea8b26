"""``spindown docs``: the documentation that this version brings along."""

from difflib import get_close_matches
from pathlib import Path
from pydoc import pager
from typing import Annotated

import typer

import spindown
from spindown.cli.render.line import print_line
from spindown.error import BadInput, NotFound

#: In a checkout a link to the folder at the top; in a wheel its pages.
FOLDER = Path(spindown.__file__).with_name("docs")
#: The site's menu, whose order is that of reading.
_MENU = FOLDER.resolve().with_name("zensical.toml")


def docs(
    page: Annotated[
        str | None, typer.Argument(help="Such as quickstart, settings, adr/0008-ranking.")
    ] = None,
    *,
    path: Annotated[
        bool, typer.Option("--path", help="Print where it lies, in place of its text.")
    ] = False,
) -> None:
    """Show a page of the documentation, or list all. Asks nobody."""
    if not FOLDER.is_dir():
        raise NotFound("the pages are not installed: install the wheel again")
    menu = _MENU.read_text(encoding="utf-8")
    in_order = sorted(FOLDER.glob("*.md"), key=lambda each: menu.find(f'"docs/{each.name}"'))
    pages = {each.stem: each for each in in_order}
    if page is None:
        if path:
            print_line(str(FOLDER))
            return
        for name, file in pages.items():
            print_line(f"{name:14}{_title(file)}")
        return
    name = page.partition("#")[0].removeprefix("docs/").removesuffix(".md")
    found = pages.get(name) or pages_below("adr").get(name)
    if found is None:
        near = get_close_matches(name, pages, n=3, cutoff=0.4)
        remedy = f"name {' or '.join(near)}" if near else "`spindown docs` lists all"
        raise BadInput("PAGE", page, remedy)
    if path:
        print_line(str(found))
    else:
        pager(found.read_text(encoding="utf-8"))


def pages_below(folder: str) -> dict[str, Path]:
    """Return the pages of a folder of the docs, by name."""
    return {f"{folder}/{each.stem}": each for each in sorted(FOLDER.glob(f"{folder}/*.md"))}


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next((x.removeprefix("# ").strip() for x in lines if x.startswith("# ")), "")
