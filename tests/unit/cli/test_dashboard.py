"""The pages of a dashboard show what is measured, and nothing on them is obeyed."""

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spindown.cli.dashboard.chart import LINES_SHOWN, draw_graph
from spindown.cli.dashboard.page import (
    Looked,
    _alone,
    _widget,
    _workload_table,
    batch_page,
    error_page,
    job_page,
    overview,
    say_to_do,
)
from spindown.cli.dashboard.server import Site, make_server, parse_span
from spindown.cli.session import Session
from spindown.contract.codec import encode, to_json
from spindown.contract.dashboard import MetricQuery, Widget, read_dashboard
from spindown.contract.job.batch import Batch, batch_key, name_job
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.ec2sim import MemoryClock
from spindown.error import BadInput, ContractError, NotFound
from spindown.job.attachment.log import keep_log
from spindown.memory import MemoryLog, MemoryObjectStore
from spindown.port import MetricSeries
from spindown.reason_text import say_dead_letters
from tests.builders import NOW
from tests.unit.operate.test_status import World

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
#: What a worker may write: markup, an escape sequence, mathematics of the library that plots.
HOSTILE = "<script>alert(1)</script>\x1b]0;owned\x07 $\\frac{a}{b}$ \"'&lt; \u202eevil"

BODY = {
    "start": "-PT12H",
    "widgets": [
        {
            "type": "alarm",
            "x": 0,
            "y": 0,
            "width": 24,
            "height": 3,
            "properties": {"title": "Alarms", "alarms": ["arn:aws:cloudwatch:r:1:alarm:demo--x"]},
        },
        {
            "type": "metric",
            "x": 0,
            "y": 3,
            "width": 8,
            "height": 6,
            "properties": {
                "title": "Messages",
                "stacked": True,
                "metrics": [
                    [{"label": "backlog", "expression": "FILL(b, 0)", "period": 60}],
                    ["Spindown", "Backlog", "D", "demo", {"id": "b", "visible": False}],
                    ["Spindown", "Held", "D", "demo", {"stat": "p95", "yAxis": "right"}],
                ],
                "annotations": {"horizontal": [{"value": 300, "label": "limit"}]},
                "yAxis": {"left": {"label": "messages", "min": 0}, "right": {"label": "s"}},
            },
        },
    ],
}


class Tags(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def harmless(page: str) -> bool:
    tags = Tags(page).names
    return "script" not in tags and "\x1b" not in page and "\u202e" not in page


def test_the_body_of_a_dashboard_is_read() -> None:
    body = read_dashboard(json.dumps(BODY))

    alarms, graph = body.widgets
    assert body.span == 12 * HOUR
    assert alarms.alarms == ("demo--x",)
    calculated, backlog, held = graph.queries
    assert (calculated.expression, calculated.query_id) == ("FILL(b, 0)", "q0")
    assert (backlog.query_id, backlog.is_shown) == ("b", False)
    assert (held.name, held.dimensions, held.statistic) == ("Held", {"D": "demo"}, "p95")
    assert held.is_right
    assert graph.is_stacked
    assert not graph.right_from_zero
    assert graph.marks[0].value == 300


@pytest.mark.parametrize("text", ["", "[]", '{"widgets": [{}]}', '{"widgets": 3}'])
def test_a_body_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ContractError):
        read_dashboard(text)


def a_series(name: str, *values: float) -> MetricSeries:
    points = tuple((NOW - n * MINUTE, value) for n, value in enumerate(values))
    return MetricSeries(query_id="q0", label=name, points=points[::-1])


def graph_of(*series: MetricSeries, **changes: Any) -> str:
    widget = Widget(
        kind="metric",
        x=0,
        y=0,
        width=changes.pop("width", 8),
        height=6,
        title=changes.pop("title", "Messages"),
        queries=(MetricQuery(query_id="q0"),),
        **changes,
    )
    return draw_graph(widget, series, since=NOW - HOUR, until=NOW, name="g0")


@pytest.mark.parametrize("is_stacked", [True, False])
@pytest.mark.parametrize("values", [(), (3.0,), (3.0, 1.0, 2.0)])
def test_a_graph_names_its_lines_and_last_values(
    values: tuple[float, ...], *, is_stacked: bool
) -> None:
    drawn = graph_of(a_series("backlog", *values), is_stacked=is_stacked)

    assert drawn.count("<svg ") == 1
    assert "backlog" in drawn
    assert not values or "<b>3</b>" in drawn


