"""Make the pictures of the docs anew: ``make pictures``; needs Chromium, takes some minutes.

With a name, ``dashboard`` or ``simulate``, it makes that one. The table of ``simulate`` is printed,
since docs/simulate.md shows the same figures. With more arguments it takes the picture of any page:
``python -m tools.picture PAGE PNG [HEIGHT]``.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 1400, 1500
#: Of the picture of the dashboard: batches one after the other, files in each, pixels.
BATCHES, FILES, DASHBOARD_HEIGHT = 8, 200, 2330
#: Of the picture of `simulate`: as docs/simulate.md has it, the part of its page, pixels.
SIMULATE = ("simulate", "--against", "warm,asg-backlog,batch,classic")
PART = ("<h2>Cost against delay</h2>", "<h2>Queue and fleet over time</h2>")
SIMULATE_WIDTH, SIMULATE_HEIGHT = 1040, 1300
#: A browser that calls nobody.
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


def browse(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Open an address in a new profile (raises FileNotFoundError without a Chromium)."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise FileNotFoundError("install chromium (apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="picture-", ignore_cleanup_errors=True) as profile:
        return subprocess.run(
            [browser, *QUIET, f"--user-data-dir={profile}", *options, address],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )


def take(page: Path, picture: Path, height: int = HEIGHT, width: int = WIDTH) -> None:
    """Write what a page looks like into a PNG."""
    size = f"--window-size={width},{height}"
    browse(page.resolve().as_uri(), f"--screenshot={picture.resolve()}", size)


def spindown(directory: Path, *arguments: str) -> str:
    """Run a command in a directory; return what it prints."""
    command = [str(Path(sys.executable).with_name("spindown")), *arguments]
    return subprocess.run(
        command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def take_dashboard(directory: Path) -> None:
    """Let a new local system in a directory do batches, and take the picture of its dashboard."""
    work = directory / "work"
    work.mkdir()
    for source in sorted((ROOT / "spindown").rglob("*.py"))[:FILES]:
        shutil.copy(source, work / f"{source.parent.name}-{source.name}")

    up = ("local", "up", "--config", str(ROOT / "examples/demo.toml"), "--scenario", "demo")
    spindown(directory, *up)
    try:
        place = ("--local", "--deployment", "demo")
        submit = ("submit", "classify", str(work), *place, "--json")
        before = json.loads(spindown(directory, *submit))["batch_id"]
        for _ in range(BATCHES - 1):
            batch = json.loads(spindown(directory, *submit))["batch_id"]
            spindown(directory, "results", before, "--wait", *place)
            before = batch
        page = ("dashboard", "classify", "--since", "15m", "--html", "page.html")
        spindown(directory, *page, *place)
        take(directory / "page.html", ROOT / "docs/dashboard.png", DASHBOARD_HEIGHT)
    finally:
        spindown(directory, "local", "down", "--yes")


def take_simulate(directory: Path) -> None:
    """Simulate as docs/simulate.md does, print the table, and take two plots of the page."""
    page = directory / "page.html"
    print(spindown(directory, *SIMULATE, "--html", page.name))
    cut(page)
    take(page, ROOT / "docs/simulate.png", SIMULATE_HEIGHT, SIMULATE_WIDTH)


def cut(page: Path) -> None:
    """Leave of a page of `simulate` the two plots of the docs."""
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(PART[0])
    plots, end, _ = rest.partition(PART[1])
    if not end:
        raise ValueError(f"the page has no {PART[0] if not begin else PART[1]}: mend PART")
    top = head[: head.index("<main>") + len("<main>")]
    page.write_text(f"{top}{begin}{plots}</main></body></html>", encoding="utf-8")


PICTURES = {"dashboard": take_dashboard, "simulate": take_simulate}


def main(arguments: Sequence[str]) -> None:
    """Take a picture, as the command line says, or make those of the docs."""
    if len(arguments) > 1:
        page, picture, *height = arguments
        take(Path(page), Path(picture), *map(int, height))
        return
    for name in arguments or PICTURES:
        with tempfile.TemporaryDirectory(prefix="picture-") as directory:
            PICTURES[name](Path(directory))


if __name__ == "__main__":
    main(sys.argv[1:])
