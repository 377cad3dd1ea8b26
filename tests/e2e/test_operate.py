"""The deployed template with workloads of every kind, for who operates them.

Each kind does its work, `spindown verify` included; then views, policies, alerts, the bill and
advice. To deploy costs more than all that is asked of it, so one deployment serves all.
"""

import json
import os
import pty
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.job.batch import UPLOADS
from spindown.domain.month_bill import Grouping
from spindown.domain.verification import Interruption, VerifyCheck
from spindown.operate.sent_folder import pack_folder
from tests.cost_export import CUR_COLUMNS, Used, cur_row, write_csv
from tests.day import day_rows
from tests.e2e.mixed import TYPES, check_mixed, send_mixed
from tests.e2e.world import (
    HANGING,
    SWIFT,
    World,
    deployed,
    found,
    parsed,
    write_deployment,
)
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.long(minutes=3)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = write_deployment(
        tmp_path_factory.mktemp("e2e"), "count", "absent", "lab", "mixed", "verify"
    )
    path.write_text(path.read_text(encoding="utf-8") + TYPES, encoding="utf-8")
    with deployed(path) as world:
        yield world


def test_a_deployment_proves_itself(world: World, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = world.spindown("verify", "--yes", "--json", "--html", str(page), "--items", "40")

    told = json.loads(done.stdout)
    verdicts = {one["check"]: one["passed"] for one in told["checks"]}
    assert verdicts == dict.fromkeys([str(check) for check in VerifyCheck], True), told
    assert (done.returncode, told["passed"]) == (0, True)
    run = told["run"]
    assert run["interruption"] == Interruption.FAULT_INJECTION
    assert run["items"]["right"] == 40
    assert len(run["machines"]) == 2
    assert "<script" not in page.read_text(encoding="utf-8")


def test_thirty_mixed_jobs_get_the_machines_that_they_need(world: World) -> None:
    jobs = send_mixed(world, 30)
    assert len(jobs) == 30
    check_mixed(world, jobs)


def test_code_that_cannot_be_imported_fails_the_job(world: World) -> None:
    message_id = world.send("absent", {"items": ["a"], "job_id": "unloadable"})

    letter = world.dead_letter("absent", message_id)

    assert "a_module_that_nobody_installed" in letter["reason"]
    assert letter["job_id"] == "unloadable"
    assert world.finished("unloadable").state == "failed"
    told = world.spindown("results", "unloadable")
    assert "a_module_that_nobody_installed" in told.stderr


def test_a_command_is_run_in_a_copy_of_a_folder(world: World, tmp_path: Path) -> None:
    (tmp_path / "say.sh").write_text("read word < data; echo $word > outputs/made; exit 7")
    (tmp_path / "data").write_text("hello")
    (tmp_path / ".env").write_text("secret")
    folder = ("--config", str(world.directory / "spindown.toml"), "--folder", str(tmp_path))
    # The workload declares no types.
    assert world.run("run", *folder, "--cpu", "1", "true").returncode == 1

    found(lambda: is_quiet(world.session.status("lab")))
    done = world.run("run", *folder, "--", "sh", "-c", "ls -A; . ./say.sh")

    title, *listed = done.stdout.splitlines()
    assert listed[:4] == [".spindown-command.json", "data", "outputs", "say.sh"]
    (made,) = (tmp_path / "outputs").glob("*/made")
    assert made.read_text() == "hello\n"
    assert done.returncode == 7
    job_id = title.removeprefix("== ").partition(",")[0]
    assert world.finished(job_id).items_failed == 1
    # Whoever tells of it tells the same.
    (batch,) = world.spindown_json("status", job_id)
    assert (batch["batch"]["state"], batch["batch"]["items_failed"]) == ("failed", 1)
    assert world.run("results", job_id).returncode == 1
    instances = {one.instance_id: one for one in world.instances("lab")}
    (instance,) = [one for one in instances.values() if one.instance_id in title]
    # Which pools were tried, and what one run has used.
    assert f"{instance.instance_type}/{instance.zone}/" in done.stderr
    assert any("CPU" in line for line in listed[4:])


def test_an_interrupted_run_goes_on_without_its_sender(world: World, tmp_path: Path) -> None:
    gate = world.directory / "lab-gate"
    # Its line is seen though it flushes none.
    waits = (
        f"import os, time\nprint('begun')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)"
    )
    command = (sys.executable, "-c", waits)

    with world.followed("run", "--folder", str(tmp_path), "--", *command) as runner:
        assert runner.stdout is not None
        title = next(runner.stdout)
        assert next(runner.stdout) == "begun\n"
        runner.send_signal(signal.SIGINT)
        assert runner.wait(HANGING) == 130

    job_id = title.removeprefix("== ").partition(",")[0]
    gate.touch()
    assert world.finished(job_id).state == "completed"
    assert [one["result"] for one in world.records(job_id)] == [{"exit_status": 0}]


def test_a_run_is_cancelled_by_whom_it_is_asked(world: World, tmp_path: Path) -> None:
    screen, keys = pty.openpty()
    command = ("run", "--folder", str(tmp_path), "--", "sh", "-c", "echo begun; sleep 600")
    with world.followed(*command, stdin=keys) as runner:
        assert runner.stdout is not None
        title = next(runner.stdout)
        assert next(runner.stdout) == "begun\n"
        runner.send_signal(signal.SIGINT)
        os.write(screen, b"c\n")
        assert runner.wait(HANGING) == 130
    os.close(screen)
    os.close(keys)

    assert world.finished(title.removeprefix("== ").partition(",")[0]).state == "cancelled"


def test_what_a_sender_uploads_is_never_run(world: World, tmp_path: Path) -> None:
    evil = pack_folder(tmp_path, ["sh", "-c", "echo owned"])
    store = world.session.work_store("lab")
    store.put(f"{UPLOADS}b/{evil.digest}.zip", evil.archive)
    items = [f"{world.session.work_uri('lab')}{UPLOADS}b/{evil.digest}.zip", "sh -c true"]

    world.send("lab", {"items": items, "job_id": "evil"})

    assert world.finished("evil").items_failed == 2
    assert "owned" not in world.spindown("logs", "evil", "--workload", "lab").stdout


def test_every_view_is_json_for_programs(world: World) -> None:
    # Tests come in any order: what an item takes is known of a job that is done.
    world.send("count", {"items": ["a"], "job_id": "viewed"})
    world.finished("viewed")
    workloads = [entry["workload"] for entry in world.spindown_json("status")]

    def plan_without_workers() -> Any:
        plan = world.spindown_json("plan", "count", "--backlog", "3")
        return plan if plan["sizing"]["wanted"] else None

    plan = found(plan_without_workers)
    (decision, *_) = world.spindown_json("why", "count")[0]["decisions"]

    assert sorted(workloads) == ["absent", "count", "lab", "mixed", "verify"]
    assert plan["sizing"]["wanted"] == 1
    assert {"offer", "constraint", "reason"} < plan["rejected"][0].keys()
    # The function that keeps the catalogue has read the spot advisor's file and the volumes.
    offers = [candidate["offer"] for candidate in plan["candidates"]]
    assert all(o["reclaim_share"] for o in offers if o["capacity_type"] == "spot")
    assert all(o["volume_price"] > 0 for o in offers)
    assert decision["workload"] == "count"


def test_usage_tells_what_a_job_has_used(world: World) -> None:
    world.send("count", {"items": ["a"], "job_id": "used"})
    assert world.finished("used").state == "completed"

    sql = "SELECT seconds, gpu_mean, vcpus FROM usage WHERE job_id = 'used'"
    # Workers write at their end what they have measured.
    (row,) = found(lambda: world.spindown_json("usage", "count", "--sql", sql))

    assert row["seconds"] > 0.0
    assert row["vcpus"] > 0.0
    assert row["gpu_mean"] is None
    types = world.spindown_json("usage", "--type", "count")
    assert [one["type"] for one in types] == ["count"]


def test_a_policy_set_live_is_in_force_and_a_broken_edit_is_not(world: World) -> None:
    assert world.spindown_json("policy", "set", "count", "max_workers=0") == {"max_workers": 0}
    found(lambda: is_quiet(world.session.status("count")))
    world.send("count", {"items": ["a"], "job_id": "held-back"})
    found(lambda: "max_workers is 0" in world.session.status("count").decision)

    world.put_live_policy("count", json.dumps({"max_workers": "many"}))
    troubles = world.session.status("count").troubles
    shown = world.spindown("policy", "diff", "count")
    assert troubles == ("the live policy is refused: max_workers is 'many': write a whole number",)
    assert "the last valid edit is in force" in shown.stderr
    assert "max_workers  1         0" in shown.stdout

    refused = world.spindown("policy", "set", "count", "max_workers=some")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith("spindown: max_workers is 'some': write a whole number\n")

    assert world.spindown_json("policy", "reset", "count", "max_workers") == {"max_workers": 1}
    assert world.finished("held-back").state == "completed"


def test_a_subscriber_hears_why_an_item_became_dear(world: World) -> None:
    found(lambda: is_quiet(world.session.status("lab")))
    inbox = world.subscribe()
    ledger, today = world.session.ledger("lab"), datetime.now(UTC)
    day = {"items": 100, "launches": 1, "boot_seconds": 60.0, "busy_seconds": 3600.0}
    for ago, dollars in ((0, 4.0), (7, 1.0), (14, 1.0)):
        at = today - timedelta(days=ago)
        for sort, row in day_rows(at, {"dollars": dollars, **day}).items():
            ledger.write(ledger.change(sort, row))

    said = world.invoke("offers")

    assert said["expensive"] == {"lab": "price"}
    assert (said["not_judged"], said["not_lost"]) == ({}, {})
    (subject, text) = world.heard(inbox, "lab")
    assert subject == "e2e--lab: cost-price"
    assert text.startswith("lab: ")
    assert "0.04 USD" in text
    assert "0.01" in text
    assert "`max_price_per_hour`" in text
    assert world.invoke("offers")["expensive"] == {"lab": "price"}
    assert world.is_silent(inbox, "lab")
    assert world.spindown_json("cost", "lab")["rise"]["rise"]["usual"]["items_per_launch"] == 100

    accepted = world.spindown_json("policy", "accept-cost", "lab")
    assert accepted["dollars"] == pytest.approx(0.04, rel=0.01)
    assert accepted["by"].startswith("arn:")
    assert world.invoke("offers")["expensive"] == {}
    (line,) = world.spindown("policy", "history", "lab", "--json").stdout.splitlines()
    assert json.loads(line) == accepted
    assert world.spindown_json("cost", "lab")["rise"] is None


def test_the_bill_is_the_market_s_within_cents(world: World) -> None:
    # Tests come in any order; this one may be the first.
    world.send("count", {"items": ["a"], "job_id": "billed"})
    world.finished("billed")
    workloads = world.session.deployment.workloads
    found(lambda: all(is_quiet(world.session.status(name)) for name in workloads))
    lines = world.system.market.bill()
    now = datetime.now(UTC)
    tags = {"spindown:deployment": world.session.deployment.name}
    rows = [
        cur_row(
            Used(
                at=now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1),
                length=timedelta(hours=2),
                dollars=line.dollars,
                amount=line.paid_seconds / 3600,
                resource=line.instance_id,
                tags=tags,
            )
        )
        for line in lines
    ]
    export = write_csv(world.directory / "cur.csv.gz", CUR_COLUMNS, rows)

    told = world.spindown_json("bill", "--export", str(export))

    # The market charges nothing for a machine that it has taken back within its first hour.
    machines = {one["instance_id"]: one for one in told["machines"]}
    assert machines.keys() >= {line.instance_id for line in lines if line.paid_seconds}
    assert machines.keys() <= {line.instance_id for line in lines}
    charged = sum(line.dollars for line in lines)
    assert charged > 0
    # Of a machine whose end is not in the books yet some seconds are told.
    minutes_left = 0.002 * len(lines)
    booked = sum(one["machine"] for one in machines.values())
    assert booked == pytest.approx(charged, abs=minutes_left)
    (kind,) = (one for one in told["export"]["kinds"] if one["kind"] == "machines")
    assert kind["billed"] == pytest.approx(charged)
    assert abs(kind["billed"] - kind["booked"]) < minutes_left
    assert told["export"]["tags"] == ["spindown:deployment"]
    for grouping in Grouping:
        rows_told = world.spindown_json("bill", "--by", grouping)["rows"]
        assert sum(row["dollars"] for row in rows_told) == pytest.approx(told["dollars"], rel=0.01)
    assert world.spindown("bill", "--csv").stdout.startswith("name,usd,estimate")


