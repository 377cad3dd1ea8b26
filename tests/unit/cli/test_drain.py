"""What the drain command takes, and what it shows of a fleet that ends."""

import io
import json

import pytest
from rich.console import Group

from spindown.cli.app import app
from spindown.cli.drain import render_remainder, say_end, tell_remainder
from spindown.cli.render.screen import TextConsole
from spindown.control.observe.observation import assumed
from spindown.domain.fleet import WorkerState
from spindown.error import BadInput, SpindownError, Unreachable
from spindown.operate.drain import Remainder
from spindown.operate.status import WorkerStatus
from tests.builders import NOW, a_lease, a_worker


@pytest.mark.parametrize("arguments", [[], ["classify", "--all"]], ids=["neither", "both"])
def test_takes_one_workload_or_all(arguments: list[str]) -> None:
    with pytest.raises(BadInput, match="name one workload, or give --all"):
        app(["drain", *arguments], standalone_mode=False)


def test_a_drain_is_either_hurried_or_taken_back() -> None:
    with pytest.raises(BadInput, match="give one of them"):
        app(["drain", "--all", "--now", "--undo"], standalone_mode=False)


def test_shows_workers_by_state_and_the_jobs_in_hand() -> None:
    lease = a_lease(instance_id="i-1", job_id="j-7", items=9, items_done=4)
    remainder = Remainder(
        workload="ocr",
        at=NOW,
        is_heard=True,
        launching=1,
        workers=(
            WorkerStatus(worker=a_worker("i-1", state=WorkerState.BUSY), leases=(lease,)),
            WorkerStatus(worker=a_worker("i-2", state=WorkerState.IDLE), leases=()),
        ),
        instances=(),
    )

    assert render_remainder(remainder).plain == (
        "ocr: 1 busy, 1 idle, 1 launching; working on: j-7 4/9"
    )


def test_each_workload_has_a_line_whatever_its_jobs_are_called() -> None:
    forged = a_lease(instance_id="i-1", job_id="j\nocr: nothing runs")
    worker = WorkerStatus(worker=a_worker("i-1", state=WorkerState.BUSY), leases=(forged,))
    left = [
        Remainder(
            workload=name, at=NOW, is_heard=True, launching=0, workers=(worker,), instances=()
        )
        for name in ("ocr", "asr")
    ]
    file = io.StringIO()

    TextConsole(file=file, width=200).print(Group(*map(render_remainder, left)))

    assert [line[:3] for line in file.getvalue().splitlines()] == ["ocr", "asr"]


def test_says_when_nothing_runs() -> None:
    remainder = Remainder(
        workload="ocr", at=NOW, is_heard=True, launching=0, workers=(), instances=()
    )

    assert render_remainder(remainder).plain == "ocr: nothing runs"


@pytest.mark.parametrize(
    ("instances", "question"),
    [
        (("i-1",), "Terminate 1 instance? 1 job begins again from the last commit"),
        (("i-1", "i-2"), "Terminate 2 instances? 1 job begins again from the last commit"),
        ((), ""),
    ],
)
def test_asks_before_it_ends_instances_if_there_are_any(
    instances: tuple[str, ...], question: str
) -> None:
    lease = a_lease(instance_id="i-1", job_id="j-7")
    worker = WorkerStatus(worker=a_worker("i-1", state=WorkerState.BUSY), leases=(lease,))

    said = say_end(
        [
            Remainder(
                workload="ocr",
                at=NOW,
                is_heard=True,
                launching=0,
                workers=(worker,) if instances else (),
                instances=tuple(assumed(a_worker(each)) for each in instances),
            )
        ]
    )

    assert said == question


def a_part(**unread: SpindownError) -> Remainder:
    """Return what is left where nothing was found, and some of it could not be read."""
    return Remainder(
        workload="ocr",
        at=NOW,
        is_heard=True,
        launching=0,
        workers=(),
        instances=(),
        unread=unread,
    )


def test_asks_before_it_ends_what_it_has_not_seen() -> None:
    assert "AWAY" in say_end([a_part(AWAY=Unreachable("no route"))])


def test_names_what_gives_no_answer() -> None:
    left = a_part(AWAY=Unreachable("no route"))

    assert "AWAY cannot be read: no route" in render_remainder(left).plain
    assert tell_remainder(left, "")["unread"] == ["AWAY"]
    assert not left.is_empty


def test_tells_programs_what_is_left_and_the_way_back() -> None:
    lease = a_lease(instance_id="i-1", job_id="j-7", items=9, items_done=4)
    worker = WorkerStatus(worker=a_worker("i-1", state=WorkerState.BUSY), leases=(lease,))
    remainder = Remainder(
        workload="ocr", at=NOW, is_heard=True, launching=0, workers=(worker,), instances=()
    )

    told = tell_remainder(remainder, "spindown drain ocr --undo")

    assert json.loads(json.dumps(told))["workers"] == [
        {
            "instance_id": "i-1",
            "state": "busy",
            "jobs": [{"job_id": "j-7", "items_done": 4, "items": 9}],
        }
    ]
    assert (told["is_empty"], told["undo"]) == (False, "spindown drain ocr --undo")
