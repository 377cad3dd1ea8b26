"""The status of a workload is what the ledger and the queue say, for a person."""

import io
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from rich.console import Console

from spindown.cli.explain.status import to_json
from spindown.cli.option import GIVEN
from spindown.cli.render.saving import format_item_cost
from spindown.cli.render.screen import TextConsole, format_seconds, render_status
from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import DecisionSummary, Outcome
from spindown.contract.row import (
    BacklogRow,
    BreakerRow,
    DecisionRow,
    DoneRow,
    QuotaRow,
    SpendRow,
)
from spindown.domain.alert import AlertState
from spindown.domain.fleet import CodeProgress, Worker, WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.ec2sim import MemoryClock
from spindown.ledger import Ledger, account_key
from spindown.memory.queue import MemoryJobQueue
from spindown.memory.table import MemoryTable
from spindown.operate.status import Status, read_status
from spindown.port import Key, Outgoing, Table, Write
from spindown.reason_text import say, say_coming
from tests.builders import NOW, a_lease, a_worker, account_refused


class World:
    def __init__(self) -> None:
        self.clock = MemoryClock(NOW)
        self.table = MemoryTable(self.clock)
        self.queue = MemoryJobQueue(self.clock, Random(1))
        self.dead_letters = MemoryJobQueue(self.clock, Random(1))

    def put(self, sort: str, value: object) -> None:
        put_row(self.table, sort, value)

    def status(self, *, refusal: str = "") -> Status:
        return read_status(
            "ocr",
            ledger=Ledger(self.table, "ocr"),
            queues={"": self.queue},
            dead_letters=self.dead_letters,
            budget_usd=100.0,
            refusal=refusal,
            now=NOW,
        )


def put_row(table: Table, sort: str, value: object) -> None:
    key = Key(partition=rows.live_partition("ocr", sort), sort=sort)
    table.write(Write(key=key, set=encode(value)))
    if isinstance(value, Worker):
        # As its launch has written it.
        machine = Key(rows.control_partition("ocr"), rows.machine_sort_key(value.instance_id))
        table.write(Write(key=machine, set=encode(value)))


def test_commands_in_json_find_the_same_deployment() -> None:
    see = "see `spindown why`"
    found = replace(World().status(), decision=see, notes=(see,), troubles=(see,))
    given = GIVEN.set(" --local")
    try:
        row = to_json(found)
    finally:
        GIVEN.reset(given)

    assert {row["decision"], *row["notes"], *row["troubles"]} == {"see `spindown why --local`"}


def screen_of(status: Status, *, width: int = 140, ended: bool = False) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(render_status(status, ended=ended))
    return captured.get()


def test_an_empty_deployment_says_that_nothing_bills() -> None:
    status = World().status()

    assert "none is billed" in screen_of(status)


def test_what_code_says_of_its_progress_stands_beside_its_job() -> None:
    world = World()
    world.put(rows.worker_sort_key("i-1"), a_worker("i-1", state=WorkerState.BUSY, busy_slots=1))
    said = CodeProgress(done=120, of=500, text="epoch 3")
    world.put(rows.lease_sort_key("i-1", 0), a_lease("i-1", progress=said))

    shown = screen_of(world.status(), width=200)

    assert "120/500" in shown
    assert "epoch 3" in shown


def test_what_code_says_makes_no_line_of_ours() -> None:
    world = World()
    world.put(rows.worker_sort_key("i-1"), a_worker("i-1", state=WorkerState.BUSY, busy_slots=1))
    said = CodeProgress(done=1, of=2, text="ok)\nno instances: none is billed")
    world.put(rows.lease_sort_key("i-1", 0), a_lease("i-1", progress=said))
    file = io.StringIO()

    TextConsole(file=file, width=200).print(render_status(world.status()))

    (line,) = [line for line in file.getvalue().splitlines() if "none is billed" in line]
    assert "i-1" in line


