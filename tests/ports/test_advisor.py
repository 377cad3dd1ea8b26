"""What every Advisor promises, over HTTP as in memory, and what is believed of AWS's file."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spindown.aws import advisor as module
from spindown.aws.advisor import SpotAdvisor, parse_advice
from spindown.error import ContractError, SpindownError, Unreachable
from spindown.memory import MemoryAdvisor, MemoryClock
from spindown.port import Advisor
from tests.builders import NOW

REGION = "us-east-1"

#: The shape of AWS's file as of 2025: buckets, and Linux beside Windows.
ADVICE: dict[str, Any] = {
    "global_rate": "<10%",
    "instance_types": {"g5.xlarge": {"cores": 4, "emr": True, "ram_gb": 16.0}},
    "ranges": [
        {"index": 0, "label": "<5%", "dots": 0, "max": 5},
        {"index": 1, "label": "5-10%", "dots": 1, "max": 11},
        {"index": 2, "label": "10-15%", "dots": 2, "max": 16},
        {"index": 3, "label": "15-20%", "dots": 3, "max": 22},
        {"index": 4, "label": ">20%", "dots": 4, "max": 100},
    ],
    "spot_advisor": {
        REGION: {
            "Linux": {"g6e.xlarge": {"s": 58, "r": 1}, "g5.xlarge": {"s": 59, "r": 4}},
            "Windows": {"g5.xlarge": {"s": 40, "r": 0}},
        }
    },
}


@contextmanager
def served(body: bytes, status: int = 200) -> Iterator[str]:
    """Serve one body on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/spot-advisor-data.json"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(params=["memory", "http"])
def advisor(request: pytest.FixtureRequest, clock: MemoryClock) -> Iterator[Advisor]:
    if request.param == "memory":
        known = MemoryAdvisor()
        known.publish(REGION, {"g6e.xlarge": 0.11, "g5.xlarge": 0.33})
        yield known
        return
    with served(json.dumps(ADVICE).encode()) as url:
        yield SpotAdvisor(clock, url)


def test_knows_the_share_of_each_type(advisor: Advisor) -> None:
    shares = advisor.reclaim_shares(region=REGION)

    assert shares == pytest.approx({"g6e.xlarge": 0.11, "g5.xlarge": 0.33})


def test_says_when_it_knows_nothing_of_a_region(advisor: Advisor) -> None:
    with pytest.raises(ContractError, match="mars-north-1"):
        advisor.reclaim_shares(region="mars-north-1")


def _without(*path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(ADVICE))
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return found


def _with_ranges(*limits: object) -> dict[str, Any]:
    return ADVICE | {"ranges": [{"index": n, "max": limit} for n, limit in enumerate(limits)]}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(None, id="null"),
        pytest.param([], id="a list"),
        pytest.param({}, id="nothing"),
        pytest.param(_without("ranges"), id="no ranges"),
        pytest.param(_without("spot_advisor", REGION, "Linux"), id="no Linux"),
        pytest.param(_with_ranges(), id="no bucket"),
        pytest.param(_with_ranges(5, 5, 16, 22, 100), id="ranges that do not rise"),
        pytest.param(_with_ranges(5, "many"), id="a range that is no number"),
        pytest.param(_with_ranges(5, 11, 16, 22, float("nan")), id="a range that is NaN"),
        pytest.param(
            ADVICE | {"spot_advisor": {REGION: {"Linux": {"g5.xlarge": {"r": 9}}}}},
            id="buckets that are not among the ranges",
        ),
    ],
)
def test_what_makes_no_sense_is_an_error(document: Any) -> None:
    with pytest.raises(ContractError, match="spot advisor"):
        parse_advice(document, REGION)


def test_a_type_without_a_bucket_is_unknown_and_not_safe() -> None:
    listed: Mapping[str, Any] = {"g5.xlarge": {"r": 0}, "g6.xlarge": {}, "p5.4xlarge": {"r": None}}

    found = parse_advice(ADVICE | {"spot_advisor": {REGION: {"Linux": listed}}}, REGION)

    assert found == {"g5.xlarge": 0.05}


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param(b"", 404, Unreachable, id="not there"),
        pytest.param(b"oops", 500, Unreachable, id="a fault"),
        pytest.param(b"<html>", 200, ContractError, id="no JSON"),
        pytest.param(b" " * (module.LARGEST + 1), 200, Unreachable, id="too large"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(
    body: bytes, status: int, error: type[SpindownError], clock: MemoryClock
) -> None:
    with served(body, status) as url, pytest.raises(error, match="spot advisor"):
        SpotAdvisor(clock, url).reclaim_shares(region=REGION)


def test_nobody_there_is_an_error(clock: MemoryClock) -> None:
    with served(b"") as url:
        pass
    with pytest.raises(Unreachable, match="spot advisor"):
        SpotAdvisor(clock, url).reclaim_shares(region=REGION)


class _Hurrying:
    """A clock that moves by ten seconds with every look at it."""

    def __init__(self) -> None:
        self._at = NOW

    def now(self) -> datetime:
        self._at += timedelta(seconds=10)
        return self._at

    def elapsed(self) -> timedelta:
        return self._at - NOW


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    with served(b" " * 1_000_000) as url, pytest.raises(Unreachable, match="not whole"):
        SpotAdvisor(_Hurrying(), url).reclaim_shares(region=REGION)


def test_is_asked_once_for_all_regions_of_a_refresh(clock: MemoryClock) -> None:
    with served(json.dumps(ADVICE).encode()) as url:
        advisor = SpotAdvisor(clock, url)
        first = advisor.reclaim_shares(region=REGION)

    # The server is gone: what it said stands for a few minutes.
    assert advisor.reclaim_shares(region=REGION) == first
    clock.advance(timedelta(minutes=5))
    with pytest.raises(Unreachable):
        advisor.reclaim_shares(region=REGION)
