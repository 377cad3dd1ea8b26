"""The whole of an instance but its kernel: installed on a clean system, booted by real systemd."""

import json
from pathlib import Path

import pytest

import spindown
from tests.worker_system.clean_root import CleanRoot
from tests.worker_system.kit import make_wheel, zip_code

pytestmark = pytest.mark.proof

UNITS = [
    *("spindown-worker.service", "spindown-instance-store.service"),
    *("spindown-deadman.service", "spindown-deadman.timer"),
]
BOOT = "[Unit]\nWants={}\n"

#: Where a worker leaves what the test reads.
LEFT = "/var/lib/spindown/left"

#: Tells who asks and what it reaches; the worker asks, and so does the user's code.
PROBE = """
import json, os, urllib.request

def look():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    try:
        urllib.request.urlopen("http://169.254.169.254/", timeout=5).close()
        reached = True
    except OSError:
        reached = False
    return {"uid": os.getuid(), "groups": os.getgroups(), "capabilities": status["CapEff"].strip(),
            "bounds": status["CapBnd"].strip(), "reached": reached,
            "writes": [name for name in (".", "work", "run")
                       if os.access(f"/var/lib/spindown/{name}", os.W_OK)],
            "oom": int(open("/proc/self/oom_score_adj").read())}
"""
USER_CODE = """
from pathlib import Path
import probe
from spindown.user import Context, Item, Result

def run(batch, ctx):
    for item in batch:
        private = ctx.output_dir(item) / "private"
        private.mkdir(mode=0o700)
        (private / "result").write_text(item.path.read_text().upper())
        yield Result(item, probe.look())
"""
WORKER = """
import json, os, shutil, sys
from datetime import timedelta
from pathlib import Path
import probe
from spindown.contract.run_spec import RunSpec
from spindown.user import Item
from spindown.worker.__main__ import make_scratch
from spindown.worker.child.code import Code
from spindown.worker.child.runner import ChildRunner, ItemDone, Task
from spindown.worker.code_folder import make_shared
from spindown.worker.log import open_log

scratch = make_scratch()
code = scratch / "code"
code.mkdir()
for name in ("probe", "user_code"):
    shutil.copy(f"/opt/probe/{name}.py", code)
(scratch / "input").write_text("made by the user's code")
runner = ChildRunner(
    Code(root=code, spec=RunSpec(entrypoint="user_code:run"), digest="0"),
    slot=0,
    scratch=scratch / "setup",
    python=os.environ["SPINDOWN_PYTHON"],
    env=os.environ,
    log=open_log(sys.stdout),
)
make_shared(scratch / "out")
home = Path("/var/lib/spindown")
seen_home = []
for path in (home / "planted.py", home / ".local", home / "work" / "ours"):
    try:
        path.mkdir()
        seen_home.append(path.name)
    except OSError:
        pass
runner.begin(Task(job_id="job", outputs=scratch / "out"), [Item(0, "value", scratch / "input")])
done = None
while done is None:
    done = runner.poll(timedelta(seconds=60))
seen = {"worker": probe.look(), "user": getattr(done, "value", None) or repr(done)}
if isinstance(done, ItemDone):
    seen["home"] = seen_home
    seen["read"] = (scratch / "out" / "0" / done.files[0]).read_text()
runner.kill()
shutil.rmtree(scratch)
Path("/var/lib/spindown/left/seen").write_text(json.dumps(seen))
"""

METADATA = """
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 169.254.169.254 80
WorkingDirectory=/kit
"""


def worker_runs(command: str) -> str:
    """Return a drop-in by which the worker's unit runs something else, and restarts quickly."""
    return (
        f"[Service]\nExecStart=\nExecStart={command}\nRestartSec=100ms\n"
        # The worker's home is read-only.
        f"ReadWritePaths=-{LEFT}\n"
    )


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
def left(root: CleanRoot) -> Path:
    """Return the directory in which a worker leaves something, empty."""
    remake = f"rm -rf {LEFT} && install -d -o spindown {LEFT}"
    assert root.run("sh", "-c", remake).returncode == 0
    return root.directory / LEFT.removeprefix("/")