def test_the_line_of_a_worker_fits_a_terminal_of_80_columns() -> None:
    world = World()
    world.put(
        rows.worker_sort_key("i-0123456789abcdef0"),
        a_worker("i-0123456789abcdef0", state=WorkerState.BUSY),
    )

    (line,) = [x for x in screen_of(world.status(), width=80).splitlines() if "i-0123" in x]

    assert line.split()[-3:] == ["busy", "30m", "│"]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        pytest.param({"gpu_percent": 34.6, "vram_percent": 20.0}, True, id="a heartbeat told"),
        pytest.param({}, False, id="there is no GPU"),
    ],
)
def test_shows_how_the_gpu_of_a_busy_worker_is_used(told: dict[str, float], *, shown: bool) -> None:
    world = World()
    world.put(rows.worker_sort_key("i-1"), a_worker("i-1", state=WorkerState.BUSY, **told))
    world.put(rows.lease_sort_key("i-1", 0), a_lease("i-1"))

    assert ("GPU 35 %, VRAM 20 %" in screen_of(world.status())) is shown


def test_says_why_an_item_became_dear_as_long_as_it_is() -> None:
    world = World()
    lately = AlertState(since=NOW - timedelta(days=1), seen_at=NOW - timedelta(hours=1))
    world.put(rows.alert_sort_key("cost-sparse-queue"), lately)
    world.put(rows.alert_sort_key("cost-idle"), replace(lately, seen_at=NOW - timedelta(hours=3)))

    (trouble,) = world.status().troubles
    assert "sparse queue" in trouble


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("deadline-missed", "a job is past its deadline"),
        ("deadline-at-risk", "a job takes longer than is left to its deadline"),
    ],
)
def test_says_that_a_job_is_late_or_will_be_as_long_as_it_is_so(name: str, said: str) -> None:
    world = World()
    seen = AlertState(since=NOW - timedelta(hours=5), seen_at=NOW - timedelta(minutes=4))
    world.put(rows.alert_sort_key(name), seen)

    (trouble,) = world.status().troubles
    world.put(rows.alert_sort_key(name), replace(seen, seen_at=NOW - timedelta(hours=3)))

    assert trouble.startswith(said)
    assert world.status().troubles == ()


def test_what_a_person_must_fix_is_said_once() -> None:
    stopped = "stopped: the role may not be passed"
    status = replace(
        World().status(), decision=f"{stopped} (1 job would start too late)", troubles=(stopped,)
    )

    assert screen_of(status).count(stopped) == 1


def test_lists_the_shapes_that_have_anything_or_are_declared() -> None:
    world = World()
    names = ("", "c0m2", "c0m4", "c0m8", "c0m16")
    queues = {name: MemoryJobQueue(world.clock, Random(1)) for name in names}
    queues["c0m4"].send([Outgoing(body="{}")])
    worker = a_worker("i-1", shape="c0m8")
    world.put(rows.worker_sort_key("i-1"), worker)

    status = read_status(
        "ocr",
        ledger=Ledger(world.table, "ocr"),
        queues=queues,
        dead_letters=world.dead_letters,
        budget_usd=None,
        refusal="",
        now=NOW,
        declared={"c0m2"},
    )

    assert list(status.shapes) == ["", "c0m2", "c0m4", "c0m8"]
    assert status.backlog.visible == 1


def test_names_a_job_that_waits_after_a_failure() -> None:
    world = World()
    waiting = a_lease(job_id="j-7").requeued(0, NOW)
    world.put(rows.requeued_sort_key("j-7"), replace(waiting, failures=2))
    world.put(rows.requeued_sort_key("j-8"), replace(waiting, job_id="j-8"))

    (trouble,) = world.status().troubles

    assert "1 job waits" in trouble
    assert "`spindown logs j-7`" in trouble


