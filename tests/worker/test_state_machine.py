"""The example of Step Functions reads real manifests, and goes where it should."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonata
import pytest

from spindown.contract.job.manifest import (
    JobState,
    Manifest,
    Part,
    encode_manifest,
    manifest_key,
)
from spindown.contract.job.message import parse_job
from spindown.contract.location import work_root
from tests.builders import NOW

PATH = Path(__file__).parents[2] / "examples" / "step_functions" / "state_machine.json"
NAME = "nightly-2026-11-28"
#: What the definition is given.
GIVEN = {"QueueUrl": "https://sqs/q", "Bucket": "demo", "Workload": "ocr"}


def definition() -> Any:
    text = PATH.read_text(encoding="utf-8")
    for name, value in GIVEN.items():
        text = text.replace(f"${{{name}}}", value)
    assert "${" not in text
    return json.loads(text)


MACHINE = definition()
STATES = MACHINE["States"]


def evaluated(value: Any, **states: Any) -> Any:
    """Return what Step Functions makes of a field (its guide, "Transforming data with JSONata")."""
    if isinstance(value, dict):
        return {name: evaluated(one, **states) for name, one in value.items()}
    if not (isinstance(value, str) and value.startswith("{%")):
        return value
    expression = jsonata.Jsonata.jsonata(value.removeprefix("{%").removesuffix("%}").strip())
    context = {"Execution": {"Name": NAME}}
    expression.assign("states", {"context": context, **states})
    expression.register_lambda("parse", json.loads)
    return expression.evaluate(None)


def next_of(manifest: Manifest) -> str:
    """Return the state in which a look at a manifest ends."""
    body = encode_manifest(manifest).decode()
    seen = evaluated(STATES["Look"]["Output"], result={"Body": body})
    for choice in STATES["IsOver"]["Choices"]:
        if evaluated(choice["Condition"], input=seen) is True:
            return str(choice["Next"])
    return str(STATES["IsOver"]["Default"])


def a_manifest(state: JobState, *failed: int) -> Manifest:
    parts = tuple(
        Part(key=f"jobs/{NAME}/p{n}", first=n, last=n, bytes=1, sha256="0" * 64, failed=count)
        for n, count in enumerate(failed)
    )
    made = Manifest(job_id=NAME, epoch=1, owner="i-1/0", state=state, parts=parts)
    return made if state is JobState.RUNNING else replace(made, finished_at=NOW)


def test_what_it_sends_is_a_job_under_the_name_of_its_execution() -> None:
    sent = evaluated(STATES["Send"]["Arguments"], input={"items": ["a", 1]})

    job = parse_job(json.dumps(sent["MessageBody"]))

    assert (job.job_id, job.items) == (NAME, ("a", 1))
    assert sent["QueueUrl"] == "https://sqs/q"


def test_an_execution_whose_job_is_refused_ends() -> None:
    machine = json.loads(PATH.read_text())

    # Of 25,000 events each look takes nine.
    assert machine["TimeoutSeconds"] < 25_000 / 9 * machine["States"]["Wait"]["Seconds"]


def test_it_looks_where_the_manifest_lies() -> None:
    asked = evaluated(STATES["Look"]["Arguments"])

    assert asked == {"Bucket": "demo", "Key": f"{work_root('ocr')}{manifest_key(NAME)}"}


@pytest.mark.parametrize(
    ("manifest", "state"),
    [
        (a_manifest(JobState.RUNNING, 0), "Wait"),
        (a_manifest(JobState.COMPLETED), "Done"),
        (a_manifest(JobState.COMPLETED, 0), "Done"),
        (a_manifest(JobState.COMPLETED, 0, 0), "Done"),
        (a_manifest(JobState.COMPLETED, 0, 1), "Failed"),
        (a_manifest(JobState.COMPLETED, 1), "Failed"),
        (a_manifest(JobState.FAILED), "Failed"),
        (a_manifest(JobState.CANCELLED), "Failed"),
        (a_manifest(JobState.SPLIT), "Failed"),
    ],
)
def test_it_ends_as_the_job_does(manifest: Manifest, state: str) -> None:
    assert next_of(manifest) == state


def test_why_it_failed_is_said() -> None:
    cause = evaluated(STATES["Failed"]["Cause"], input={"state": "completed", "failed": 3})

    assert "3" in cause


def test_every_state_is_reached_and_leads_to_one_that_is_there() -> None:
    def of(state: Any) -> list[str]:
        found = [state.get("Next"), state.get("Default")]
        found += [one["Next"] for one in (*state.get("Choices", ()), *state.get("Catch", ()))]
        return [name for name in found if name]

    reached = {MACHINE["StartAt"], *(name for state in STATES.values() for name in of(state))}

    assert reached == STATES.keys()
