"""What a container is to the worker, in real ones: docker's, as on an instance, and podman's.

Needs root and Debian's packages; without them each test fails with one sentence that names them.
"""

import errno
import os
import shutil
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import NoRuntime, find_runtime, remove_containers
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BatchDone, Event, ItemDone
from tests.local.waiting import until
from tests.proof.container.bench import GID, OWNER, SECRET, UID, WORKERS_OWN, Bench
from tests.proof.container.engine import METADATA, PATH, Engine
from tests.proof.container.registry import IMAGE, PORT

pytestmark = pytest.mark.proof


def drain(runner: CommandRunner) -> list[Event]:
    events: list[Event] = []
    while not events or isinstance(events[-1], ItemDone):
        event = runner.poll(timedelta(seconds=10))
        events += [] if event is None else [event]
    return events


def value_of(runner: CommandRunner) -> Any:
    [done, end] = drain(runner)
    assert isinstance(done, ItemDone), done
    assert end == BatchDone()
    assert done.error is None
    return done.value


def first_value(runner: CommandRunner) -> Any:
    """Return the first result, while the program goes on."""

    def look() -> Event | None:
        return runner.poll(timedelta(seconds=1))

    done = until(look, seconds=60)
    assert isinstance(done, ItemDone), done
    return done.value


def broken(runner: CommandRunner) -> Broken:
    event = drain(runner)[-1]
    assert isinstance(event, Broken)
    return event


def test_items_go_in_results_and_files_come_out(bench: Bench) -> None:
    runner = bench.run(
        """
        echo "to the log"
        tr a-z A-Z <"$SPINDOWN_INPUT" >"$SPINDOWN_ITEM_OUTPUT/upper.txt"
        tell "$SPINDOWN_ITEM, $(wc -c <"$SPINDOWN_PARAMS"), $LEVEL, $SPINDOWN_SLOT"
        """
    )
    [done, end] = drain(runner)
    assert (done, end) == (
        ItemDone(
            index=0,
            value="value of the item, 2, 3, 0",
            files=("upper.txt",),
            seconds=getattr(done, "seconds", 0.0),
            size=getattr(done, "size", 0),
        ),
        BatchDone(),
    )
    assert (bench.job / "outputs" / "0" / "upper.txt").read_text() == "INPUT"
    assert bench.output_log.read().decode() == "to the log\n"


def test_a_container_has_the_user_s_rights_and_no_more(bench: Bench) -> None:
    runner = bench.run(
        """
        exec 2>/dev/null
        read_status() { grep "^$1:" /proc/self/status | tr -d ' \\t' | cut -d: -f2; }
        writable=""
        for path in / /bin . .. "$SPINDOWN_CHECKPOINT/.." "$SPINDOWN_CHECKPOINT" "$HOME"; do
            touch "$path/written" && writable="$writable $path"
        done
        tell "$(id -u) $(id -g) $(read_status CapEff) $(read_status CapBnd) \
$(read_status NoNewPrivs) $(cat /proc/self/oom_score_adj)$writable"
        """
    )
    none = "0" * 16
    state = bench.job / "state"
    assert value_of(runner) == f"{UID} {GID} {none} {none} 1 500 {state} {bench.job}/home"
    assert (bench.job / "state" / "written").stat().st_uid == UID


def test_the_environment_is_what_the_workload_says(bench: Bench) -> None:
    runner = bench.run('echo "$TOKEN" >"$SPINDOWN_ITEM_OUTPUT/t"; env >"$SPINDOWN_ITEM_OUTPUT/env"')
    drain(runner)
    output = bench.job / "outputs" / "0"
    assert (output / "t").read_text() == f"{SECRET}\n"
    text = (output / "env").read_text()
    names = {line.partition("=")[0] for line in text.splitlines()}
    contract = {name for name in names if name.startswith("SPINDOWN_")}
    assert names - contract <= {
        *("HOME", "HOSTNAME", "LEVEL", "PATH", "PWD", "PYTHONUNBUFFERED", "SHLVL", "TERM", "TOKEN"),
        "container",
    }
    assert not [value for value in WORKERS_OWN.values() if value in text]


def test_no_secret_stands_among_the_arguments_of_a_process(bench: Bench) -> None:
    runner = bench.run("tell ready; sleep 60")
    first_value(runner)
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes())
        except OSError:
            continue
    assert any(b"program.sh" in line for line in lines)
    assert not [line for line in lines if SECRET.encode() in line]


def test_an_image_s_own_command_runs_where_none_is_named(bench: Bench) -> None:
    drain(bench.run("", command=()))
    assert bench.output_log.read() == b"the image's own command\n"


def test_a_drained_container_has_its_grace_and_another_resumes(
    bench: Bench,
) -> None:
    runner = bench.run(
        """
        if [ -e "$SPINDOWN_CHECKPOINT/step" ]; then
            tell "from $(cat "$SPINDOWN_CHECKPOINT/step")"
            exit
        fi
        trap 'echo 41 >"$SPINDOWN_CHECKPOINT/step"; tell stopped; exit' TERM
        echo started
        while :; do sleep 0.05; done
        """
    )
    until(lambda: runner.poll(timedelta(seconds=0.1)) or bench.output_log.read() == b"started\n")
    assert [done.value for done in runner.stop(timedelta(seconds=20))] == ["stopped"]
    assert bench.engine.containers() == []
    bench.begin(runner)
    assert value_of(runner) == "from 41"