def test_what_a_worker_has_cost_since_the_last_tick_counts() -> None:
    world = World()
    world.put(rows.done_sort_key(NOW), DoneRow(items=10))
    free = world.status()
    charged = a_worker(accrued_until=NOW - timedelta(minutes=1), price_per_hour=0.60)
    for sort in (rows.worker_sort_key, rows.machine_sort_key):
        world.put(sort(charged.instance_id), charged)

    assert (free.last_day.cost_per_item, free.today.dollars) == (None, 0.0)
    assert world.status().today.dollars == pytest.approx(0.01)
    assert world.status().last_day.cost_per_item == pytest.approx(0.001)
    assert world.status().last_week.cost_per_item == pytest.approx(0.001)


def test_a_worker_that_ended_is_told_with_the_reason() -> None:
    world = World()
    reason = Reason(ReasonCode.IDLE)
    ended = a_worker("i-1", state=WorkerState.ENDED, ended_at=NOW, accrued_until=NOW, reason=reason)
    world.put(rows.worker_sort_key("i-1"), ended)

    assert say(reason) in screen_of(world.status(), ended=True)


def test_a_worker_that_ended_is_only_counted_unless_asked_for() -> None:
    world = World()
    world.put(rows.worker_sort_key("i-1"), a_worker("i-1", state=WorkerState.IDLE))
    gone = a_worker("i-2", state=WorkerState.ENDED, ended_at=NOW, accrued_until=NOW)
    world.put(rows.worker_sort_key("i-2"), gone)

    said = screen_of(world.status())

    assert "i-1" in said
    assert "i-2" not in said
    assert "1 instance ended lately" in said


def test_shows_workers_with_their_jobs_and_price() -> None:
    world = World()
    world.put(
        rows.worker_sort_key("i-1"),
        a_worker(instance_id="i-1", state=WorkerState.BUSY, price_per_hour=0.123),
    )
    world.put(
        rows.lease_sort_key("i-1", 0),
        a_lease(instance_id="i-1", job_id="j-7", items=9, items_done=4),
    )

    shown = screen_of(world.status())

    for part in ("i-1", "0.123", "busy", "j-7 4/9"):
        assert part in shown


def test_an_interruption_is_shown_before_the_state() -> None:
    world = World()
    world.put(
        rows.worker_sort_key("i-1"),
        a_worker(instance_id="i-1", state=WorkerState.BUSY, interrupted_at=NOW),
    )

    assert world.status().workers[0].word == "interrupting"


@pytest.mark.parametrize("told", [{"spent_at": NOW}, {"surplus_at": NOW}])
def test_who_was_told_to_end_is_shown_so(told: dict[str, Any]) -> None:
    world = World()
    worker = a_worker(instance_id="i-1", state=WorkerState.BUSY, **told)
    world.put(rows.worker_sort_key("i-1"), worker)

    assert world.status().workers[0].word == "ending"


def test_says_how_long_work_waits_and_until_when_it_is_held() -> None:
    world = World()
    world.queue.send([Outgoing(body="{}")])
    world.put(rows.BACKLOG, BacklogRow(backlog_since=NOW - timedelta(seconds=90)))
    world.put(
        rows.DECISION,
        DecisionRow(
            at=NOW,
            digest="d",
            key="k",
            outcome=Outcome.HELD,
            held_until=NOW + timedelta(seconds=30),
        ),
    )

    shown = screen_of(world.status())

    assert "unclaimed for 1m30s" in shown
    assert "launch held for 30s more" in shown
    assert "further launch" not in shown
    world.put(rows.worker_sort_key("i-1"), a_worker(instance_id="i-1", state=WorkerState.BOOTING))
    shown = screen_of(world.status())
    assert "a further launch is held for 30s more" in shown
    assert say_coming(1, 0) in shown


def test_the_first_day_is_not_compared_with_itself() -> None:
    world = World()
    world.put(rows.spend_sort_key(NOW), SpendRow(dollars=2.0))
    world.put(rows.done_sort_key(NOW), DoneRow(items=10))

    assert world.status().last_week.cost_per_item == pytest.approx(0.2)
    assert "7 days" not in screen_of(world.status(), width=200)


