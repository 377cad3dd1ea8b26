"""What the code prints is kept apart from the line, and bounded."""

import io
import json
from pathlib import Path

import pytest

from spindown.contract.log import USER_PROGRESS
from spindown.user import PROGRESS_MARK
from spindown.worker.child.output import (
    EVENT_BYTES,
    LINE_BYTES,
    LINES_A_SECOND,
    LogAllowance,
    Output,
    OutputLog,
)
from spindown.worker.child.progress import TEXT_CHARACTERS
from spindown.worker.log import open_log
from tests.worker.child.batch import Make, answers, run_batch


def test_printing_does_not_disturb_the_line(
    make: Make, tmp_path: Path, output: io.StringIO
) -> None:
    runner = make(
        r"""
        def run(batch, ctx):
            for item in batch:
                print("noise", item.index)
                os.write(1, b"\x00\x00\x00\x02{}\xff\n")
                os.write(2, b"more noise\n")
                subprocess.run(["echo", "noise of a child"])
                yield Result(item, item.value)
        """
    )
    assert answers(run_batch(runner, tmp_path)) == {0: 0, 1: 1, 2: 2}
    runner.kill()
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    texts = [line["text"] for line in lines if line["event"] == "user_output"]
    assert {"noise 0", "more noise", "noise of a child"} <= set(texts)
    assert {line["job_id"] for line in lines} == {"j"}


def test_a_flood_of_output_is_counted_and_long_lines_are_cut(
    output: io.StringIO,
) -> None:
    seconds = iter([0.0, *[0.5] * 150, 1.5, 1.6, 1.6])
    told = Output(open_log(output).bind(slot=3), LogAllowance(), clock=lambda: next(seconds))
    told.job_id = "j"
    told.read(io.BytesIO(b"noise\n" * 150 + b"later\n" + b"x" * (LINE_BYTES + 10) + b"\n"))

    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [line.get("text", line.get("lines")) for line in lines] == [
        *["noise"] * LINES_A_SECOND,
        150 - LINES_A_SECOND,
        "later",
        "x" * LINE_BYTES,
        "x" * 10,
    ]
    assert lines[LINES_A_SECOND]["event"] == "user_output_left_out"
    assert {(line["job_id"], line["slot"]) for line in lines} == {("j", 3)}


def test_output_left_out_at_the_end_is_told_too(output: io.StringIO) -> None:
    told = Output(open_log(output), LogAllowance(), clock=lambda: 0.0)
    told.read(io.BytesIO(b"noise\n" * (LINES_A_SECOND + 1) + b"bang\n\n"))

    assert json.loads(output.getvalue().splitlines()[-1])["lines"] == 3
    assert told.last_line == "bang"


def test_a_slot_fills_the_log_of_a_day_once(output: io.StringIO) -> None:
    now = [0.0]
    allowance = LogAllowance(bytes_a_day=3 * (EVENT_BYTES + 5), clock=lambda: now[0])
    kept = OutputLog()

    def a_process_prints(text: bytes) -> None:
        told = Output(open_log(output), allowance, clock=lambda: now[0])
        told.output_log = kept
        told.read(io.BytesIO(text))

    a_process_prints(b"noise\n" * 2)
    a_process_prints(b"noise\n" * (LINES_A_SECOND + 50))
    now[0] = 86_400.0
    a_process_prints(b"later\n")

    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        *["user_output"] * 3,
        "user_output_limit",
        "user_output",
    ]
    assert lines[3]["bytes_a_day"] == 3 * (EVENT_BYTES + 5)
    assert lines[-1]["text"] == "later"
    # What is kept for the job has bounds of its own.
    assert len(kept.read().splitlines()) == LINES_A_SECOND + 53


def test_what_setup_prints_belongs_to_the_first_job(output: io.StringIO) -> None:
    told = Output(open_log(output), LogAllowance(), clock=lambda: 0.0)
    told.read(io.BytesIO(b"loading\n"))
    first, second = OutputLog(), OutputLog()

    told.belong_to("a", 1, first)
    told.belong_to("b", 1, second)

    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    # At once, when there is no job yet, and again as the first one's.
    assert [(x["job_id"], x["text"], x.get("again")) for x in lines] == [
        ("", "loading", None),
        ("a", "loading", True),
    ]
    assert (first.read(), second.read()) == (b"loading\n", b"")


@pytest.mark.parametrize(
    ("bytes_a_day", "told_before"),
    [(10**6, LINES_A_SECOND), (10 * EVENT_BYTES, 9)],
    ids=["more than a second has", "more than a day has"],
)
def test_what_the_log_never_had_does_not_come_again(
    output: io.StringIO, bytes_a_day: int, told_before: int
) -> None:
    now = [0.0]
    allowance = LogAllowance(bytes_a_day, clock=lambda: now[0])
    told = Output(open_log(output), allowance, clock=lambda: 0.0)
    told.read(io.BytesIO(b"".join(b"%d\n" % n for n in range(LINES_A_SECOND + 7))))
    # Another day has room again.
    now[0] = 86_400.0
    allowance.bytes_a_day = 10**6

    told.belong_to("a", 1, None)

    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    known = {
        line["text"] for line in lines if line["event"] == "user_output" and not line["job_id"]
    }
    again = {line["text"]: "again" in line for line in lines if line.get("job_id")}
    assert len(known) == told_before
    # Of these the log has a count.
    assert again.pop("[7 lines left out]")
    assert len(again) == LINES_A_SECOND
    assert again == {text: text in known for text in again}


