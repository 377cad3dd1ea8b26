"""What code prints is seen once, in order, whichever machine it comes from and however late."""

import itertools
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from spindown.cli.logs import Screen
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.contract.log import ATTEMPT_FAILED, USER_OUTPUT
from spindown.error import Unreachable
from spindown.job.attachment.log import keep_log
from spindown.memory import MemoryClock, MemoryLog, MemoryObjectStore
from spindown.operate.log import (
    LATE_BY,
    LINGER,
    JobEnds,
    KeptLog,
    LiveLog,
    LogFollower,
    begin_live,
    live_of_instance,
    live_of_jobs,
    read_kept,
)
from spindown.port import LogEvent, StoredObject


class Scene:
    """A workload's log and bucket."""

    def __init__(self) -> None:
        self.clock = MemoryClock()
        self.log = MemoryLog()
        self.store = MemoryObjectStore(self.clock)
        self.live = LiveLog(self.log, self.clock.now(), jobs=["j"])
        self._numbers = itertools.count(1)

    def says(
        self, text: str, *, ago: float = 0.0, on: str = "i-1", number: int = 0, **fields: Any
    ) -> None:
        line = {"event": USER_OUTPUT, "job_id": "j", "epoch": 1, "text": text, **fields}
        message = json.dumps({**line, "number": number or next(self._numbers)})
        self.log.put(on, self.clock.now() - timedelta(seconds=ago), message)

    def looks(self) -> list[str]:
        return [str(line.value) for line in self.live.look()]

    def leave(self, **values: Any) -> None:
        values = {"job_id": "j", "epoch": 1, "owner": "i-1/0", "state": JobState.RUNNING, **values}
        self.store.put(manifest_key(values["job_id"]), encode_manifest(Manifest(**values)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_line_is_seen_once(scene: Scene) -> None:
    scene.says("one")
    assert scene.looks() == ["one"]
    scene.clock.advance(timedelta(seconds=1))
    scene.says("two")
    assert (scene.looks(), scene.looks()) == (["two"], [])


def test_a_whole_job_is_read_with_its_times(scene: Scene) -> None:
    scene.says("long ago", ago=3600.0)
    scene.says("of another", job_id="other")

    (line,) = live_of_jobs(scene.log, ["j"], scene.clock.now()).look()

    assert (line.value, line.at) == ("long ago", scene.clock.now() - timedelta(hours=1))


@pytest.mark.parametrize(("timestamps", "told"), [(False, "hi"), (True, "{at}  hi")])
def test_a_line_has_its_time_where_that_is_asked_for(
    scene: Scene, capsys: pytest.CaptureFixture[str], told: str, *, timestamps: bool
) -> None:
    scene.says("hi")

    Screen(as_json=False, timestamps=timestamps).show(scene.live)

    at = f"{scene.clock.now():%Y-%m-%dT%H:%M:%S}.000Z"
    assert capsys.readouterr().out.splitlines()[1] == told.format(at=at)


def test_what_machines_print_at_once_stands_by_attempt(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.live = LiveLog(scene.log, scene.clock.now(), jobs=["j", "k"])
    screen = Screen(as_json=False)
    for number in range(2):
        scene.says(f"j {number}", on="i-1")
        scene.says(f"k {number}", job_id="k", on="i-2")
    screen.show(scene.live)
    scene.says("j 2", on="i-1")
    scene.says("k 2", job_id="k", on="i-2")
    screen.show(scene.live)

    j, k = "== j, attempt 1 on i-1 ==", "== k, attempt 1 on i-2 =="
    told = [j, "j 0", "j 1", k, "k 0", "k 1", "k 2", j, "j 2"]
    assert capsys.readouterr().out.splitlines() == told


def test_an_attempt_has_one_title(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=False)
    screen.show_kept(KeptLog(job_id="j", attempt=1, text="kept\n"))
    scene.says("live")
    screen.show(scene.live)

    assert capsys.readouterr().out.splitlines() == ["== j, attempt 1 ==", "kept", "live"]


def test_a_line_as_json_has_what_is_known_of_it(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.says("", again=True)

    Screen(as_json=True).show(scene.live)

    assert json.loads(capsys.readouterr().out) == {
        "job_id": "j",
        "attempt": 1,
        "event": USER_OUTPUT,
        "value": "",
        "at": scene.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "instance_id": "i-1",
    }


def test_equal_lines_of_one_moment_are_all_seen(scene: Scene) -> None:
    scene.says("same")
    assert scene.looks() == ["same"]
    scene.says("same")
    assert scene.looks() == ["same"]


def test_a_line_that_was_sent_again_is_seen_once(scene: Scene) -> None:
    scene.says("one", number=1)
    scene.says("one", number=1)
    assert scene.looks() == ["one"]
    scene.says("one", number=1)
    scene.says("another's", number=1, on="i-2")
    assert scene.looks() == ["another's"]


def test_what_setup_printed_is_seen_once_of_each(scene: Scene) -> None:
    scene.says("loading", job_id="")
    scene.says("loading", again=True)
    assert scene.looks() == ["loading"]
    of_instance = live_of_instance(scene.log, "i-1", scene.clock.now())
    assert [(line.job_id, line.value) for line in of_instance.look()] == [("", "loading")]


def test_a_line_that_another_machine_sent_late_is_seen(scene: Scene) -> None:
    scene.clock.advance(timedelta(minutes=1))
    scene.says("young", on="i-1")
    assert scene.looks() == ["young"]
    scene.says("late", on="i-2", ago=LATE_BY.total_seconds() - 1.0)
    assert scene.looks() == ["late"]


def test_what_was_seen_does_not_pile_up(scene: Scene) -> None:
    for _ in range(100):
        scene.clock.advance(timedelta(seconds=1))
        scene.says("line")
        assert scene.looks() == ["line"]
    # As many as come within the time that a line may be late by.
    assert len(scene.live._seen) <= LATE_BY.total_seconds() + 1


def test_a_job_moves_between_machines_and_has_children(scene: Scene) -> None:
    scene.says("first", on="i-1", epoch=1)
    scene.clock.advance(timedelta(seconds=1))
    scene.says("second", on="i-2", epoch=2)
    scene.clock.advance(timedelta(seconds=1))
    scene.says("child", on="i-2", job_id="j.00003")
    scene.says("other", on="i-2", job_id="k")

    found = [(x.job_id, x.attempt, x.instance_id, x.value) for x in scene.live.look()]

    assert found == [
        ("j", 1, "i-1", "first"),
        ("j", 2, "i-2", "second"),
        ("j.00003", 1, "i-2", "child"),
    ]


def test_an_attempt_that_was_kept_is_not_shown_again(scene: Scene) -> None:
    keep_log("j", 1, b"kept\n", scene.store)
    scene.leave(epoch=2, claimed_at=scene.clock.now())
    kept = list(read_kept("j", scene.store))
    assert [(one.attempt, one.text) for one in kept] == [(1, "kept\n")]
    scene.says("kept", epoch=1)
    scene.says("running", epoch=2)

    left_out = {(one.job_id, one.attempt) for one in kept}
    scene.live = begin_live(scene.log, ["j"], scene.store, left_out, scene.clock.now())

    assert scene.looks() == ["running"]


def test_how_a_kept_attempt_ended_is_shown(scene: Scene) -> None:
    keep_log("j", 1, b"kept\n", scene.store)
    scene.leave(claimed_at=scene.clock.now())
    scene.says("kept", epoch=1)
    row = {"event": "job_used", "job_id": "j", "epoch": 1, "summary": "completed after 3 s"}
    scene.log.put("i-1", scene.clock.now(), json.dumps(row))
    scene.live = begin_live(scene.log, ["j"], scene.store, {("j", 1)}, scene.clock.now())

    assert scene.looks() == ["completed after 3 s"]


def test_a_running_attempt_is_read_from_its_claim(scene: Scene) -> None:
    scene.leave(claimed_at=scene.clock.now())
    scene.says("hours ago")
    scene.clock.advance(timedelta(hours=3))

    scene.live = begin_live(scene.log, ["j"], scene.store, (), scene.clock.now())

    assert scene.looks() == ["hours ago"]


def test_a_lost_attempt_is_named(scene: Scene) -> None:
    keep_log("j", 2, b"hello", scene.store)
    scene.leave(epoch=3, lost_epochs=(1,))
    kept = read_kept("j", scene.store)
    assert [(one.attempt, one.text) for one in kept] == [(1, None), (2, "hello")]


def test_of_lost_attempts_without_end_the_last_are_named(scene: Scene) -> None:
    scene.leave(epoch=200_000, lost_epochs=tuple(range(1, 100_001)))
    kept = list(read_kept("j", scene.store))
    assert [one.attempt for one in kept] == list(range(99_901, 100_001))
    assert [one.left_out for one in kept] == [99_900, *[0] * 99]


def test_what_is_kept_of_a_running_attempt_is_a_part(scene: Scene) -> None:
    keep_log("j", 1, b"first\n", scene.store)
    scene.leave(claimed_at=scene.clock.now())
    for text in ("first", "second"):
        scene.says(text)

    kept = list(read_kept("j", scene.store))
    scene.live = begin_live(scene.log, ["j"], scene.store, (), scene.clock.now())

    assert kept == []
    assert scene.looks() == ["first", "second"]


def test_the_output_of_children_is_kept_too(scene: Scene) -> None:
    keep_log("j.00000", 1, b"hello", scene.store)
    scene.leave(state=JobState.SPLIT, children=("j.00000", "k"))
    (kept,) = read_kept("j", scene.store)
    assert (kept.job_id, kept.text) == ("j.00000", "hello")


@pytest.mark.parametrize(
    "message",
    [
        "no JSON",
        "[1]",
        '{"event": "user_output", "job_id": "j"}',
        '{"event": "user_output", "job_id": "j", "text": ["a"]}',
        '{"event": "user_output_left_out", "job_id": "j", "lines": true}',
        '{"event": "user_output", "job_id": 7, "text": "a"}',
        '{"event": ["user_output"], "job_id": "j", "text": "a"}',
        '{"event": "job_completed", "job_id": "j", "text": "a"}',
        '{"event": "user_progress", "job_id": "j", "text": "a", "done": 1, "of": "2"}',
    ],
)
def test_what_is_no_line_is_left_out(scene: Scene, message: str) -> None:
    scene.log.put("i-1", scene.clock.now(), message)
    scene.live = LiveLog(scene.log, scene.clock.now())
    assert scene.looks() == []


def test_why_an_attempt_failed_is_a_line(scene: Scene) -> None:
    told = {"event": ATTEMPT_FAILED, "job_id": "j", "epoch": True, "reason": "no such module"}
    scene.log.put("i-1", scene.clock.now(), json.dumps(told))
    (line,) = scene.live.look()
    assert (line.event, line.attempt, line.value) == (ATTEMPT_FAILED, 0, "no such module")


def test_to_follow_ends_a_little_after_the_job(scene: Scene) -> None:
    scene.leave()
    ends = JobEnds(["j"], scene.store)
    follower = LogFollower(scene.live, ends.look, scene.clock)
    assert list(follower.look()) == []
    scene.leave(state=JobState.COMPLETED, epoch=2)
    assert list(follower.look()) == []
    assert list(follower.look()) == []
    scene.says("last words")
    scene.clock.advance(LINGER)
    assert [line.value for line in follower.look()] == ["last words"]
    assert follower.is_over
    assert ends.ended["j"].state is JobState.COMPLETED


def test_dollars_that_come_after_a_cancel_are_read(scene: Scene) -> None:
    scene.leave(state=JobState.CANCELLED)
    ends = JobEnds(["j"], scene.store)
    assert ends.look()
    scene.leave(state=JobState.CANCELLED, cost_usd=0.5)

    ends.look_again()

    assert ends.ended["j"].cost_usd == 0.5


def test_a_large_batch_is_looked_at_in_turn(scene: Scene) -> None:
    jobs = [f"j-{number}" for number in range(50)]
    for job_id in jobs:
        scene.leave(job_id=job_id, state=JobState.COMPLETED)
    ends = JobEnds(jobs, scene.store)
    looks = [ends.look() for _ in range(3)]
    assert looks == [False, False, True]
    assert set(ends.ended) == set(jobs)


def test_states_are_read_beside_each_other(scene: Scene) -> None:
    both = threading.Barrier(2)

    class Slow(MemoryObjectStore):
        def get(self, key: str, **asked: Any) -> StoredObject:
            both.wait(20)
            return super().get(key, **asked)

    scene.store = Slow(scene.clock)
    for job_id in ("a", "b"):
        scene.leave(job_id=job_id, state=JobState.COMPLETED)

    assert JobEnds(["a", "b"], scene.store).look()


def test_an_outage_of_the_log_ends_nothing(scene: Scene) -> None:
    class Silent(MemoryLog):
        def read(self, **_: object) -> Iterator[LogEvent]:
            raise Unreachable("no answer")

    follower = LogFollower(LiveLog(Silent(), scene.clock.now()), lambda: False, scene.clock)
    assert list(follower.look()) == []
    assert not follower.is_over
