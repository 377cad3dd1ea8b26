import os
import signal
import subprocess
import sys
from contextlib import closing

import psutil

from spindown.local.reaper import TOKEN_VARIABLE, Reaper, carriers, kill_all
from tests.local.waiting import until

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]

#: Holds a reaper, starts a child that leaves the group, and waits to be killed.
OWNER = """
import os, subprocess, sys, time
from spindown.local.reaper import TOKEN_VARIABLE, Reaper
reaper = Reaper("killed-owner", environment=dict(os.environ))
marked = {**os.environ, TOKEN_VARIABLE: "killed-owner"}
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
subprocess.Popen(sleep, env=marked, start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""


def marked(token: str) -> dict[str, str]:
    return {**os.environ, TOKEN_VARIABLE: token}


def test_finds_what_carries_the_token_and_nothing_else() -> None:
    mine = subprocess.Popen(SLEEP, env=marked("mine"))
    other = subprocess.Popen(SLEEP, env=marked("other"))
    try:
        until(lambda: [one.pid for one in carriers("mine")] == [mine.pid])
        assert kill_all("mine") == 1
        assert not psutil.pid_exists(mine.pid)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        mine.wait()


def test_kills_what_is_left_when_it_is_closed() -> None:
    with closing(Reaper("closed", environment=dict(os.environ))):
        left = subprocess.Popen(SLEEP, env=marked("closed"), start_new_session=True)
        until(lambda: carriers("closed"))
    assert left.wait(5) == -signal.SIGKILL


def test_nothing_survives_an_owner_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        (left,) = until(lambda: carriers("killed-owner"))
        owner.kill()
    until(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE)