def test_a_container_that_does_not_listen_ends_after_grace(bench: Bench) -> None:
    runner = bench.run("trap '' TERM; tell before; while :; do sleep 0.05; done")
    assert first_value(runner) == "before"
    began = time.monotonic()
    runner.stop(timedelta(seconds=0.3))
    # Where a runtime is asked to remove what runs, it may wait ten seconds.
    assert time.monotonic() - began < 5
    assert bench.engine.containers() == []


def test_a_container_out_of_time_is_gone(bench: Bench) -> None:
    runner = bench.run("trap '' TERM; sleep 600 & wait", item_timeout=timedelta(seconds=1.5))
    end = broken(runner)
    assert end.cause is FailureCause.TIMEOUT
    assert "item_timeout" in end.reason
    assert " 1.5 s " in end.reason
    assert bench.engine.containers() == []


def test_a_kill_for_memory_is_a_failure_with_its_cause(bench: Bench) -> None:
    runner = bench.run(
        """
        echo "loads the model"
        exec awk 'BEGIN { text = "weights "; while (1) text = text text }'
        """
    )
    end = broken(runner)
    assert end.cause is FailureCause.OUT_OF_MEMORY
    assert end.reason.endswith('"loads the model"')


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo oh; exit 3", 'status 3; its last output was "oh"'),
        ("kill -SEGV $$", "status 139"),
        ("exec no-such-program", "status 127"),
    ],
)
def test_a_failure_is_told_as_that_of_a_command(bench: Bench, script: str, says: str) -> None:
    end = broken(bench.run(script))
    assert end.cause is FailureCause.ENDED
    assert says in end.reason


def test_bad_input_fails_the_item_alone(bench: Bench) -> None:
    [done, end] = drain(bench.run("echo 'bad header'; exit 65"))
    assert isinstance(done, ItemDone)
    assert (done.error, end) == ("bad header", BatchDone())


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(IMAGE.replace("busybox", "absent"), id="no such image"),
        pytest.param(f"localhost:{PORT + 1}/a:1", id="no such registry"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_one_sentence(bench: Bench, image: str) -> None:
    end = broken(bench.run("", image=image))
    assert end.cause is FailureCause.NOT_PULLED
    assert image in end.reason
    assert "\n" not in end.reason
    assert ("manifest unknown" if "absent" in image else "connection refused") in end.reason


def test_a_program_that_the_image_lacks_is_told(bench: Bench) -> None:
    end = broken(bench.run("", command=("/no/such/program",)))
    # By the container's first process, which each runtime brings along.
    assert end.cause is FailureCause.ENDED
    assert os.strerror(errno.ENOENT) in end.reason


def test_a_container_that_cannot_start_fails_in_runtime_s_words(
    bench: Bench,
) -> None:
    # No GPU, or no NVIDIA toolkit: what a workload that asks for one would meet.
    end = broken(bench.run("", gpus=None))
    assert end.cause is FailureCause.NOT_STARTED
    assert "gpu" in end.reason
    assert "\n" not in end.reason


def test_the_use_of_a_container_is_that_of_its_own_processes(bench: Bench) -> None:
    runner = bench.run("tell ready; sleep 60")
    first_value(runner)
    client = runner._program
    assert client is not None
    assert runner.pid not in {None, client.pid}


def test_a_container_outlives_a_killed_worker_until_the_next(bench: Bench) -> None:
    engine, another = bench.engine, "i-of-another"
    beat = 'while :; do echo >>"$SPINDOWN_ITEM_OUTPUT/beats"; sleep 0.05; done'
    for owner in (OWNER, another):
        runner = bench.run(f"trap '' TERM; tell ready; {beat}", owner=owner)
        first_value(runner)
        client = runner._program
        assert client is not None
        # As a kill of the whole worker leaves it.
        os.killpg(client.pid, signal.SIGKILL)
        # Podman itself may know nothing of it: its client has not yet noted what it started.
        beats = bench.job / "outputs" / "0" / "beats"
        beats.unlink(missing_ok=True)
        until(beats.exists, seconds=60)

    removed = remove_containers(bench.runtime, OWNER, engine.env)

    assert len(removed) == 1
    [rest] = engine.containers()
    assert another in rest


def test_no_container_reaches_metadata_unless_the_rule_is_gone(bench: Bench) -> None:
    ask = f'tell "$(timeout 3 wget -q -O- {METADATA} 2>/dev/null || echo refused)"'

    def look() -> tuple[str, bool, bool]:
        return (value_of(bench.run(ask)), *map(bench.engine.reaches_metadata, (0, UID)))

    before = look()
    bench.engine.guard(UID)
    guarded = look()
    bench.engine.unguard()
    open_to_all = ("credentials", True, True)
    assert [before, guarded, look()] == [open_to_all, ("refused", True, False), open_to_all]


def test_a_real_podman_without_root_is_not_taken(engine: Engine, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, UID, GID)
    for path in (home, *home.parents[:4]):
        path.chmod(path.stat().st_mode | 0o711)
    scripts = {
        "docker": "exit 1",
        "nerdctl": "exit 1",
        "podman": f"exec setpriv --reuid={UID} --regid={GID} --clear-groups --no-new-privs env "
        f'HOME={home} XDG_RUNTIME_DIR={home} {shutil.which("podman", path=PATH)} "$@"',
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)

    with pytest.raises(NoRuntime, match="podman"):
        find_runtime({"PATH": f"{tmp_path}:{PATH}"})