def test_an_item_s_cost_is_of_today_and_the_month_is_of_all() -> None:
    world = World()
    world.put(rows.spend_sort_key(NOW), SpendRow(dollars=2.0))
    world.put(rows.done_sort_key(NOW), DoneRow(items=1000))
    world.put(rows.spend_sort_key(NOW - timedelta(days=1)), SpendRow(dollars=3.0))
    world.put(rows.done_sort_key(NOW - timedelta(days=1)), DoneRow(items=1))
    for at, dollars in ((NOW, 90.0), (NOW - timedelta(days=60), 50.0)):
        key = account_key(rows.budget_sort_key(at))
        world.table.write(Write(key=key, add={"dollars": dollars, "committed": dollars}))

    status = world.status()

    # The cost of an item does not begin anew at midnight.
    left = 1.0 - (NOW - NOW.replace(hour=0, minute=0, second=0)) / timedelta(days=1)
    assert 0 < left < 1
    lately = (2.0 + left * 3.0) / (1000 + left)
    assert status.last_day.cost_per_item == pytest.approx(lately)
    assert status.last_week.cost_per_item == pytest.approx(5.0 / 1001)
    assert f"{format_item_cost(lately)} all in, in 24 hours" in screen_of(status)
    assert f"({100 * (lately * 1001 / 5.0 - 1):+.0f} % on 7 days)" in screen_of(status)
    assert "; deployment's month $90.00 of $100.00" in screen_of(status, width=200)


@pytest.mark.parametrize(("failed", "shown"), [(0, False), (2345, True)])
def test_failed_items_of_today_are_counted(failed: int, *, shown: bool) -> None:
    world = World()
    world.put(rows.done_sort_key(NOW), DoneRow(items=6, items_failed=failed))

    assert ("2,345 failed" in screen_of(world.status())) is shown


def test_the_error_of_the_item_that_failed_last_is_shown() -> None:
    world = World()
    error = "ValueError: \x1b[31mno text\nand more"
    world.put(
        rows.done_sort_key(NOW), DoneRow(items_failed=2, failed_job="job-7", failed_with=error)
    )

    shown = screen_of(world.status(), width=200)

    assert r"in job-7: ValueError: \x1b[31mno text; " in shown
    assert "`spindown results job-7 --failed` lists them" in shown
    assert "and more" not in shown


def test_says_what_the_last_failure_of_a_waiting_job_was() -> None:
    world = World()
    left = a_lease("i-1").requeued(0, NOW)
    for failures, name, error in (
        (1, "job-1", "too early to be told"),
        (3, "job-2", "the code cannot be loaded: No module named 'torch'\nTraceback"),
    ):
        job = replace(left, job_id=name, failures=failures, error=error)
        job = replace(job, at=NOW + timedelta(seconds=failures))
        world.put(rows.requeued_sort_key(name), job)

    (said,) = world.status().troubles

    assert said == (
        "2 jobs wait after a failure, the last job-2 (failed 3 times, with the code cannot be "
        "loaded: No module named 'torch'): `spindown logs job-2` shows why"
    )


def test_names_what_a_person_must_fix() -> None:
    world = World()
    world.dead_letters.send([Outgoing(body="{}")])
    world.put(
        rows.BREAKER,
        BreakerRow(
            open_until=NOW + timedelta(hours=1),
            reason=account_refused("the role may not be passed"),
        ),
    )
    world.put(rows.requeued_sort_key("job-2"), {"job_id": "job-2"})

    status = world.status(refusal="max_workers is -1")

    stopped, refused, unread = status.troubles
    assert "the role may not be passed" in stopped
    assert refused.endswith("max_workers is -1")
    assert unread.endswith("requeued#job-2")
    assert status.dead_letters == 1