def test_of_a_long_setup_the_job_gets_the_end(output: io.StringIO) -> None:
    told = Output(open_log(output), LogAllowance(), clock=lambda: 0.0)
    told.read(io.BytesIO(b"".join(b"%d\n" % n for n in range(LINES_A_SECOND + 7))))
    kept = OutputLog()

    told.belong_to("a", 1, kept)

    first, *rest = kept.read().decode().splitlines()
    assert first == "[7 lines left out]"
    assert rest == [str(n) for n in range(7, LINES_A_SECOND + 7)]


@pytest.mark.parametrize("text", ["x", "\0", "\x1b", '"', "\ud7ff", "\U0001f600", "\udcff"])
def test_a_day_s_room_is_counted_as_it_is_billed(output: io.StringIO, text: str) -> None:
    now, bytes_a_day = iter(range(1000)), 200_000
    told = Output(
        open_log(output).bind(instance_id="i-0123456789abcdef0"),
        LogAllowance(bytes_a_day, clock=lambda: 0.0),
        clock=lambda: float(next(now)),
    )
    told.belong_to("b-20261120-152800-1a2b3c4d-000001", 1, None)
    line = (text * 8000).encode(errors="surrogateescape") + b"\n"
    told.read(io.BytesIO(line * 100))

    billed = [len(line) + 26 for line in output.getvalue().splitlines()]
    assert bytes_a_day / 2 < sum(billed[:-1]) <= bytes_a_day


@pytest.mark.parametrize(
    ("line", "printed", "progress"),
    [
        ("::spindown-progress 3/10", "", (3, 10, "")),
        ("::spindown-progress 3/10 epoch 2", "", (3, 10, "epoch 2")),
        ("\r 40%|##  | 4/10::spindown-progress 4/10", "\r 40%|##  | 4/10", (4, 10, "")),
        ("::spindown-progress 3/10 \x1b[2J\u202e", "", (3, 10, "\\x1b[2J\\u202e")),
        ("::spindown-progress 3/10 " + "x" * 500, "", (3, 10, "x" * TEXT_CHARACTERS)),
        ("::spindown-progress three/10", "::spindown-progress three/10", None),
        ("::spindown-progress -1/10", "::spindown-progress -1/10", None),
        (f"::spindown-progress {10**40}/1", f"::spindown-progress {10**40}/1", None),
        ("3/10", "3/10", None),
    ],
)
def test_a_line_may_say_how_far_the_job_is(
    line: str, printed: str, progress: tuple[int, int, str] | None
) -> None:
    kept = OutputLog()
    told = Output(open_log(io.StringIO()), LogAllowance(), clock=lambda: 0.0)
    told.belong_to("j", 1, kept)
    told.read(io.BytesIO(f"{line}\n".encode()))

    said = kept.progress
    assert (said and (said.done, said.of, said.text)) == progress
    assert kept.read().decode() == (f"{printed}\n" if printed else "")


def test_a_flood_of_progress_is_bounded_and_its_end_is_told(output: io.StringIO) -> None:
    now = [0.0]
    told = Output(open_log(output), LogAllowance(), clock=lambda: now[0])
    kept = OutputLog()
    told.belong_to("j", 2, kept)
    for second in range(2):
        now[0] = float(second)
        lines = "".join(f"{PROGRESS_MARK}{n}/1000\n" for n in range(1, 500))
        told.read(io.BytesIO(lines.encode()))
    told.read(io.BytesIO(f"{PROGRESS_MARK}1000/1000 done\n".encode() * 500))

    events = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(one["event"], one["done"]) for one in events] == [
        (USER_PROGRESS, 1),
        (USER_PROGRESS, 1),
        (USER_PROGRESS, 1000),
    ]
    assert {(one["job_id"], one["epoch"], one["of"]) for one in events} == {("j", 2, 1000)}
    assert kept.progress is not None
    assert kept.read() == b""


def test_no_flood_of_ends_passes_the_bound_of_a_second(output: io.StringIO) -> None:
    told = Output(open_log(output), LogAllowance(), clock=lambda: 0.0)
    lines = "".join(f"{PROGRESS_MARK}{n}/1\n" for n in range(1, 1000))
    told.read(io.BytesIO(lines.encode()))

    assert len(output.getvalue().splitlines()) == LINES_A_SECOND


def test_python_says_how_far_it_is_from_any_process(
    make: Make, tmp_path: Path, output: io.StringIO
) -> None:
    runner = make(
        r"""
        def run(batch, ctx):
            print("no end of line", end="")
            ctx.progress(1, 3, "first\nline")
            if os.fork() == 0:
                ctx.progress(3, 3)
                os._exit(0)
            os.wait()
            return [Result(item, 1) for item in batch]
        """
    )
    kept = OutputLog()
    run_batch(runner, tmp_path, output_log=kept)
    runner.kill()

    events = [json.loads(line) for line in output.getvalue().splitlines()]
    said = [(x["done"], x["of"], x["text"]) for x in events if x["event"] == USER_PROGRESS]
    assert said == [(1, 3, "first line"), (3, 3, "")]
    assert kept.read() == b"no end of line\n"


def test_one_slot_has_one_allowance(make: Make, tmp_path: Path, output: io.StringIO) -> None:
    runner = make("def run(batch, ctx):\n    print('noise')\n    return []\n")
    runner.allowance = LogAllowance(bytes_a_day=EVENT_BYTES + 5)
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        run_batch(runner, place)
        runner.kill()

    events = [json.loads(line)["event"] for line in output.getvalue().splitlines()]
    assert [event for event in events if event.startswith("user_")] == [
        "user_output",
        "user_output_limit",
    ]
