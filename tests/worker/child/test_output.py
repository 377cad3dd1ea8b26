"""What the code prints is kept apart from the line, and bounded."""

import io
import json
from pathlib import Path

from spindown.worker.child.output import (
    EVENT_BYTES,
    LINE_BYTES,
    LINES_A_SECOND,
    LogAllowance,
    Output,
    OutputLog,
)
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
