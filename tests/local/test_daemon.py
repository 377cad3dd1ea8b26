import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.error import BadInput
from spindown.local import daemon
from spindown.local.market.scenario import digest_of, load_scenario
from spindown.local.reaper import carriers
from spindown.local.state import StateDirectory
from tests.local.waiting import until
from tests.local.world import write_config

#: Brings a system up with an instance whose guest has a child of its own, and waits.
ATTACHED = """
import sys, threading
from pathlib import Path
from tests.local.world import at_once, launch
from spindown.local.system import LocalSystem
guest = '''
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(99)"]
subprocess.Popen(sleep, start_new_session=True)
time.sleep(99)
'''
config, state = map(Path, sys.argv[1:])
pause = threading.Event()
command = (sys.executable, "-c", guest)
with LocalSystem(config, state=state, port=0, guest=command, scenario=at_once()) as system:
    launch(system)
    print(system._token, flush=True)
    while True:
        pause.wait(0.1)
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "state"
    yield directory
    daemon.stop(directory)


def test_what_is_wrong_with_the_input_reaches_the_user(tmp_path: Path, state: Path) -> None:
    path = write_config(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("zones", "zone"), encoding="utf-8")
    with pytest.raises(daemon.DaemonError, match=r"did not start: deployment\.zones is "):
        daemon.start(path, state=state, port=0)
    assert StateDirectory(state).holder() is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param({}, "--config", id="nothing"),
        pytest.param({"scenario": "demo"}, "--config", id="the same scenario"),
        pytest.param({"scenario": "storm"}, "--scenario", id="another scenario"),
        pytest.param({"port": 4599}, "--config", id="the same port"),
        pytest.param({"port": 4600}, "--port", id="another port"),
        pytest.param({"tick": timedelta(seconds=2)}, "--config", id="the same tick"),
        pytest.param({"tick": timedelta(seconds=3)}, "--tick", id="another tick"),
    ],
)
def test_only_what_differs_from_what_runs_is_refused(
    tmp_path: Path, given: dict[str, Any], field: str
) -> None:
    directory = StateDirectory(tmp_path)
    with directory.held():
        directory.tell(
            endpoint="http://127.0.0.1:4599",
            region="us-east-1",
            regions="us-east-1",
            deployment="d",
            scenario=digest_of(load_scenario("demo")),
            tick="2.0",
        )
        # What is not refused goes on to read the file, which is not there.
        with pytest.raises(BadInput) as refused:
            daemon.start(tmp_path / "missing.toml", state=tmp_path, **given)

    assert refused.value.field == field


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_an_attached_system(
    tmp_path: Path, state: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ATTACHED, str(write_config(tmp_path)), str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    ) as attached:
        assert attached.stdout is not None
        token = attached.stdout.readline().decode().strip()
        # The guest and its child.
        left = until(lambda: found if len(found := carriers(token)) == 2 else [])
        os.killpg(attached.pid, number)
    until(lambda: not any(process.is_running() for process in left))
    assert StateDirectory(state).holder() is None
