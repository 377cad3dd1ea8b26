"""The dashboards over a local system that has worked, in a real browser that has no network.

Needs Debian's ``chromium``; without it the test fails with one sentence.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from spindown.cli.dashboard.server import Site
from spindown.config import parse_duration
from spindown.contract.name import resource_name
from tests.e2e.world import World, deployed, found, write_deployment
from tests.local.waiting import is_quiet
from tools.picture import browse, take

pytestmark = pytest.mark.proof

HOSTILE = "<script>document.title = 'owned'</script>\x1b]0;owned\x07 $\\frac{1}{0}$"
#: Of a chart's first line.
BLUE = (0, 114, 178)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("dashboard")
    with deployed(write_deployment(directory, "count")) as world:
        items = [HOSTILE, "a", "bb"]
        world.send("count", {"items": items, "params": {"name": HOSTILE}, "job_id": "job-1"})
        world.finished("job-1")
        found(lambda: is_quiet(world.session.status("count")))
        yield world


@pytest.fixture(scope="module", params=["overview", "count"])
def page(request: pytest.FixtureRequest, world: World) -> Path:
    path = world.directory / f"{request.param}.html"
    which = [] if request.param == "overview" else [request.param]
    done = world.spindown("dashboard", *which, "--since", "30m", "--html", str(path))
    assert done.returncode == 0, done.stderr
    return path


def test_a_browser_shows_every_widget_without_a_complaint(world: World, page: Path) -> None:
    name = world.session.deployment.name
    dashboard = name if page.stem == "overview" else resource_name(name, page.stem)
    body = json.loads(world.session.aws.dashboards().body(dashboard))
    titles = [x["properties"]["title"] for x in body["widgets"] if x["type"] == "metric"]

    done = browse(page.as_uri(), "--dump-dom")

    assert "CONSOLE" not in done.stderr
    assert done.stdout.count("<svg ") == len(titles)
    assert all(f"<h3>{title}</h3>" in done.stdout for title in titles)
    assert not re.search(r"parsererror|NaN|undefined|<script", done.stdout)


def test_something_is_drawn_of_what_was_done(page: Path) -> None:
    picture = page.with_suffix(".png")
    take(page, picture)

    with Image.open(picture) as opened:
        colours = opened.convert("RGB").getcolors(maxcolors=1 << 24) or []
    assert BLUE in {colour for _, colour in colours}


def test_a_job_leads_to_what_it_printed(world: World) -> None:
    site = Site(session=world.session, every=parse_duration("1m"))

    _, shown = site.answer(f"{site.root}w/count")
    batches = re.findall(r'href="([^"]*/[bj]/count/[^"]*)"', shown)
    status, job = site.answer(f"{site.root}j/count/job-1")

    assert status == 200
    assert "completed" in job
    assert "<script" not in shown + job
    assert all(site.answer(path)[0] == 200 for path in batches)