def test_what_came_to_a_queue_can_be_simulated_and_advised_on(world: World) -> None:
    world.send("count", {"items": ["a", "bb"], "job_id": "remembered"})
    world.finished("remembered")
    # A tick of a second is for the tests beside this one: 60 times as many events to simulate.
    text = (world.directory / "spindown.toml").read_text(encoding="utf-8")
    calm = world.directory / "calm.toml"
    calm.write_text(text.replace(SWIFT, ""), encoding="utf-8")
    asked = (
        *("--workload", "count", "--arrivals", "cloudwatch", "--days", "0.1", "--seed", "3"),
        *("--policy", str(calm), "--processes", "1", "--json"),
    )

    history = world.session.aws.traffic()
    now = datetime.now(UTC)
    span = {"since": now - timedelta(hours=1), "until": now + timedelta(minutes=1)}

    # CloudWatch tells of a message when its minute is summed up.
    found(lambda: history.sent("e2e--count", **span))
    told = parsed(world.run("simulate", *asked, *("--prices", "live", "--against", "warm")))
    ours, warm = told["results"]
    assert ours["jobs_done"] == ours["jobs"] > 0
    assert ours["dollars"] < warm["dollars"]
    assert told["arrivals"].endswith(" that came to e2e--count in 0.1 days")
    assert "an item is taken for" in " ".join(told["assumed"])

    advice = parsed(world.run("advise", *asked, *("--within", "10m")))
    assert advice["prices"] == "EC2's prices in us-east-1a, us-east-1b"
    assert advice["promise_seconds"] == 600.0
    assert advice["advised"]["dollars_a_month"] <= advice["now"]["dollars_a_month"]
    assert all(verdict["sentence"] for verdict in advice["when_not"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(
            ("status", "cuont"),
            "WORKLOAD, BATCH or JOB is 'cuont': name a batch or a job",
            id="an unknown name",
        ),
        pytest.param(
            ("results", "nobody"),
            "BATCH or JOB is 'nobody': name a batch or a job",
            id="an unknown batch",
        ),
        pytest.param(
            ("policy", "reset", "count", "nothing"),
            "key is 'nothing': name a key",
            id="an unknown key",
        ),
        pytest.param(
            ("submit", "count", "--items", "/absent.jsonl"),
            "--items is '/absent.jsonl': give a readable file",
            id="an absent list",
        ),
    ],
)
def test_a_mistake_is_one_sentence(world: World, arguments: tuple[str, ...], sentence: str) -> None:
    told = world.spindown(*arguments)

    assert (told.returncode, told.stdout) == (1, "")
    # On a busy machine it may say before that it loads.
    (said,) = [line for line in told.stderr.splitlines() if not line.endswith(" ...")]
    assert said.startswith(f"spindown: {sentence}")