def test_the_worker_starts_on_a_clean_system(root: CleanRoot) -> None:
    done = root.run("/opt/spindown/worker/bin/python", "-m", "spindown.worker", "--version")

    assert done.stdout.split()[-1:] == [spindown.__version__], done.stderr


def test_systemd_has_no_complaint_about_the_units(root: CleanRoot) -> None:
    paths = [f"/etc/systemd/system/{unit}" for unit in UNITS]

    done = root.run("systemd-analyze", "verify", *paths)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_that_is_done_ends_its_instance(root: CleanRoot, left: Path) -> None:
    units = {
        "boot.target": BOOT.format("spindown-worker.service"),
        "spindown-worker.service.d/run.conf": worker_runs(f"sh -c 'echo ran >>{LEFT}/runs'"),
    }

    assert root.boot(units)
    assert (left / "runs").read_text() == "ran\n"


def test_a_failing_worker_starts_clean_five_times_and_then_ends(
    root: CleanRoot, left: Path
) -> None:
    run = f"ls $TMPDIR | wc -l >>{LEFT}/rests; touch $TMPDIR/rest; exit 1"
    units = {
        "boot.target": BOOT.format("spindown-worker.service"),
        "spindown-worker.service.d/run.conf": worker_runs(f"sh -c '{run}'"),
    }

    assert root.boot(units)
    assert (left / "rests").read_text() == "0\n" * 5


#: As on AWS's Deep Learning AMIs; memory stands in for the disks.
DLAMI = """
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=mkdir -p /opt/dlami/nvme
ExecStart=mount -t tmpfs -o size=1t tmpfs /opt/dlami/nvme
"""
#: Tells where its files lie, and whether they are there when the system ends.
HOLDER = f"""
findmnt --noheadings --output FSTYPE,OPTIONS --target $TMPDIR >{LEFT}/at
touch $TMPDIR/held
ended() {{ sleep 2; ls $TMPDIR >{LEFT}/end; exit; }}
trap ended TERM
touch {LEFT}/go
while :; do sleep 0.1; done
"""
#: How long a stand-in takes to write says nothing.
UNTIMED = '#!/bin/sh\nshift && exec "$@"\n'


def test_what_a_worker_writes_is_on_the_instance_store(root: CleanRoot, left: Path) -> None:
    probe = root.directory / "opt" / "probe"
    probe.mkdir(exist_ok=True)
    (probe / "hold.sh").write_text(HOLDER)
    (probe / "timeout").write_text(UNTIMED)
    (probe / "timeout").chmod(0o755)
    root.run("find", "/var/lib/spindown/work", "-mindepth", "1", "-delete")
    end = f"while ! test -e {LEFT}/go; do sleep 0.1; done; systemctl poweroff"
    path = "[Service]\nEnvironment=PATH=/opt/probe:/usr/sbin:/usr/bin:/sbin:/bin\n"
    units = {
        "boot.target": BOOT.format("spindown-worker.service end.service"),
        "dlami-nvme.service": DLAMI,
        "end.service": f"[Service]\nType=oneshot\nExecStart=sh -c '{end}'\n",
        "spindown-instance-store.service.d/run.conf": path,
        "spindown-worker.service.d/run.conf": worker_runs("sh /opt/probe/hold.sh"),
    }

    assert root.boot(units)
    kind, flags = (left / "at").read_text().split()
    assert kind == "tmpfs"
    assert {"rw", "noatime", "nodev", "nosuid"} <= set(flags.split(","))
    assert (left / "end").read_text() == "held\n"
    assert not list((root.directory / "var/lib/spindown/work").iterdir())


