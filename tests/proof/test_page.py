"""The page of ``spindown simulate``, opened in a real browser that has no network.

Needs Debian's ``chromium``; without it the test fails with one sentence.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from spindown.cli.main import main

pytestmark = pytest.mark.proof

WIDTH, HEIGHT = 1100, 4200
#: Parts of the picture, by their share of its height: each has something to see.
BANDS = 6
#: Of the plots: work, boots, idle time.
COLOURS = ((0, 114, 178), (230, 159, 0), (182, 190, 199))


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("The page was not opened: install chromium (apt-get install chromium).")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    traffic = root / "traffic.csv"
    rows = [
        f"2026-06-0{day}T{hour:02}:{minute:02}:00Z,60,6"
        for day in (1, 2)
        for hour in range(9, 16)
        for minute in (0, 5, 40)
    ]
    traffic.write_text("timestamp,items,item_seconds\n" + "\n".join(rows), encoding="utf-8")
    found = root / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--arrivals", str(traffic), "--html", str(found)])
    assert not ended.value.code
    return found


def browse(chromium: str, page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            chromium,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={WIDTH},{HEIGHT}",
            *arguments,
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_browser_shows_the_page_without_a_complaint(chromium: str, page: Path) -> None:
    done = browse(chromium, page, "--dump-dom")

    # What a page does wrong is told as CONSOLE; the rest is a browser missing its desktop.
    assert "CONSOLE" not in done.stderr
    assert done.stdout.count("<svg ") == 4
    assert not re.search(r"parsererror|NaN|undefined", done.stdout)


def test_every_part_of_the_page_is_drawn(chromium: str, page: Path) -> None:
    picture = page.parent / "page.png"
    browse(chromium, page, f"--screenshot={picture}")
    with Image.open(picture) as opened:
        image = opened.convert("RGB")

    assert image.size[0] == WIDTH
    for band in range(BANDS):
        part = image.crop((0, band * 600, WIDTH, (band + 1) * 600))
        colours = part.getcolors(maxcolors=WIDTH * 600) or []
        assert len(colours) > 20, f"nothing is drawn between {band * 600} and {band * 600 + 600}"
    seen = {colour for _, colour in image.getcolors(maxcolors=WIDTH * HEIGHT) or []}
    assert set(COLOURS) <= seen


def test_nothing_is_wider_than_a_telephone_but_the_table(chromium: str, page: Path) -> None:
    probe = page.parent / "probe.html"
    probe.write_text(
        page.read_text(encoding="utf-8").replace(
            "</main>",
            "</main><script>document.title = 'wide: ' + [...document.querySelectorAll('main *')]"
            ".filter(e => !e.closest('.scroll') && !e.closest('svg')"
            " && e.getBoundingClientRect().right > innerWidth + 1).length</script>",
        ),
        encoding="utf-8",
    )
    done = browse(chromium, probe, "--window-size=500,900", "--dump-dom")

    assert "<title>wide: 0</title>" in done.stdout
