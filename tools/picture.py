"""Make the pictures of the docs anew: ``make pictures``; needs Chromium.

With arguments it takes the picture of any page: ``python -m tools.picture PAGE PNG [HEIGHT]``.
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
#: Of the picture of the docs: batches one after the other, files in each, pixels.
BATCHES, FILES, DASHBOARD_HEIGHT = 8, 200, 2330
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


def take(page: Path, picture: Path, height: int = HEIGHT) -> None:
    """Write what a page looks like into a PNG."""
    size = f"--window-size={WIDTH},{height}"
    browse(page.resolve().as_uri(), f"--screenshot={picture.resolve()}", size)


def take_dashboard(directory: Path) -> None:
    """Let a new local system in a directory do batches, and take the picture of its dashboard."""
    work = directory / "work"
    work.mkdir()
    for source in sorted((ROOT / "spindown").rglob("*.py"))[:FILES]:
        shutil.copy(source, work / f"{source.parent.name}-{source.name}")

    def spindown(*arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("spindown")), *arguments]
        return subprocess.run(
            command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    spindown("local", "up", "--config", str(ROOT / "examples/demo.toml"), "--scenario", "demo")
    try:
        place = ("--local", "--deployment", "demo")
        submit = ("submit", "classify", str(work), *place, "--json")
        for _ in range(BATCHES):
            batch = json.loads(spindown(*submit))["batch_id"]
            spindown("results", batch, "--wait", *place)
        spindown("dashboard", "classify", "--since", "15m", "--html", "page.html", *place)
        take(directory / "page.html", ROOT / "docs/dashboard.png", DASHBOARD_HEIGHT)
    finally:
        spindown("local", "down", "--yes")


def main(arguments: Sequence[str]) -> None:
    """Take a picture, as the command line says, or make that of the docs."""
    if not arguments:
        with tempfile.TemporaryDirectory(prefix="picture-") as directory:
            take_dashboard(Path(directory))
        return
    page, picture, *height = arguments
    take(Path(page), Path(picture), *map(int, height))


if __name__ == "__main__":
    main(sys.argv[1:])
