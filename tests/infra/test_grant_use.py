"""Every call that a role makes is granted, and every grant is for a call that it makes."""

from collections.abc import Sequence

import pytest

from tests.infra.assembly import Assembly
from tests.infra.call.role import CALLS, MUST_NOT, WORKER
from tests.infra.policy import Call, Statement, matches, read_statements

STATEMENTS = [
    *(
        ("WorkloadrichFleetRole", sid)
        for sid in (
            "WorkQueue",
            "KeepJobs",
            "GiveUpJobs",
            "KeepResults",
            "KeepUsage",
            "ReadUploads",
            "SeeMissingObjects",
            "SeeVersions",
            "ReadCode",
            "ReadKit",
            "ReadInputs",
            "ListInputs1",
            "ListInputs2",
            "ReadParameters",
            "ReadSecrets",
            "UseKeys",
            "TellOfJobs",
            "KeepOwnRows",
            "ReadPolicy",
            "ReadOwnHistory",
            "WriteLog",
        )
    ),
    *(
        (role, sid)
        for role in ("ControlScalerRole", "ControlInterruptionRole")
        for sid in (
            "ReadSettings",
            "SeeMissingObjects",
            "KeepOffers",
            "SeeTypes",
            "SeeListPrices",
            "SeeQuotas",
            "KeepLedger",
            "KeepDecisions",
            "SeeQueues",
            "RequeueJobs",
            "SeeInstances",
            "SeePrices",
            "LaunchFromTemplates",
            "LaunchWithParts",
            "ChooseImages",
            "LaunchImages",
            "RequestTaggedFleets",
            "RequestSpot",
            "LaunchTaggedParts",
            "LaunchTaggedInstances",
            "TagLaunches",
            "PassWorkerRoles",
            "MakeSpotRole",
            "ResolveImages",
            "EndWorkers",
            "TellPeople",
            "WriteLog",
        )
    ),
    *(
        ("ControlScalerRole", sid)
        for sid in ("FollowBatches", "CancelBatches", "CloseBatches", "StartBatches")
    ),
    *(
        ("ControlOffersRole", sid)
        for sid in (
            "ReadSettings",
            "SeeMissingObjects",
            "KeepOffers",
            "SeeTypes",
            "SeeListPrices",
            "RenewMessages",
            "RemoveQueues",
            "KeepBodies",
            "SeeQuotas",
            "SeeJobs",
            "SeeLeases",
            "CountMessages",
            "WriteLog",
        )
    ),
    *(
        ("ControlTeardownFunctionRole", sid)
        for sid in (
            "KeepReconcileOut",
            "FindShapes",
            "RemoveQueues",
            "FindInstances",
            "EndWorkers",
            "WriteLog",
            "KeepFailedEvents",
        )
    ),
    *(
        ("ControlOffersRole", sid)
        for sid in (
            "ReadLedger",
            "KeepNotes",
            "SeePrices",
            "TellPeople",
            "ReadMeasured",
            "KeepUsage",
            "BakeImages",
            "SeeImages",
            "MakeBuilderRole",
        )
    ),
    ("ControlInterruptionRole", "KeepFailedEvents"),
    ("ControlOffersRole", "KeepFailedEvents"),
    ("ControlTriggerRole", "InvokeFunctions"),
]


def is_allowed(statements: Sequence[Statement], call: Call) -> bool:
    return any(statement.allows(call) for statement in statements)


@pytest.mark.parametrize("role", CALLS)
def test_what_a_role_calls_is_granted(assembly: Assembly, role: str) -> None:
    statements = read_statements(assembly, role)

    refused = [str(call) for call in CALLS[role] if not is_allowed(statements, call)]

    assert refused == []


@pytest.mark.parametrize("role", MUST_NOT)
def test_what_a_role_must_not_do_is_refused(assembly: Assembly, role: str) -> None:
    statements = read_statements(assembly, role)

    assert [str(call) for call in MUST_NOT[role] if is_allowed(statements, call)] == []


def test_a_shell_lets_no_role_do_more_than_open_it(with_shell: Assembly) -> None:
    for role, refused in MUST_NOT.items():
        statements = read_statements(with_shell, role)
        assert [str(call) for call in refused if is_allowed(statements, call)] == []
    worker = {one.sid: one for one in read_statements(with_shell, WORKER)}
    shell = worker.pop("OpenSessions")

    assert shell.resources == ["*"]
    assert sorted({*worker, shell.sid}) == sorted(
        [*(sid for role, sid in STATEMENTS if role == WORKER), "OpenSessions"]
    )


@pytest.mark.parametrize(("role", "sid"), STATEMENTS)
def test_without_any_one_statement_a_call_is_refused(
    assembly: Assembly, role: str, sid: str
) -> None:
    statements = read_statements(assembly, role)
    rest = [statement for statement in statements if statement.sid != sid]

    assert len(rest) == len(statements) - 1
    assert [call for call in CALLS[role] if not is_allowed(rest, call)]


def test_the_statements_are_all_there_are(assembly: Assembly) -> None:
    found = [(role, one.sid) for role in CALLS for one in read_statements(assembly, role)]

    assert sorted(found) == sorted(STATEMENTS)


@pytest.mark.parametrize("role", CALLS)
def test_each_action_and_each_resource_of_a_grant_is_for_a_call(
    assembly: Assembly, role: str
) -> None:
    idle = []
    for one in read_statements(assembly, role):
        served = [call for call in CALLS[role] if one.allows(call)]
        idle += [
            f"{one.sid}: {action}"
            for action in one.actions
            if action not in {call.action for call in served}
        ]
        idle += [
            f"{one.sid}: {pattern}"
            for pattern in one.resources
            if not any(matches(pattern, call.resource) for call in served)
        ]

    assert idle == []
