"""A workload with types has a function that routes; leave for queues of shapes is always there."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.infra.assembly import CONFIG, Assembly, listed, synthesise_once, words, write_project
from tests.infra.call.control import INTAKE_CALLS, INTAKE_MUST_NOT
from tests.infra.policy import read_statements

_TYPES = """
[[workload.plain.policy.types]]
name = "large"
memory_gib = 64
"""
INTAKE = "ControlIntakeRole"


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
        assert not {"WakeIntake", "LearnSizes"} & statements.keys()


def functions_of(assembly: Assembly) -> list[Any]:
    return list(assembly.all_of("AWS::Lambda::Function"))


def test_with_types_there_is_one(typed: Assembly) -> None:
    names = [one.get("FunctionName") for one in functions_of(typed)]

    assert "lab--intake" in names


def test_who_routes_moves_messages_and_nothing_else(typed: Assembly) -> None:
    statements = typed.statements(INTAKE)
    services = {a.partition(":")[0] for one in statements.values() for a in listed(one["Action"])}

    assert services == {"dynamodb", "lambda", "logs", "s3", "sqs", "ssm"}
    people, left = of_queues(statements["TakeMessages"])
    (shapes,) = of_queues(statements["RouteMessages"])
    assert people.startswith("<WorkloadplainJobsQueue")
    assert not people.endswith("*")
    assert is_shapes(shapes)
    assert left == shapes
    assert listed(statements["RouteMessages"]["Action"]) == ["sqs:CreateQueue"]
    assert statements["KeepShapes"]["Condition"] == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["c#plain"]}
    }


def test_who_routes_may_do_what_it_does_and_no_more(typed: Assembly) -> None:
    statements = [one for one in read_statements(typed, INTAKE) if one.sid != "WriteLog"]

    for call in INTAKE_CALLS:
        assert any(one.allows(call) for one in statements), call
    for call in INTAKE_MUST_NOT:
        assert not any(one.allows(call) for one in statements), call
    for one in statements:
        served = [call for call in INTAKE_CALLS if one.allows(call)]
        assert set(one.actions) <= {call.action for call in served}, one.sid


def test_a_worker_receives_from_shapes_and_not_from_people(typed: Assembly) -> None:
    statements = typed.statements("WorkloadplainFleetRole")

    (worked,) = of_queues(statements["WorkQueue"])
    (other,) = of_queues(statements["KeepJobs"])
    assert is_shapes(worked)
    assert other.startswith("<WorkloadplainJobsQueue")
    assert not other.endswith("*")
    assert "sqs:ReceiveMessage" not in listed(statements["KeepJobs"]["Action"])


def test_a_deploy_that_changes_the_types_leaves_jobs_in_hand(
    typed: Assembly, assembly: Assembly
) -> None:
    held = {f"sqs:{action}" for action in ("ChangeMessageVisibility", "DeleteMessage")}
    for each in (typed, assembly):
        statements = each.statements("WorkloadplainFleetRole")
        reached = {
            name: set(listed(statements[sid]["Action"]))
            for sid in ("WorkQueue", "KeepJobs")
            for name in of_queues(statements[sid])
        }
        assert len(reached) == 2
        assert all(held <= actions for actions in reached.values())


def test_the_worker_of_another_workload_reaches_no_shape(typed: Assembly) -> None:
    statements = typed.statements("WorkloadrichFleetRole")

    reached = {one for each in statements.values() for one in of_queues(each) if "--c*" in one}
    assert len(reached) == 1
    assert not any("plain" in one for one in reached)


@pytest.mark.parametrize("role", ["ControlScalerRole", "ControlInterruptionRole"])
def test_who_reconciles_sees_shapes_and_wakes_the_router(typed: Assembly, role: str) -> None:
    statements = typed.statements(role)

    assert any(is_shapes(one) for one in of_queues(statements["SeeQueues"]))
    assert any(is_shapes(one) for one in of_queues(statements["RequeueJobs"]))
    (woken,) = of_queues(statements["WakeIntake"])
    assert woken.endswith("function:lab--intake")


@pytest.mark.parametrize("role", ["ControlOffersRole", "ControlTeardownFunctionRole"])
def test_who_removes_queues_removes_those_of_shapes_alone(assembly: Assembly, role: str) -> None:
    (removed,) = of_queues(assembly.statements(role)["RemoveQueues"])

    # Also of a workload that has left, or has no types any more.
    assert removed.endswith(":lab--*--c*")


def test_who_measures_cannot_write_what_is_learned(typed: Assembly) -> None:
    def keys_of(role: str) -> dict[str, Any]:
        statements = typed.statements(role).items()
        found = {sid: [words(one) for one in listed(each["Resource"])] for sid, each in statements}
        return {sid: keys for sid, keys in found.items() if any("/sizes/" in key for key in keys)}

    assert list(keys_of("ControlOffersRole")) == ["LearnSizes"]
    assert list(keys_of(INTAKE)) == ["ReadSizes"]
    assert typed.statements(INTAKE)["ReadSizes"]["Action"] == "s3:GetObject"
    assert keys_of("WorkloadplainFleetRole") == {}