def numbers_of(drawn: str) -> list[str]:
    return re.findall(r"<text [^>]*>([0-9.:]+)</text>", drawn)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ((), []),
        ((1.0, 0.0), ["0", "1"]),
        ((0.5, 0.0), ["0.0", "0.2", "0.4"]),
        ((2e-5, 0.0), [f"0.0000{n:02}" for n in range(0, 25, 5)]),
    ],
)
def test_an_axis_numbers_what_is_on_it(values: tuple[float, ...], numbers: list[str]) -> None:
    drawn = graph_of(a_series("x", *values))

    assert [number for number in numbers_of(drawn) if ":" not in number] == numbers
    assert values or "no data yet" in drawn


@pytest.mark.parametrize(("width", "times"), [(6, 4), (24, 8)])
def test_a_narrow_graph_has_fewer_times(width: int, times: int) -> None:
    drawn = graph_of(a_series("x", 1.0), width=width)

    assert 1 < sum(":" in number for number in numbers_of(drawn)) <= times


def test_names_of_metrics_are_text_and_no_part_of_the_drawing() -> None:
    drawn = graph_of(a_series(HOSTILE, 1.0, 2.0), title=HOSTILE)

    assert harmless(drawn)
    # In the title, in the legend, and for those who do not see the drawing.
    assert drawn.count("frac") == 3


def test_of_too_many_lines_the_largest_are_shown() -> None:
    drawn = graph_of(*(a_series(f"line {n}", float(n)) for n in range(LINES_SHOWN + 5)))

    assert "line 14" in drawn
    assert "line 4<" not in drawn
    assert drawn.count("<li>") == LINES_SHOWN + 1


class FakeAws:
    """What pages ask of AWS."""

    clock = MemoryClock(NOW)

    def dashboards(self) -> Any:
        return SimpleNamespace(body=lambda _: json.dumps({"start": "-PT12H", "widgets": []}))

    def alarms(self) -> Any:
        return SimpleNamespace(states=lambda _: {})


def a_session(job_id: str, printed: str, reason: str = "") -> Session:
    store = MemoryObjectStore(FakeAws.clock)
    manifest = Manifest(
        job_id=job_id, epoch=1, owner="i-1/0", state=JobState.FAILED, parts=(), reason=reason
    )
    store.put(manifest_key(job_id), encode_manifest(manifest))
    keep_log(job_id, 1, printed.encode(), store)
    session = SimpleNamespace(
        aws=FakeAws(),
        deployment=SimpleNamespace(name="demo", workloads=()),
        told_if_slow=nullcontext,
        workload=_known,
        work_store=lambda _: store,
        log_source=lambda _: MemoryLog(),
    )
    return cast("Session", session)


def _known(name: str) -> str:
    if name != "ocr":
        raise BadInput("workload", name, "name one")
    return name


def test_dead_letters_are_something_to_do() -> None:
    status = replace(World().status(), dead_letters=2, troubles=("a quota is full",))

    assert list(say_to_do(status)) == [say_dead_letters(2, "ocr"), "a quota is full"]


def test_commands_on_a_page_find_the_same_deployment() -> None:
    status = replace(World().status(), dead_letters=2)
    session = SimpleNamespace(
        options=" --local",
        deployment=SimpleNamespace(workloads=("ocr",)),
        status=lambda _: status,
    )

    shown = _workload_table(cast("Session", session), Looked(span=None))

    assert "`spindown redrive ocr --list --local`" in shown


def test_the_local_system_says_that_it_has_no_alarms() -> None:
    session = SimpleNamespace(is_local=True, deployment=SimpleNamespace(name="demo"))
    alarms = Widget(kind="alarm", x=0, y=0, width=24, height=3, alarms=("demo--x",))

    shown = _widget(cast("Session", session), alarms, 0, NOW, NOW, {}, is_alone=False)

    assert "demo--alarms" in shown
    assert "demo--x" not in shown


@pytest.mark.parametrize(
    ("widths", "alone"),
    [((24, 8, 8, 8, 24), [3]), ((6, 6, 6, 6), []), ((24, 8), [1]), ((12, 12, 8), [2])],
)
def test_a_graph_with_none_beside_it_is_as_wide_as_two(
    widths: Sequence[int], alone: Sequence[int]
) -> None:
    widgets = [Widget(kind="metric", x=0, y=0, width=width, height=6) for width in widths]

    assert list(_alone(widgets)) == alone


def test_a_batch_tells_how_many_of_its_jobs_have_failed() -> None:
    first, second = (name_job("b", number) for number in range(2))
    session = a_session(first, "")
    batch = Batch(batch_id="b", workload="ocr", jobs=(first, second))
    session.work_store("ocr").put(batch_key("b"), to_json(encode(batch)).encode())

    page = batch_page(session, "ocr", "b", Looked(span=None))

    assert "1 job failed, 1 job waiting" in page


