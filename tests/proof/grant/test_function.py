"""A function that lacks one statement of its role does not do what that statement is for."""

from collections.abc import Iterator

import pytest

from spindown.contract.settings import live_parameter
from tests.infra.test_grant_use import STATEMENTS
from tests.proof.grant.function import DEEDS, REMEMBERED
from tests.proof.grant.world import (
    INTAKE,
    INTERRUPTION,
    OFFERS,
    SCALER,
    TEARDOWN,
    TRIGGER,
    WORKER,
    FunctionFailed,
    World,
    deployed,
)

pytestmark = pytest.mark.proof

_MARKET = "EC2, its prices and its quotas are our own market here, which asks no IAM"
_BY_EC2 = "EC2 asks for it while it carries out a launch, and EC2 is our own market here"
#: What no run here can tell apart, with the reason; `tests/infra/test_grant_use.py` takes each
#: from the template and sees which of the function's calls is refused then.
NOT_RUN = {
    **dict.fromkeys(
        (
            *("FindInstances", "SeeInstances", "SeeListPrices", "SeePrices", "SeeQuotas"),
            *("SeeTypes", "EndWorkers"),
        ),
        _MARKET,
    ),
    **dict.fromkeys(
        (
            *(
                "LaunchFromTemplates",
                "LaunchWithParts",
                "ChooseImages",
                "LaunchBaked",
                "LaunchImages",
                "LaunchTaggedParts",
                "TagLaunches",
            ),
            *("LaunchTaggedInstances", "RequestTaggedFleets", "MakeSpotRole", "ResolveImages"),
            "RequestSpot",
        ),
        _BY_EC2,
    ),
    **dict.fromkeys(
        ("SeeJobs", "SeeLeases", "CountMessages"),
        "jobs are counted once their batch is a quarter of an hour old",
    ),
    **dict.fromkeys(
        ("ReadMeasured", "KeepUsage"), "the table of a day is made when that day is over"
    ),
    "LearnSizes": "sizes are learned from what workers wrote before",
    "ReadSizes": "sizes are read where `rightsize` is apply",
    "MakeBuilderRole": "Image Builder asks for it at the first build of an account",
    "WakeScaler": "the alarm of the queue may wake it too",
    "WakeIntake": "an interruption ticks for one workload, which has no types here",
    "PassWorkerRoles": "MiniStack does not check iam:PassRole, and EC2 is our own market here",
    "WriteLog": "Lambda writes it, which MiniStack does with no one's leave",
    "InvokeFunctions": "Scheduler assumes the role; the schedules here fire with no one's leave",
    "KeepFailedEvents": "Lambda sends it, which MiniStack does with no one's leave",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    for world in deployed(tmp_path_factory.mktemp("iam")):
        # What is on sale is looked at, and nothing is bought.
        world.client("ssm").put_parameter(
            Name=live_parameter("iam", "count"),
            Value='{"max_price_per_hour": 0.0001}',
            Type="String",
        )
        world.forget()
        yield world


@pytest.mark.parametrize(("role", "sid"), DEEDS)
def test_a_function_does_not_do_what_a_statement_is_for(world: World, role: str, sid: str) -> None:
    deed = DEEDS[role, sid]
    world.begin_anew()
    if sid in REMEMBERED:
        world.forget()

    with world.iam.without(world.roles[role], sid):
        try:
            is_done = deed(world)
        except FunctionFailed:
            is_done = False
    denied = {one.role for one in world.iam.denied}

    assert (is_done, denied) == (False, {world.roles[role]})
    world.begin_anew()
    assert deed(world)
    assert world.iam.denied == []


@pytest.mark.parametrize("role", [SCALER, INTERRUPTION, OFFERS, INTAKE, TEARDOWN, TRIGGER])
def test_no_statement_of_a_role_is_left_out(world: World, role: str) -> None:
    run = {sid for of, sid in DEEDS if of == role}

    left = world.iam.statements(world.roles[role]) - run

    assert left <= NOT_RUN.keys()
    # Of a workload with types: tests/infra/test_types.py; of baked images: test_endpoint.py there.
    others = {"LaunchBaked", "LearnSizes", "WakeIntake"} if role != INTAKE else left
    assert left - others <= {sid for of, sid in STATEMENTS if of == role}


def test_no_role_is_left_out(world: World) -> None:
    # Each workload has a role of the same statements.
    others = {WORKER.replace("count", name) for name in ("count", "other", "typed")}

    assert world.roles.keys() == {role for role, _ in DEEDS} | others | {TRIGGER}
