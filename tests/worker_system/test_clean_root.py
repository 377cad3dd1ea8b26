"""The whole of an instance but its kernel: installed on a clean system, booted by real systemd."""

import json
from pathlib import Path

import pytest

import spindown
from tests.worker_system.clean_root import CleanRoot

pytestmark = pytest.mark.proof

UNITS = ["spindown-worker.service", "spindown-deadman.service", "spindown-deadman.timer"]
BOOT = "[Unit]\nWants={}\n"

#: What a worker leaves for the test to read; its directory outlives the boot.
WORK = "var/lib/spindown/work"

#: Tells as the worker, and as the user's code, who it is and what it reaches.
PROBE = """
import json, os, pathlib, signal, subprocess, sys, urllib.request

def look():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    try:
        urllib.request.urlopen("http://169.254.169.254/", timeout=5).close()
        reached = True
    except OSError:
        reached = False
    return {"uid": os.getuid(), "groups": os.getgroups(), "capabilities": status["CapEff"].strip(),
            "bounds": status["CapBnd"].strip(), "reached": reached,
            "oom": int(open("/proc/self/oom_score_adj").read())}

if sys.argv[1:] == ["user"]:
    directory = pathlib.Path(os.environ["TMPDIR"]) / "outputs" / "private"
    directory.mkdir(mode=0o700)
    (directory / "result").write_text("made by the user's code")
    print(json.dumps(look()))
else:
    work = pathlib.Path(os.environ["TMPDIR"])
    (work / "outputs").mkdir()
    python = os.environ["SPINDOWN_PYTHON"]
    user = json.loads(subprocess.check_output([python, __file__, "user"]))
    result = work / "outputs" / "private" / "result"
    read = result.read_text()
    result.unlink()
    result.parent.rmdir()
    hung = subprocess.Popen([python, "-c", "import time; time.sleep(600)"], start_new_session=True)
    os.killpg(hung.pid, signal.SIGKILL)
    seen = {"worker": look(), "user": user, "read": read, "killed": hung.wait()}
    (work / "seen").write_text(json.dumps(seen))
"""

METADATA = """
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 169.254.169.254 80
WorkingDirectory=/kit
"""


def worker_runs(command: str) -> str:
    """Return a drop-in by which the worker's unit runs something else, and restarts quickly."""
    return f"[Service]\nExecStart=\nExecStart={command}\nRestartSec=100ms\n"


def quick_deadman(silence: int) -> dict[str, str]:
    """Return drop-ins by which the dead-man check runs every second; this kernel is up for long."""
    limits = f"[Service]\nEnvironment=SILENCE={silence} LIFETIME=2000000000\n"
    return {
        "spindown-deadman.service.d/quick.conf": limits,
        "spindown-deadman.timer.d/quick.conf": "[Timer]\nOnUnitInactiveSec=1s\nAccuracySec=100ms\n",
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> CleanRoot:
    root = CleanRoot(tmp_path_factory.mktemp("root"))
    done = root.run("sh", "/kit/system/install.sh", "--offline")
    assert done.returncode == 0, done.stdout + done.stderr
    return root


@pytest.fixture
def work(root: CleanRoot) -> Path:
    """Return the worker's directory, empty."""
    assert root.run("sh", "-c", f"rm -rf /{WORK}/*").returncode == 0
    return root.directory / WORK


def test_the_worker_starts_on_a_clean_system(root: CleanRoot) -> None:
    done = root.run("/opt/spindown/worker/bin/python", "-m", "worker", "--version")

    assert done.stdout.split()[-1:] == [spindown.__version__], done.stderr


def test_systemd_has_no_complaint_about_the_units(root: CleanRoot) -> None:
    paths = [f"/etc/systemd/system/{unit}" for unit in UNITS]

    done = root.run("systemd-analyze", "verify", *paths)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_that_is_done_ends_its_instance(root: CleanRoot, work: Path) -> None:
    units = {
        "boot.target": BOOT.format("spindown-worker.service"),
        "spindown-worker.service.d/run.conf": worker_runs("sh -c 'echo ran >>$TMPDIR/runs'"),
    }

    assert root.boot(units)
    assert (work / "runs").read_text() == "ran\n"


def test_a_worker_that_fails_is_started_five_times_and_then_ends_its_instance(
    root: CleanRoot, work: Path
) -> None:
    run = worker_runs("sh -c 'echo ran >>$TMPDIR/runs; exit 1'")
    units = {
        "boot.target": BOOT.format("spindown-worker.service"),
        "spindown-worker.service.d/run.conf": run,
    }

    assert root.boot(units)
    assert (work / "runs").read_text() == "ran\n" * 5


def test_no_worker_runs_where_metadata_cannot_be_guarded(root: CleanRoot, work: Path) -> None:
    units = {
        "boot.target": BOOT.format("spindown-worker.service"),
        "spindown-worker.service.d/run.conf": worker_runs("sh -c 'echo ran >>$TMPDIR/runs'")
        + "ExecStartPre=\nExecStartPre=+nft --file /nonexistent\n",
    }

    assert root.boot(units)
    assert not (work / "runs").exists()


def test_a_worker_that_falls_silent_is_ended(root: CleanRoot, work: Path) -> None:
    beats = (
        "for n in 1 2 3 4 5 6; do echo >$SPINDOWN_ALIVE; echo beat >>$TMPDIR/beats; sleep 1; done"
    )
    units = {
        "boot.target": BOOT.format("spindown-worker.service spindown-deadman.timer"),
        "spindown-worker.service.d/run.conf": worker_runs(f"sh -c '{beats}; sleep infinity'"),
        **quick_deadman(silence=4),
    }

    assert root.boot(units)
    assert (work / "beats").read_text() == "beat\n" * 6


def test_an_instance_whose_worker_never_starts_is_ended(root: CleanRoot) -> None:
    units = {"boot.target": BOOT.format("spindown-deadman.timer"), **quick_deadman(silence=2)}

    assert root.boot(units)


def test_the_users_code_has_neither_metadata_nor_power_and_the_worker_has_both(
    root: CleanRoot, work: Path
) -> None:
    (root.directory / "opt" / "probe.py").write_text(PROBE)
    units = {
        "boot.target": BOOT.format("spindown-worker.service metadata.service"),
        "metadata.service": METADATA,
        "spindown-worker.service.d/run.conf": worker_runs(
            "/opt/spindown/worker/bin/python /opt/probe.py"
        ),
    }

    assert root.boot(units)

    seen = json.loads((work / "seen").read_text())
    worker, user = seen["worker"], seen["user"]
    assert (worker["reached"], user["reached"]) == (True, False)
    assert user["uid"] not in {0, worker["uid"]}
    assert (user["groups"], int(user["capabilities"], 16), int(user["bounds"], 16)) == ([], 0, 0)
    assert user["oom"] > worker["oom"]
    assert (seen["read"], seen["killed"]) == ("made by the user's code", -9)
