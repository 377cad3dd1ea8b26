"""Build the site of the docs into build/site/html, and check that it is whole.

The pages are the Markdown files of the repository, laid out as they are there, so that their links
hold both here and on the site. With them comes each file that a page links to. Zensical renders
them strictly: a link to a page or a heading that is not there ends the build. What it does not
look at is checked after: links to other files, and anything that a browser would load from
elsewhere. Exits 1 with one line for each fault.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
SOURCE, HTML = SITE / "source", SITE / "html"

#: Where pages are.
PAGES = ("*.md", "docs/**/*.md", "research/notes/*.md")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")

#: What draws diagrams; the theme would fetch its own from elsewhere.
MERMAID = ROOT / "node_modules" / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js"
DIAGRAM = "```mermaid"

#: Tags by which a browser loads something by itself -> the attribute that says what.
LOADS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


def main() -> int:
    """Build and check the site; return the exit status."""
    shutil.rmtree(SITE, ignore_errors=True)
    gather(ROOT, SOURCE)
    shutil.copy(MERMAID, SOURCE / MERMAID.name)
    build = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
    done = subprocess.run(
        build,
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    if done.returncode:
        print(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).partition("Traceback")[0])
        return 1
    found = list(faults(HTML))
    print("\n".join(found) or f"The docs are in {HTML.relative_to(ROOT)}.")
    return 1 if found else 0


def gather(root: Path, target: Path) -> None:
    """Copy all pages below ``root`` to ``target``, with the files that they link to."""
    pages = {path for pattern in PAGES for path in root.glob(pattern)}
    linked = {
        (page.parent / link).resolve()
        for page in pages
        for link in LINK.findall(page.read_text(encoding="utf-8"))
    }
    for path in pages | {path for path in linked if path.is_file()}:
        place = target / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        if path in pages and DIAGRAM in path.read_text(encoding="utf-8"):
            up = "../" * (len(path.relative_to(root).parts) - 1)
            with place.open("a", encoding="utf-8") as file:
                file.write(f'\n<script src="{up}{MERMAID.name}"></script>\n')


def faults(html: Path) -> Iterator[str]:
    """Yield what is wrong with a built site: dead links, and loads from elsewhere."""
    for path in sorted(html.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        name = path.relative_to(html)
        yield from (f"{name}: loads {url} from elsewhere" for url in page.loads if is_far(url))
        for url in page.links + page.loads:
            local = unquote(urlsplit(url).path)
            # The page of a missing page may stand at any depth, so its links begin at the root.
            is_ours = not is_far(url) and local and path.name != "404.html"
            if is_ours and not (path.parent / local).exists():
                yield f"{name}: the link {url} leads nowhere"


def is_far(url: str) -> bool:
    """Tell whether an address is not of the site."""
    return bool(urlsplit(url).scheme or urlsplit(url).netloc)


class Page(HTMLParser):
    """Where a page leads, and what a browser loads with it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a tag leads."""
        given = {name: value for name, value in attrs if value}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        # An embedded picture is a part of the page itself.
        elif (url := given.get(LOADS.get(tag, ""), "")) and not url.startswith("data:"):
            self.loads.append(url)


if __name__ == "__main__":
    sys.exit(main())
