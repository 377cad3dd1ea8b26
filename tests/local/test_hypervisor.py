import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from spindown.local.hypervisor import GuestSetup, Hypervisor
from spindown.local.schedule import pulse
from tests.local.waiting import until

INSTANCE = "i-0123"


class Rig:
    """A hypervisor over one program, driven step by step."""

    def __init__(self, directory: Path, program: str, **changes: Any) -> None:
        self.powered_off: list[str] = []
        setup = GuestSetup(
            command=(sys.executable, "-c", program),
            directory=directory,
            environment={"PATH": "/usr/bin:/bin", "COLOUR": "blue"},
            metadata="http://127.0.0.1:1/_imds",
        )
        self.hypervisor = Hypervisor(replace(setup, **changes), powered_off=self.powered_off.append)

    def until(self, look: Callable[[], object], *, seconds: float = 20.0) -> None:
        def step_and_look() -> object:
            self.hypervisor.step()
            return look()

        until(step_and_look, seconds=seconds)

    def console(self) -> str:
        return self.hypervisor.console(INSTANCE)

    def pids(self) -> list[int]:
        """The process ids that the guest has printed, one a line."""
        return [int(word) for word in self.console().split() if word.isdigit()]


#: Tells what it finds in its environment.
TELL = """
import os
for name in ("COLOUR", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "HOME", "USER"):
    print(os.environ.get(name), flush=True)
"""

SAY_GOODBYE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("bye", flush=True), sys.exit()))
print("up", flush=True)
time.sleep(60)
"""


@contextmanager
def rig(directory: Path, program: str, **changes: Any) -> Iterator[Rig]:
    made = Rig(directory, program, **changes)
    try:
        yield made
    finally:
        made.hypervisor.close()


WAIT = """
import time
print("up", flush=True)
time.sleep(60)
"""

POWER_OFF = """
import os, shlex, subprocess, time
subprocess.run(shlex.split(os.environ["SPINDOWN_POWEROFF"]))
time.sleep(60)
"""

#: Its child leaves the process group.
FORK = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(60)
"""


def test_a_guest_runs_and_its_console_can_be_read(tmp_path: Path) -> None:
    with rig(tmp_path, WAIT) as made:
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(lambda: made.console() == "up\n")


def test_a_guest_gets_the_machine_s_environment_and_metadata(tmp_path: Path) -> None:
    with rig(tmp_path, TELL) as made:
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(lambda: made.console().count("\n") == 4)
        home = tmp_path / "i-0123" / "home"
        expected = ["blue", "http://127.0.0.1:1/_imds/i-0123", str(home), "None"]
        assert made.console().split() == expected


def test_a_guest_that_powers_off_is_reported_once(tmp_path: Path) -> None:
    with rig(tmp_path, POWER_OFF) as made:
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(lambda: made.powered_off)
        made.hypervisor.step()
        assert made.powered_off == ["i-0123"]


def test_an_instance_without_its_worker_powers_off_by_its_timer(tmp_path: Path) -> None:
    with rig(tmp_path, "raise SystemExit(1)", dead_man_seconds=0.3) as made:
        started = time.monotonic()
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(lambda: made.powered_off)
        assert time.monotonic() - started >= 0.3


def test_stopping_takes_everything_that_the_guest_has_started(tmp_path: Path) -> None:
    with rig(tmp_path, FORK) as made:
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(made.pids)
        pids = made.pids()
        assert len(pids) == 2
        made.hypervisor.stop(INSTANCE)
        made.until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_stopping_twice_or_what_never_ran_is_harmless(tmp_path: Path) -> None:
    with rig(tmp_path, WAIT) as made:
        made.hypervisor.stop("i-never")
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.hypervisor.stop(INSTANCE)
        made.hypervisor.stop(INSTANCE)
        made.hypervisor.step()
        made.hypervisor.step()
        assert made.powered_off == []


def test_a_grace_lets_the_guest_say_goodbye(tmp_path: Path) -> None:
    with rig(tmp_path, SAY_GOODBYE, grace_seconds=10.0) as made:
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(lambda: "up" in made.console())
        made.hypervisor.stop(INSTANCE)
        made.until(lambda: "bye" in made.console(), seconds=8.0)


def test_guests_that_begin_anew_end_by_themselves(tmp_path: Path) -> None:
    with rig(tmp_path, SAY_GOODBYE) as made:
        made.hypervisor.start(INSTANCE, speed=1.0)
        made.until(lambda: "up" in made.console())
        with pulse(made.hypervisor.step):
            made.hypervisor.shut_down([INSTANCE, "i-never"], within=20.0)
        assert "bye" in made.console()


@pytest.mark.parametrize("speed", [0.25, 0.5])
def test_a_guest_computes_at_the_speed_of_its_type(tmp_path: Path, speed: float) -> None:
    program = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass"
    with rig(tmp_path, program, free_cpu_seconds=0.0) as made:
        made.hypervisor.start(INSTANCE, speed=speed)
        made.until(made.pids, seconds=60)
        guest = psutil.Process(made.pids()[0])
        before, started = guest.cpu_times().user, time.monotonic()
        made.until(lambda: time.monotonic() - started > 2)
        share = (guest.cpu_times().user - before) / (time.monotonic() - started)
    assert 0.3 * speed < share < 1.3 * speed


def test_strays_are_cleared_when_their_instance_is_gone(tmp_path: Path) -> None:
    said = tmp_path / "said"
    (tmp_path / "instances" / "i-of-a-killed-system").mkdir(parents=True)
    clear = ("/bin/sh", "-c", f'echo "$@" >>{said}', "sh")
    rig = Rig(tmp_path / "instances", "import time; time.sleep(60)", clear=lambda: clear)
    assert said.read_text() == "i-of-a-killed-system\n"
    assert not list((tmp_path / "instances").glob("*"))
    rig.hypervisor.start(INSTANCE, speed=1.0)
    rig.hypervisor.step()
    rig.hypervisor.stop(INSTANCE)
    rig.until(lambda: said.read_text() == f"i-of-a-killed-system\n{INSTANCE}\n")
    rig.hypervisor.close()
    assert len(said.read_text().split()) == 2
