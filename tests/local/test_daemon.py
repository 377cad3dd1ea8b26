import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import psutil
import pytest

from spindown.local import daemon
from spindown.local.reaper import carriers
from spindown.local.state import StateDirectory
from tests.local.waiting import until
from tests.local.world import write_config

pytestmark = pytest.mark.long

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


def test_up_deploys_status_tells_and_down_leaves_nothing(tmp_path: Path, state: Path) -> None:
    up = daemon.start(write_config(tmp_path), state=state, port=0)
    assert up.functions == ("test-interruption", "test-offers", "test-scaler", "test-teardown")
    assert {"test-count", "test-count-dlq"} <= {queue.name for queue in up.queues}

    session = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any")
    sqs = session.client("sqs", endpoint_url=up.endpoint, region_name=up.region)
    (job_queue,) = (queue for queue in up.queues if queue.name == "test-count")
    sqs.send_message(QueueUrl=job_queue.url, MessageBody='{"items": [1]}')
    told = until(lambda: daemon.status(state))
    assert told is not None
    assert told.pid == up.pid
    until(lambda: len(instances_of(state)) == 1)
    assert daemon.exports(state).startswith("export AWS_CONFIG_FILE=")

    below = psutil.Process(up.pid).children(recursive=True)
    assert daemon.stop(state)
    assert daemon.status(state) is None
    until(lambda: not any(process.is_running() for process in below))
    assert not daemon.stop(state)


def instances_of(state: Path) -> list[str]:
    told = daemon.status(state)
    return [] if told is None else [one.instance_id for one in told.instances]


def test_what_is_wrong_with_the_input_reaches_the_user(tmp_path: Path, state: Path) -> None:
    path = write_config(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("zones", "zone"), encoding="utf-8")
    with pytest.raises(daemon.DaemonError, match=r"did not start: deployment\.zones is "):
        daemon.start(path, state=state, port=0)
    assert StateDirectory(state).holder() is None


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
