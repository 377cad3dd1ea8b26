"""What a person reads of the local system: how it is reached, and what runs in it."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from spindown.cli.init import init
from spindown.cli.local import down, left_off, render_instances, say_lost, say_untold, say_up, up
from spindown.cli.session import point_at_local_system
from spindown.config import Config, load
from spindown.error import BadInput, ConfigError
from spindown.local.daemon import DaemonError, check_there
from spindown.local.state import StateDirectory
from spindown.local.status import InstanceStatus, QueueStatus, SystemStatus

CONSOLE = "/somewhere/far/below/.spindown/instances/i-0123456789abcdef0/console.log"

UP = SystemStatus(
    endpoint="http://127.0.0.1:4580",
    region="us-east-1",
    deployment="demo",
    pid=1,
    queues=(),
    functions=(),
    instances=(),
)


@pytest.mark.parametrize(
    ("state", "is_found"),
    [(Path(".spindown"), True), (Path.cwd() / ".spindown", True), (Path("elsewhere"), False)],
    ids=["the usual place", "the same by its whole name", "another"],
)
def test_local_is_named_only_where_commands_find_it_so(state: Path, *, is_found: bool) -> None:
    said = "\n".join(say_up(UP, state))

    assert ("Give --local to other commands" in said) is is_found
    assert ("From other commands (without --local)" in said) is not is_found
    assert f"{state.resolve()}/aws-config" in said


def test_code_that_cannot_run_starts_no_local_system(tmp_path: Path) -> None:
    config = tmp_path / "spindown.toml"
    init(config=config)
    (tmp_path / "code" / "main.py").write_text("def run(batch, ctx):\n")

    with pytest.raises(ConfigError, match="line 1"):
        up(config=config, state=tmp_path / "state")

    assert not (tmp_path / "state").exists()


def test_a_ctrl_c_says_that_no_system_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), left_off(tmp_path):
        raise KeyboardInterrupt

    assert capsys.readouterr().err == (
        "spindown: no local system is left running; "
        f"go on with: spindown local up --state {tmp_path}\n"
    )


def test_a_ctrl_c_says_that_a_system_runs_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        StateDirectory(tmp_path).held(),
        pytest.raises(KeyboardInterrupt),
        left_off(tmp_path),
    ):
        raise KeyboardInterrupt

    assert f"end it with: spindown local down --state {tmp_path}\n" in capsys.readouterr().err


def test_local_is_found_beside_the_file_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = Path("project")
    directory = StateDirectory(project / ".spindown")
    with directory.held():
        directory.tell(endpoint="http://127.0.0.1:9")
        # Whoever was found and does not answer.
        with pytest.raises(DaemonError, match=r"http://127.0.0.1:9 does not answer"):
            point_at_local_system(project / "spindown.toml")
        with pytest.raises(BadInput, match="no local system runs in this folder: run this where"):
            point_at_local_system(Path("spindown.toml"))


def test_who_follows_hears_that_the_local_system_has_ended(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    with directory.held():
        directory.tell()
        check_there(tmp_path, directory.pid)
        # Another was started in its place.
        with pytest.raises(DaemonError, match="has ended"):
            check_there(tmp_path, directory.pid + 1)
    with pytest.raises(DaemonError, match="has ended"):
        check_there(tmp_path, directory.pid)


@pytest.mark.parametrize(
    ("with_jobs", "said"), [((), ["1 job in hand and 5 waiting"]), (("a",), ["5 waiting", "of a"])]
)
def test_jobs_are_lost_with_the_system_as_well(with_jobs: tuple[str, ...], said: list[str]) -> None:
    counts = {"d--a": (2, 0), "d--a--c16m256": (3, 1), "d--a--dlq": (7, 0), "d-core-Failed": (9, 0)}
    queues = [
        QueueStatus(name=name, url="", visible=visible, in_flight=in_flight)
        for name, (visible, in_flight) in counts.items()
    ]

    assert all(part in say_lost(with_jobs, queues) for part in said)
    assert say_lost((), queues[2:]) == ""


def a_config(directory: Path, deployment: str = "", run: str = "") -> Config:
    path = directory / "spindown.toml"
    path.write_text(
        f"""
[deployment]
name = "lab"
region = "us-east-1"
zones = ["us-east-1a"]
{deployment}

[workload.main.run]
entrypoint = "main:run"
code = "code"
{run}
"""
    )
    return load(path)


def test_who_is_told_nothing_here_is_said_with_the_remedy(tmp_path: Path) -> None:
    told = 'alarm_webhook = "/team/chat"\nalarm_email = "a@example.org"'
    loaded = a_config(tmp_path, told, 'secrets = { KEY = "team/key" }')
    plain = a_config(tmp_path)

    missing = "\n".join(say_untold(loaded, lambda _: False))
    there = "\n".join(say_untold(loaded, lambda _: True))

    assert "alarm_email" in missing
    assert "--name /team/chat" in missing
    assert "create-secret --name team/key" in missing
    assert ["lab--alarms" in one for one in (missing, there)] == [True, True]
    assert "/team/chat" not in there
    assert "team/key" not in there
    assert list(say_untold(plain, lambda _: False)) == []


def test_only_queues_that_people_send_to_are_told() -> None:
    names = ("demo--classify", "demo--classify--c16m256", "demo--classify--dlq")
    queues = tuple(
        QueueStatus(name=one, url=f"http://here/{one}", visible=0, in_flight=0)
        for one in (*names, "demo-core-ControlFailedEvents1-2")
    )

    said = [line.strip() for line in say_up(replace(UP, queues=queues), Path(".spindown"))]

    assert [line for line in said if line.startswith("http")] == ["http://here/demo--classify"]


def test_an_instance_and_its_console_fit_a_narrow_screen() -> None:
    instance = InstanceStatus(
        instance_id="i-0123456789abcdef0",
        instance_type="g4dn.12xlarge",
        zone="us-east-1b",
        capacity_type="on-demand",
        state="terminated",
        price_per_hour=3.912,
        console=CONSOLE,
    )
    console = Console(width=80)
    with console.capture() as captured:
        for part in render_instances([instance], ended=True):
            console.print(part, soft_wrap=isinstance(part, str), markup=False)

    lines = captured.get().splitlines()

    told = [instance.instance_id, instance.instance_type, instance.zone, "on-demand", "3.9120"]
    assert lines[1].split() == [*told, "terminated"]
    assert f"  {CONSOLE}" in lines


def test_without_instances_no_table_is_shown() -> None:
    assert list(render_instances([], ended=False)) == []


def test_an_instance_that_has_ended_is_only_counted() -> None:
    ended = InstanceStatus(
        instance_id="i-0123456789abcdef0",
        instance_type="g4dn.xlarge",
        zone="us-east-1b",
        capacity_type="spot",
        state="terminated",
        price_per_hour=0.2,
        console=CONSOLE,
    )
    live = replace(ended, instance_id="i-0123456789abcdef1", state="running")

    said, table, *rest = render_instances([ended, live], ended=False)

    assert "1 instance ended" in str(said)
    assert isinstance(table, Table)
    assert list(table.columns[0].cells) == [live.instance_id]
    assert len(rest) == 3


@pytest.mark.parametrize("size", [0, 2_000_000])
def test_what_stays_on_the_disk_is_told_if_it_is_much(
    tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asset").write_bytes(bytes(size))

    down(state=tmp_path)

    assert (f"rm -r {tmp_path}" in capsys.readouterr().out) is bool(size)
