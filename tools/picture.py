"""Take the picture of a page: ``python -m tools.picture PAGE PNG [HEIGHT]``; needs Chromium.

The picture of docs/dashboard.md: in a local system that has worked,
``spindown dashboard WORKLOAD --local --since 30m --html page.html``, then this.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT = 1400, 1500
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


def main(arguments: Sequence[str]) -> None:
    """Take a picture, as the command line says."""
    page, picture, *height = arguments
    take(Path(page), Path(picture), *map(int, height))


if __name__ == "__main__":
    main(sys.argv[1:])