def test_what_code_prints_is_shown_and_not_obeyed() -> None:
    session = a_session("job-1", f"begin\n{HOSTILE}\nend\n", reason=HOSTILE)

    page = job_page(session, "ocr", "job-1", Looked(span=None, every=MINUTE, root="/x/"))

    assert harmless(page)
    assert "begin\n&lt;script&gt;" in page
    assert "\\x1b]0;owned" in page


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (None, "2026-11-20 00:00 to 12:00:00 UTC"),
        (13 * HOUR, "2026-11-19 23:00 to 2026-11-20 12:00:00 UTC"),
    ],
)
def test_a_page_says_from_when_to_when_it_looks(span: timedelta | None, told: str) -> None:
    assert told in overview(a_session("job-1", ""), Looked(span=span))


def test_only_a_page_that_is_made_anew_says_how_often() -> None:
    session = a_session("job-1", "")
    ages = [overview(session, Looked(span=None, every=x)).count("7m") for x in (7 * MINUTE, None)]
    assert ages == [1, 0]


def test_a_job_nobody_knows_has_no_page() -> None:
    session = a_session("job-1", "text")
    site = Site(session=session, every=MINUTE)

    status, page = site.answer(f"{site.root}j/ocr/{'%3Cscript%3E'}")

    assert status is HTTPStatus.NOT_FOUND
    assert harmless(page)


@pytest.mark.parametrize(
    "path", ["", "/", "/w/ocr", "/wrong-secret/", "/x", "/../etc/passwd", "//example.com/", "//[x"]
)
def test_without_the_secret_nothing_is_told(path: str) -> None:
    site = Site(session=a_session("job-1", "secret text"), every=MINUTE)

    status, page = site.answer(path)

    assert status is HTTPStatus.NOT_FOUND
    assert site.secret not in page


@pytest.mark.parametrize("path", ["w/other", "nothing", "j/ocr", "j/other/job-1", "w/ocr?since=x"])
def test_a_page_that_is_not_there_is_said_so(path: str) -> None:
    site = Site(session=a_session("job-1", "text"), every=MINUTE)

    status, page = site.answer(site.root + path)

    assert status is HTTPStatus.NOT_FOUND
    assert harmless(page)


def test_an_error_s_text_is_escaped() -> None:
    assert harmless(error_page(HOSTILE, Looked(span=None, every=MINUTE)))


@pytest.mark.parametrize("text", ["", "soon", "0s", "64d", "-1h", "9999999999d"])
def test_a_span_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_span(text)


def ask(address: str, **headers: str) -> tuple[int, Any, str]:
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - likewise
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def test_the_server_serves_this_machine_and_no_script() -> None:
    site = Site(session=a_session("job-1", "hello"), every=MINUTE)
    with make_server(site, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}{site.root}j/ocr/job-1"
            status, headers, page = ask(address)
            assert (status, "hello" in page) == (200, True)
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["Refresh"] == "60"
            assert headers["Referrer-Policy"] == "no-referrer"
            # On port 80 a browser leaves it out.
            assert ask(address, Host="127.0.0.1")[0] == 200
            # A page of the web whose name points here.
            status, _, page = ask(address, Host="evil.example:80")
            assert (status, "hello" in page) == (403, False)
        finally:
            server.shutdown()
            thread.join()


def test_a_browser_that_says_nothing_is_let_go() -> None:
    with make_server(Site(session=a_session("job-1", "x"), every=MINUTE), 0) as server:
        assert cast("Any", server.RequestHandlerClass).timeout == 10


@pytest.mark.parametrize(
    ("target", "said"),
    [
        pytest.param("http://[x", "", id="no address"),
        pytest.param("j/ocr/job-1", "spindown: a page could not be made", id="a fault of ours"),
    ],
)
def test_no_request_prints_a_traceback(
    capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    site = Site(session=cast("Session", None), every=MINUTE)
    path = target if "[" in target else site.root + target
    with (
        make_server(site, 0) as server,
        socket.create_connection(("127.0.0.1", server.server_port)) as asking,
    ):
        asking.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:1\r\n\r\n".encode())
        server.handle_request()
        asking.settimeout(30)
        while asking.recv(65536):
            pass

    told = capsys.readouterr().err
    assert told.startswith(said)
    assert len(told.splitlines()) == bool(said)


def test_a_port_in_use_is_one_sentence() -> None:
    site = Site(session=a_session("job-1", "hello"), every=MINUTE)
    with (
        make_server(site, 0) as server,
        pytest.raises(BadInput, match="--port"),
    ):
        make_server(site, server.server_address[1])


def test_a_job_without_a_manifest_is_not_found() -> None:
    session = a_session("job-1", "text")

    with pytest.raises(NotFound):
        job_page(session, "ocr", "job-2", Looked(span=None, every=MINUTE))
