"""A workload with types has a function that routes, and leave for its queues; others do not."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.event import parse_stack_event
from tests.infra.assembly import CONFIG, Assembly, listed, synthesise_once, words, write_project

_TYPES = """
[[workload.plain.policy.types]]
name = "large"
memory_gib = 64
"""
INTAKE = "ControlIntakeRole"
EVENT = json.loads((Path(__file__).parents[1] / "events" / "stack_delete.json").read_text())


@pytest.fixture(scope="session")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(
        tmp_path_factory, "types", lambda directory: write_project(directory, CONFIG + _TYPES)
    )


def of_queues(statement: Any) -> Sequence[str]:
    return [words(one) for one in listed(statement["Resource"])]


def is_shapes(resource: str) -> bool:
    return resource.startswith("<WorkloadplainJobsQueue") and resource.endswith("--c*")


def test_without_types_there_is_no_such_function(assembly: Assembly) -> None:
    names = [one.get("FunctionName") for one in functions_of(assembly)]

    assert "lab--intake" not in names
    for role in ("ControlScalerRole", "ControlOffersRole", "WorkloadplainFleetRole"):
        statements = assembly.statements(role)
        assert not {"WakeIntake", "RemoveQueues", "SendBack", "LearnSizes"} & statements.keys()


def functions_of(assembly: Assembly) -> list[Any]:
    return list(assembly.all_of("AWS::Lambda::Function"))


def test_with_types_there_is_one(typed: Assembly) -> None:
    names = [one.get("FunctionName") for one in functions_of(typed)]

    assert "lab--intake" in names


def test_who_routes_moves_messages_and_nothing_else(typed: Assembly) -> None:
    statements = typed.statements(INTAKE)
    services = {a.partition(":")[0] for one in statements.values() for a in listed(one["Action"])}

    assert services == {"dynamodb", "lambda", "logs", "s3", "sqs", "ssm"}
    (people,) = of_queues(statements["TakeMessages"])
    (shapes,) = of_queues(statements["RouteMessages"])
    assert people.startswith("<WorkloadplainJobsQueue")
    assert not people.endswith("*")
    assert is_shapes(shapes)
    assert set(listed(statements["RouteMessages"]["Action"])) == {
        "sqs:CreateQueue",
        "sqs:SendMessage",
    }
    assert statements["KeepShapes"]["Condition"] == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["c#plain"]}
    }


def test_a_worker_receives_from_shapes_and_only_sends_to_people(typed: Assembly) -> None:
    statements = typed.statements("WorkloadplainFleetRole")

    (worked,) = of_queues(statements["WorkQueue"])
    (back,) = of_queues(statements["SendBack"])
    assert is_shapes(worked)
    assert back.startswith("<WorkloadplainJobsQueue")
    assert statements["SendBack"]["Action"] == "sqs:SendMessage"


def test_the_worker_of_another_workload_reaches_no_shape(typed: Assembly) -> None:
    statements = typed.statements("WorkloadrichFleetRole")

    assert not any("--c*" in one for each in statements.values() for one in of_queues(each))


@pytest.mark.parametrize("role", ["ControlScalerRole", "ControlInterruptionRole"])
def test_who_reconciles_sees_shapes_and_wakes_the_router(typed: Assembly, role: str) -> None:
    statements = typed.statements(role)

    assert any(is_shapes(one) for one in of_queues(statements["SeeQueues"]))
    assert any(is_shapes(one) for one in of_queues(statements["RequeueJobs"]))
    (woken,) = of_queues(statements["WakeIntake"])
    assert woken.endswith("function:lab--intake")


@pytest.mark.parametrize("role", ["ControlOffersRole", "ControlTeardownFunctionRole"])
def test_who_removes_queues_removes_those_of_shapes_alone(typed: Assembly, role: str) -> None:
    (removed,) = of_queues(typed.statements(role)["RemoveQueues"])

    assert is_shapes(removed)


def test_only_where_there_are_types_a_teardown_looks_for_queues(
    typed: Assembly, assembly: Assembly
) -> None:
    (with_types,), (without,) = (each.all_of("Custom::SpindownFleet") for each in (typed, assembly))
    event = {**EVENT, "ResourceProperties": {**EVENT["ResourceProperties"]}}

    assert "Shapes" not in without
    assert not parse_stack_event(event).leaving.has_shapes
    event["ResourceProperties"]["Shapes"] = with_types["Shapes"]
    assert parse_stack_event(event).leaving.has_shapes


def test_who_measures_cannot_write_what_is_learned(typed: Assembly) -> None:
    def keys_of(role: str) -> dict[str, Any]:
        statements = typed.statements(role).items()
        found = {sid: [words(one) for one in listed(each["Resource"])] for sid, each in statements}
        return {sid: keys for sid, keys in found.items() if any("/sizes/" in key for key in keys)}

    assert list(keys_of("ControlOffersRole")) == ["LearnSizes"]
    assert list(keys_of(INTAKE)) == ["ReadSizes"]
    assert typed.statements(INTAKE)["ReadSizes"]["Action"] == "s3:GetObject"
    assert keys_of("WorkloadplainFleetRole") == {}