def test_says_that_an_unreadable_month_stops_launches() -> None:
    world = World()
    world.put(rows.requeued_sort_key("job-2"), {"job_id": "job-2"})
    key = account_key(rows.budget_sort_key(NOW))
    world.table.write(Write(key=key, set={"committed": "much"}))

    rows_unread, month_unread = world.status().troubles
    assert rows_unread.startswith("2 ")
    assert key.sort in month_unread
    assert "spindown doctor" in month_unread


@pytest.mark.parametrize(
    ("quota_class", "name"),
    [
        ("us-east-1/G/Spot", "L-3819A6DF (us-east-1/G/Spot)"),
        ("us-east-1/Standard/Spot", "L-34B43A08 (us-east-1/Standard/Spot)"),
        ("us-east-1/P6/Spot", "us-east-1/P6/Spot"),
    ],
)
def test_names_the_quota_that_must_be_raised(quota_class: str, name: str) -> None:
    world = World()
    row = QuotaRow(
        quota_class=quota_class,
        code="VcpuLimitExceeded",
        until=NOW + timedelta(minutes=3),
        message="64 vCPUs",
    )
    for sort, until in (("now", row.until), ("before", NOW)):
        key = Key(partition=rows.DEPLOYMENT_PARTITION, sort=rows.quota_sort_key(sort))
        world.table.write(Write(key=key, set=encode(replace(row, until=until))))

    (trouble,) = world.status().troubles

    assert trouble.startswith(f"quota {name} is full")
    assert trouble.endswith("64 vCPUs")


@pytest.mark.parametrize(("seconds", "said"), [(119, ()), (1500, ("no tick for 25m",))])
def test_says_when_the_tick_is_silent_and_so_the_decision_old(
    seconds: int, said: tuple[str, ...]
) -> None:
    world = World()
    at = NOW - timedelta(seconds=seconds)
    world.put(rows.DECISION, DecisionRow(at=at, digest="a", key="k", outcome=Outcome.IDLE))

    found = world.status().troubles

    assert tuple(trouble.partition(":")[0] for trouble in found) == said


@pytest.mark.parametrize(("seconds", "is_said"), [(90, True), (0, False)])
def test_says_until_when_a_tick_holds_the_others_up(seconds: int, is_said: bool) -> None:
    world = World()
    at, until = NOW - timedelta(minutes=3), NOW + timedelta(seconds=seconds)
    world.put(rows.DECISION, DecisionRow(at=at, digest="a", key="k", outcome=Outcome.IDLE))
    world.put(rows.LOCK, rows.LockRow(fence=7, holder="killed", until=until))

    (found,) = world.status().troubles

    assert found.startswith("no tick for 3m")
    assert (f"until {until:%H:%M:%S} UTC" in found) is is_said


def test_shows_what_the_decision_adds_to_its_sentence() -> None:
    world = World()
    notes = (Reason(ReasonCode.LEDGER_BUSY),)
    row = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.NOTHING_FITS, notes=notes)
    world.put(rows.DECISION, row)

    assert say(notes[0]) in screen_of(world.status())


def test_a_reclaimed_worker_has_ended_and_nothing_bills() -> None:
    world = World()
    ended = a_worker(
        instance_id="i-1",
        state=WorkerState.ENDED,
        interrupted_at=NOW - timedelta(minutes=9),
        ended_at=NOW - timedelta(minutes=7),
    )
    world.put(rows.worker_sort_key("i-1"), ended)

    status = world.status()

    assert "ended        7m" in screen_of(status, ended=True)
    assert "none is billed" in screen_of(status)