def test_whoever_restarts_a_worker_by_the_way_is_refused(root: CleanRoot, left: Path) -> None:
    restart = "systemctl restart spindown-worker; echo $$? >>{left}/told; touch {left}/go"
    run = f"echo ran >>{LEFT}/runs; while ! test -e {LEFT}/go; do sleep 0.1; done; sleep 1"
    units = {
        "boot.target": BOOT.format("spindown-worker.service needrestart.service"),
        "spindown-worker.service.d/run.conf": worker_runs(
            f"sh -c '{run}; echo done >>{LEFT}/runs'"
        ),
        "needrestart.service": "[Unit]\nAfter=spindown-worker.service\n"
        f"[Service]\nType=oneshot\nExecStart=sh -c '{restart.format(left=LEFT)}'\n",
    }

    assert root.boot(units)
    assert (left / "runs").read_text() == "ran\ndone\n"
    assert (left / "told").read_text() != "0\n"


def test_an_install_waits_for_whoever_holds_apt_s_locks(root: CleanRoot) -> None:
    hold = (
        "import fcntl, sys, time; "
        "held = [open(path, 'w') for path in sys.argv[1:]]; "
        "[fcntl.lockf(one, fcntl.LOCK_EX) for one in held]; print(flush=True); time.sleep(12)"
    )
    locks = "/var/lib/apt/lists/lock /var/lib/dpkg/lock-frontend"
    install = "sh /kit/system/install.sh --offline"
    script = f'dpkg --purge nftables && python3 -c "{hold}" {locks} | (read _; {install})'

    done = root.run("sh", "-c", script)

    assert done.returncode == 0, done.stdout + done.stderr
    assert root.run("nft", "--version").returncode == 0


def test_no_worker_runs_where_metadata_cannot_be_guarded(root: CleanRoot, left: Path) -> None:
    units = {
        "boot.target": BOOT.format("spindown-worker.service"),
        "spindown-worker.service.d/run.conf": worker_runs(f"sh -c 'echo ran >>{LEFT}/runs'")
        + "ExecStartPre=\nExecStartPre=+nft --file /nonexistent\n",
    }

    assert root.boot(units)
    assert not (left / "runs").exists()


def test_a_worker_that_falls_silent_is_ended(root: CleanRoot, left: Path) -> None:
    beat = f"echo >$SPINDOWN_ALIVE; echo beat >>{LEFT}/beats; sleep 1"
    run = f"for n in 1 2 3 4 5 6; do {beat}; done; sleep infinity"
    units = {
        "boot.target": BOOT.format("spindown-worker.service spindown-deadman.timer"),
        "spindown-worker.service.d/run.conf": worker_runs(f"sh -c '{run}'"),
        **quick_deadman(silence=4),
    }

    assert root.boot(units)
    assert (left / "beats").read_text() == "beat\n" * 6


def test_an_instance_whose_worker_never_starts_is_ended(root: CleanRoot) -> None:
    units = {"boot.target": BOOT.format("spindown-deadman.timer"), **quick_deadman(silence=2)}

    assert root.boot(units)


def test_the_user_s_code_shares_files_but_no_rights(root: CleanRoot, left: Path) -> None:
    scripts = root.directory / "opt" / "probe"
    scripts.mkdir(exist_ok=True)
    for name, text in {"probe": PROBE, "user_code": USER_CODE, "work": WORKER}.items():
        (scripts / f"{name}.py").write_text(text)
    units = {
        "boot.target": BOOT.format("spindown-worker.service metadata.service"),
        "metadata.service": METADATA,
        "spindown-worker.service.d/run.conf": worker_runs(
            "/opt/spindown/worker/bin/python /opt/probe/work.py"
        ),
    }

    assert root.boot(units)

    seen = json.loads((left / "seen").read_text())
    worker, user = seen["worker"], seen["user"]
    assert (worker["reached"], user["reached"]) == (True, False)
    assert user["uid"] not in {0, worker["uid"]}
    # Beside the group of its slot, the one that has its user's name and number.
    assert user["groups"] == [user["uid"]]
    assert (int(user["capabilities"], 16), int(user["bounds"], 16)) == (0, 0)
    assert user["oom"] > worker["oom"]
    assert seen["home"] == ["ours"]
    assert user["writes"] == ["run"]
    assert seen["read"] == "MADE BY THE USER'S CODE"


