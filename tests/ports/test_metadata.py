"""What every Metadata promises, over HTTP as in memory, and what the real service may answer."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Protocol

import pytest

from spindown.aws.imds import ImdsMetadata
from spindown.domain.offer import CapacityType
from spindown.error import NotFound, Unreachable
from spindown.memory import MemoryClock, MemoryMetadata
from spindown.port import Identity, Metadata

ME = Identity(
    instance_id="i-1",
    instance_type="g6.xlarge",
    region="us-east-1",
    zone="us-east-1a",
    capacity_type=CapacityType.SPOT,
    tags={"spindown:workload": "ocr", "spindown:code": "s3://b/c=1.zip"},
)
AT = datetime(2026, 1, 1, 8, 22, tzinfo=UTC)


class Service:
    """An instance metadata service, version 2, whose answers are set by hand."""

    def __init__(self) -> None:
        self.leaves: dict[str, str] = {
            "instance-id": ME.instance_id,
            "instance-type": ME.instance_type,
            "placement/region": ME.region,
            "placement/availability-zone": ME.zone,
            "instance-life-cycle": "spot",
            "tags/instance": "\n".join(ME.tags),
            **{f"tags/instance/{key}": value for key, value in ME.tags.items()},
        }
        self.tokens_given = 0
        self.status: int | None = None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                service.tokens_given += 1
                seconds = int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"])
                is_right = self.path == "/i-1/latest/api/token" and 1 <= seconds <= 21600
                self.answer(200 if is_right else 400, f"token-{service.tokens_given}")

            def do_GET(self) -> None:
                token = self.headers.get("X-aws-ec2-metadata-token")
                if token != f"token-{service.tokens_given}":
                    self.answer(401, "")
                    return
                leaf = service.leaves.get(self.path.removeprefix("/i-1/latest/meta-data/"))
                self.answer(service.status or (404 if leaf is None else 200), leaf or "")

            def answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/i-1/"

    def forget_tokens(self) -> None:
        self.tokens_given += 1


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    thread = Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    service.server.shutdown()
    service.server.server_close()
    thread.join()


@pytest.fixture
def metadata(service: Service, clock: MemoryClock) -> ImdsMetadata:
    return ImdsMetadata(clock, service.endpoint)


class World(Protocol):
    metadata: Metadata

    def announce_interruption(self, at: datetime) -> None: ...

    def recommend_rebalance(self, at: datetime) -> None: ...


class Memory:
    def __init__(self) -> None:
        self._metadata = MemoryMetadata(ME)
        self.metadata: Metadata = self._metadata

    def announce_interruption(self, at: datetime) -> None:
        self._metadata.announce_interruption(at)

    def recommend_rebalance(self, at: datetime) -> None:
        self._metadata.recommend_rebalance(at)


class Imds:
    def __init__(self, service: Service, clock: MemoryClock) -> None:
        self._service = service
        self.metadata: Metadata = ImdsMetadata(clock, service.endpoint)

    def announce_interruption(self, at: datetime) -> None:
        notice = {"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        self._service.leaves["spot/instance-action"] = json.dumps(notice)

    def recommend_rebalance(self, at: datetime) -> None:
        notice = {"noticeTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        self._service.leaves["events/recommendations/rebalance"] = json.dumps(notice)


@pytest.fixture(params=["memory", "imds"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return Memory()
    return Imds(request.getfixturevalue("service"), request.getfixturevalue("clock"))


def test_says_who_we_are(world: World) -> None:
    assert world.metadata.identity() == ME


def test_announces_nothing_by_itself(world: World) -> None:
    assert world.metadata.interruption() is None
    assert world.metadata.rebalance() is None


def test_announces_an_interruption(world: World) -> None:
    world.announce_interruption(AT)

    assert world.metadata.interruption() == AT
    assert world.metadata.rebalance() is None


def test_passes_on_a_rebalance_recommendation(world: World) -> None:
    world.recommend_rebalance(AT)

    assert world.metadata.rebalance() == AT
    assert world.metadata.interruption() is None


def test_asks_for_one_token_only(service: Service, metadata: ImdsMetadata) -> None:
    metadata.identity()
    metadata.interruption()

    assert service.tokens_given == 1


def test_asks_for_a_new_token_when_the_old_one_has_lapsed(
    service: Service, metadata: ImdsMetadata
) -> None:
    metadata.identity()
    service.forget_tokens()

    assert metadata.identity() == ME


def test_tells_an_instance_that_is_no_spot_instance(
    service: Service, metadata: ImdsMetadata
) -> None:
    service.leaves["instance-life-cycle"] = "on-demand"
    assert metadata.identity().capacity_type is CapacityType.ON_DEMAND


def test_says_what_is_missing(service: Service, metadata: ImdsMetadata) -> None:
    del service.leaves["tags/instance"]
    with pytest.raises(NotFound, match="tags/instance"):
        metadata.identity()


@pytest.mark.parametrize(
    ("notice", "expected"),
    [
        pytest.param({"action": "terminate", "time": "2026-01-01T08:22:00Z"}, AT, id="usual"),
        pytest.param({"time": "2026-01-01T08:22:00.000Z"}, AT, id="fractions"),
        pytest.param({"time": "2026-01-01T09:22:00+01:00"}, AT, id="another zone"),
        pytest.param({"time": "2026-01-01T08:22:00"}, AT, id="no zone"),
    ],
)
def test_reads_the_time_of_a_notice(
    service: Service, metadata: ImdsMetadata, notice: Mapping[str, str], expected: datetime
) -> None:
    service.leaves["spot/instance-action"] = json.dumps(notice)
    assert metadata.interruption() == expected


@pytest.mark.parametrize(
    "notice",
    ['{"action": "terminate"}', '{"time": "soon"}', '{"time": 7}', "terminate", "", "[]"],
)
def test_a_notice_that_cannot_be_read_is_a_notice_all_the_same(
    service: Service, metadata: ImdsMetadata, clock: MemoryClock, notice: str
) -> None:
    service.leaves["spot/instance-action"] = notice
    service.leaves["events/recommendations/rebalance"] = notice
    first_seen = clock.now()

    assert metadata.interruption() == first_seen + timedelta(minutes=2)
    assert metadata.rebalance() == first_seen
    clock.advance(timedelta(seconds=5))
    assert metadata.interruption() == first_seen + timedelta(minutes=2)


def test_a_failing_service_says_nothing_about_an_interruption(
    service: Service, metadata: ImdsMetadata
) -> None:
    service.status = 500
    with pytest.raises(Unreachable, match="500"):
        metadata.interruption()


def test_a_service_that_is_not_there_is_unreachable(clock: MemoryClock, service: Service) -> None:
    service.server.socket.close()
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        ImdsMetadata(clock, "http://127.0.0.1:1").interruption()