@pytest.mark.parametrize("width", [80, 140])
def test_no_id_and_no_offer_is_cut_however_narrow_the_screen(width: int) -> None:
    world = World()
    world.put(
        rows.worker_sort_key("i-0123456789abcdef0"),
        a_worker(instance_id="i-0123456789abcdef0", state=WorkerState.BUSY),
    )
    world.put(
        rows.lease_sort_key("i-0123456789abcdef0", 0),
        a_lease(instance_id="i-0123456789abcdef0", job_id="b-20261120-153632-495757f5-00000"),
    )
    pool = str(a_worker().pool)

    shown = screen_of(world.status(), width=width)

    for part in ("i-0123456789abcdef0", pool, "b-20261120-153632-495757f5-00000"):
        assert part in shown


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (1.234, "$1.23 an item"),
        (0.0123, "$12.3 for 1,000 items"),
        (0.0000000406, "$0.0000406 for 1,000 items"),
        (0.0000123, "$0.0123 for 1,000 items"),
    ],
)
def test_small_money_is_said_for_a_thousand(dollars: float, text: str) -> None:
    assert format_item_cost(dollars) == text


def test_durations_are_shown_to_the_second() -> None:
    assert format_seconds(timedelta(minutes=2, seconds=3.4)) == "2m3s"


def test_the_last_decision_is_told_with_its_age() -> None:
    world = World()
    world.queue.send([Outgoing(body="{}")])
    decided = NOW - timedelta(seconds=40)
    world.put(rows.DECISION, DecisionRow(at=decided, digest="a", key="k", outcome=Outcome.IDLE))

    status = world.status()

    assert status.decided_at == decided
    assert "40s ago: " in screen_of(status)


@pytest.mark.parametrize("is_sent", [True, False])
def test_nothing_waits_is_not_said_beside_what_waits(*, is_sent: bool) -> None:
    world = World()
    world.queue.send([Outgoing(body="{}")] if is_sent else [])
    summary = DecisionSummary(sizing=Reason(ReasonCode.NOTHING_WAITS))
    row = DecisionRow(at=NOW, digest="a", key="k", outcome=Outcome.ENOUGH, summary=summary)
    world.put(rows.DECISION, row)

    said = world.status().decision

    assert said == (
        "nothing waited; the next tick decides on what waits now" if is_sent else "nothing waits"
    )


@pytest.mark.parametrize(("busy", "shown"), [(60.0, True), (6000.0, False)])
def test_the_cost_of_an_item_of_the_first_minutes_is_explained(busy: float, *, shown: bool) -> None:
    world = World()
    row = SpendRow(dollars=1.0, boot_seconds=500.0, busy_seconds=busy, idle_seconds=40.0)
    world.put(rows.spend_sort_key(NOW), row)
    world.put(rows.done_sort_key(NOW), DoneRow(items=10))

    assert ("% boot and" in screen_of(world.status(), width=300).replace(" %", "%")) is shown


def test_what_was_saved_is_told_as_an_estimate() -> None:
    world = World()
    day = SpendRow(dollars=1.0, on_demand_dollars=4.0, busy_seconds=3600.0)
    world.put(rows.spend_sort_key(NOW), day)
    world.put(rows.done_sort_key(NOW), DoneRow(items=10))

    saving = world.status().saving

    assert saving.against_on_demand == pytest.approx(0.75)
    assert saving.warm_dollars == pytest.approx(4.0 * 12)
    assert "75 % less" in screen_of(world.status(), width=200)


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_drained_fleet_says_so(*, is_drained: bool) -> None:
    status = replace(World().status(), is_drained=is_drained)

    assert ("spindown drain ocr --undo" in screen_of(status)) is is_drained


def test_where_no_machine_is_deployed_no_drain_is_named() -> None:
    status = replace(World().status(), is_drained=True, deployed_workers=0)

    shown = screen_of(status)

    assert "--undo" not in shown
    assert "spindown policy set ocr max_workers=1" in shown


@pytest.mark.parametrize("state", [WorkerState.BUSY, None])
def test_what_is_set_aside_is_told_once(state: WorkerState | None) -> None:
    world = World()
    if state is not None:
        world.put(rows.worker_sort_key("i-1"), a_worker("i-1", state=state))
    status = replace(world.status(), budget_usd=50.0, reserved_usd=0.06)

    shown = screen_of(status)

    assert shown.count("$0.06") == 1
    assert ("none is billed" in shown) is (state is None)
