"""A batch that waits for another, in the deployed template: it starts, is told of, or cancelled."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from examples.airflow.batch import is_over, judge, send
from spindown import Workload
from spindown.domain.batch import BatchEnd
from tests.e2e.world import ROOT, World, deployed, found, write_deployment

pytestmark = pytest.mark.proof
NAMES = {"first", "second", "third", "fourth"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = write_deployment(tmp_path_factory.mktemp("after"), "count", "lab")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('alarm_batches = "none"', ""), encoding="utf-8")
    with deployed(path) as world:
        yield world


def submit(world: World, batch: str, values: str, *options: str) -> None:
    items = world.directory / f"{batch}.jsonl"
    items.write_text("".join(f'"{value}"\n' for value in values.split()), encoding="utf-8")
    sent = ["submit", "count", "--items", str(items), "--batch", batch]
    done = world.spindown(*sent, *options)
    assert done.returncode == 0, done.stderr


def hear(world: World, inbox: str, told: Counter[str]) -> set[str]:
    """Count of which batches people were told that they are completed; return their names."""
    sqs = world.client("sqs")
    for message in sqs.receive_message(QueueUrl=inbox, MaxNumberOfMessages=10).get("Messages", []):
        sqs.delete_message(QueueUrl=inbox, ReceiptHandle=message["ReceiptHandle"])
        text = json.loads(message["Body"])
        if text["Subject"] == f"e2e--count: batch {BatchEnd.COMPLETED}":
            told[text["Message"].split()[1]] += 1
    return set(told)


def state(world: World, batch: str) -> dict[str, Any]:
    (one,) = [one for one in world.spindown_json("batches") if one["batch_id"] == batch]
    return dict(one)


def test_a_batch_waits_for_another_and_people_hear_of_both(world: World) -> None:
    inbox = world.subscribe()
    # The item is a file that is not there yet, for which the code waits.
    gate = world.directory / "gate"
    submit(world, "first", f"a {gate}")
    submit(world, "second", "b", "--after", "count/first")
    submit(world, "third", "c", "--after", "second")
    # The third is of Python, by the name of the same workload.
    config = world.directory / "spindown.toml"
    workload = Workload[Any, Any]("count", config=config)
    workload.submit(["d"], key="fourth", after="third", on_failure="start")
    found(lambda: state(world, "first")["state"] == "running")
    waiting = state(world, "second")
    shown = world.spindown("batches").stdout
    gate.touch()

    def is_done() -> bool:
        return bool(state(world, "fourth")["state"] == "completed")

    found(is_done, 180)

    assert (waiting["state"], waiting["waits_for"]) == ("waiting", "count/first")
    assert "waiting for" in shown
    assert {state(world, name)["state"] for name in ("first", "second", "third")} == {"completed"}
    told: Counter[str] = Counter()
    found(lambda: hear(world, inbox, told) >= NAMES)
    assert {name: told[name] for name in NAMES} == dict.fromkeys(NAMES, 1)


def test_what_follows_a_failed_batch_is_cancelled_unless_told(world: World) -> None:
    submit(world, "bad", "a raise")
    submit(world, "then", "b", "--after", "bad")
    submit(world, "anyway", "b", "--after", "bad", "--on-failure", "start")

    found(lambda: state(world, "then")["state"] == "cancelled", 180)
    found(lambda: state(world, "anyway")["state"] == "completed", 180)

    assert state(world, "bad")["items_failed"] == 1


def test_a_batch_that_nobody_submitted_is_refused(world: World) -> None:
    items = world.directory / "one.jsonl"
    items.write_text('"a"\n', encoding="utf-8")

    done = world.spindown("submit", "count", "--items", str(items), "--after", "nothing")

    assert done.returncode == 1
    assert "WORKLOAD/BATCH" in done.stderr


def test_the_functions_of_the_dag_send_once_wait_and_judge(world: World) -> None:
    workload = Workload[Any, Any]("count", config=world.directory / "spindown.toml")
    run_id = "scheduled__2026-11-28T00:00:00+00:00"

    batch = send(workload, ["a", "bb"], run_id)
    again = send(workload, ["a", "bb"], run_id)
    bad = send(workload, ["a", "raise"], "manual__x")
    found(lambda: is_over(workload, batch) and is_over(workload, bad), 180)

    assert again == batch
    assert judge(workload, batch)["items"] == 2
    with pytest.raises(RuntimeError, match="items failed: 1"):
        judge(workload, bad)


def test_the_definition_of_the_state_machine_is_taken(world: World) -> None:
    path = ROOT / "examples" / "step_functions" / "state_machine.json"
    made = world.client("stepfunctions").create_state_machine(
        name="example",
        definition=path.read_text(encoding="utf-8"),
        roleArn="arn:aws:iam::000000000000:role/example",
    )

    assert made["stateMachineArn"]
