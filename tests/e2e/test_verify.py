"""`spindown verify` where it is held up; that it proves a deployment is in `test_operate.py`."""

import json
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from spindown.domain.verification import Interruption, VerifyCheck
from spindown.operate.verify import Stage
from tests.e2e.world import HANGING, World, deployed, found, write_deployment

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with deployed(write_deployment(tmp_path_factory.mktemp("verify"), "verify")) as world:
        yield world


def verify(world: World, *options: str) -> tuple[int, dict[str, object], str]:
    done = world.spindown("verify", "--yes", "--json", *options)
    return done.returncode, json.loads(done.stdout), done.stderr


class NoTemplates(BaseHTTPRequestHandler):
    """Fault Injection Service of an account without the stack of the experiment."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"experimentTemplates": []}')

    def log_message(self, *_: object) -> None:
        """Keep what a run prints to itself."""


@pytest.fixture
def no_fault_stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoTemplates) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_FIS", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


@pytest.mark.usefixtures("no_fault_stack")
def test_it_proves_itself_without_fault_injection(world: World) -> None:
    status, told, aside = verify(world, "--items", "40")

    verdicts = {one["check"]: one["passed"] for one in told["checks"]}  # type: ignore[attr-defined]
    assert verdicts == dict.fromkeys([str(check) for check in VerifyCheck], True), told
    assert (status, told["passed"]) == (0, True)
    run = told["run"]
    assert isinstance(run, dict)
    assert run["interruption"] == Interruption.BY_HAND
    assert (run["items"]["right"], len(run["machines"]), run["fault_usd"]) == (40, 2, 0.0)
    stages = [stage for stage in Stage if f"spindown: {stage} " in aside]
    assert {Stage.WORKING, Stage.INTERRUPTED, Stage.OVER} <= set(stages), aside


def test_ctrl_c_leaves_nothing_running(world: World) -> None:
    known = {one.instance_id for one in world.instances("verify")}
    with world.followed("verify", "--yes", "--item-seconds", "10") as process:
        found(lambda: {one.instance_id for one in world.instances("verify")} > known)
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=HANGING) == 130

    assert not any(one.state.is_alive for one in world.instances("verify"))


def test_what_may_cost_too_much_is_not_begun(world: World) -> None:
    known = len(world.instances("verify"))

    done = world.spindown("verify", "--yes", "--max-dollars", "0.01", "--item-seconds", "10")

    assert done.returncode == 1
    assert "--max-dollars" in done.stderr
    assert len(world.instances("verify")) == known