#: Built as a package, it tells what those may who install the code's packages.
BACKEND = """
import json, os, sys, zipfile
sys.path.insert(0, "/opt/probe")
import probe

def build_wheel(directory, config_settings=None, metadata_directory=None):
    seen = probe.look()
    seen["reads"] = [path for path in ("/root", "/etc/shadow") if os.access(path, os.R_OK)]
    seen["changes"] = [
        path for path in ("/opt/spindown/worker", "/opt/spindown/system", "/etc", "/usr/bin")
        if os.access(path, os.W_OK)
    ]
    if os.fork() == 0:
        os.setsid()
        # Else the installer would wait for it, until the instance is up for too long.
        os.closerange(0, 256)
        import time
        time.sleep(600)
    name, info = "built-1.0-py3-none-any.whl", "built-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("built.py", f"SEEN = {seen!r}")
        for member, text in {
            "METADATA": "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n",
            "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
            "RECORD": "",
        }.items():
            wheel.writestr(f"{info}/{member}", text)
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "built"
version = "1.0"
"""


def test_who_builds_the_code_s_packages_has_no_rights(root: CleanRoot) -> None:
    probe = root.directory / "opt" / "probe"
    probe.mkdir(exist_ok=True)
    (probe / "probe.py").write_text(PROBE)
    files: dict[str, str | bytes] = {
        "needs.txt": "./built\n",
        "built/backend.py": BACKEND,
        "built/pyproject.toml": PROJECT,
    }
    code = root.directory / "code.zip"
    zip_code(code, files, requirements="needs.txt", allow_source_builds=True)
    # The metadata, where the rule of this network alone stands between them and who builds.
    serve = "ip link set lo up && ip address add 169.254.169.254/32 dev lo && cd /opt/probe && "
    serve += "(/usr/bin/python3 -m http.server --bind 169.254.169.254 80 >/dev/null 2>&1 &) && "
    install = "sh /kit/system/install.sh --offline --code /code.zip"
    done = root.run_apart("sh", "-c", serve + install)
    assert done.returncode == 0, done.stdout + done.stderr

    show = "import built, json; print(json.dumps(built.SEEN))"
    told = root.run("/opt/spindown/bin/run-python", "-c", show)
    seen = json.loads(told.stdout)
    worker = root.run("id", "-u", "spindown").stdout.strip()
    assert seen["uid"] not in {0, int(worker)}
    assert (seen["groups"], int(seen["capabilities"], 16), int(seen["bounds"], 16)) == ([], 0, 0)
    assert seen["reached"] is False
    assert (seen["reads"], seen["changes"]) == ([], [])
    owners = root.run("find", "/opt/spindown/run", "!", "-user", "root")
    assert owners.stdout == ""


#: On an instance that is to work; memory stands in for the disks of a Deep Learning AMI.
BOOTSTRAP = """
set -eu
stubs=$(mktemp -d)
printf '#!/bin/sh\n' >$stubs/systemctl
printf '#!/bin/sh\nshift && exec "$@"' >$stubs/timeout
chmod +x $stubs/*
mkdir -p /opt/fresh /opt/dlami/nvme
mount --bind /opt/fresh /opt/spindown
mount -t tmpfs -o size=1t tmpfs /opt/dlami/nvme
touch /run/spindown-begun
PATH=$stubs:$PATH sh /kit/system/install.sh --offline --code /code.zip >&2
ls -A /opt/spindown/run >&2
test ! -e /opt/spindown/run/.build
stat -f -c %T /opt/spindown/run/lib/python*/site-packages/built.py /opt/spindown/worker
"""


def test_an_instance_installs_packages_on_its_own_disks(root: CleanRoot) -> None:
    wheel = make_wheel(root.directory, "built", {"built.py": "HERE = True\n"})
    files: dict[str, str | bytes] = {
        "needs.txt": f"./{wheel.name}\n",
        wheel.name: wheel.read_bytes(),
    }
    zip_code(root.directory / "code.zip", files, requirements="needs.txt")

    done = root.run_apart("sh", "-c", BOOTSTRAP)

    assert done.returncode == 0, done.stdout + done.stderr
    packages, worker = done.stdout.splitlines()[-2:]
    assert (packages, worker == "tmpfs") == ("tmpfs", False)
