"""What home calls in another region is granted by that region's outpost, and nothing more is."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.infra.assembly import AWAY, SPREAD, Assembly, synthesise_once, write_project
from tests.infra.call.role import CALLS, MUST_NOT, OFFERS, SCALER
from tests.infra.policy import Call, Statement, ours, read_statements

#: Names at home -> names in the outpost. "This region" is the same word in both templates.
_THERE = {
    "NetworkSubnetA": "NetworkSubnetB",
    "NetworkSubnetC": "NetworkSubnetD",
    **{f"Workload{name}FleetTemplate": f"StayWorkload{name}Template" for name in ("plain", "rich")},
}
#: Where services know the region of their own accord, or none.
_GRANTED_AT_HOME = (
    "dynamodb",
    "iam",
    "imagebuilder",
    "logs",
    "pricing",
    "s3",
    "servicequotas",
    "sns",
    "sqs",
)
POLICIES = {SCALER: "UseReconcile", OFFERS: "UseOffers"}


@pytest.fixture(scope="module")
def outpost(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    def write(directory: Path) -> Path:
        return write_project(directory, SPREAD)

    core = synthesise_once(tmp_path_factory, "spread", write)
    return replace(core, stack_name=f"lab-outpost-{AWAY}")


def moved(call: Call) -> Call:
    """Return a call as it is made in the outpost's region."""

    def there(text: str) -> str:
        for at_home, away in _THERE.items():
            text = text.replace(at_home, away)
        return text

    context = {key: [there(one) for one in values] for key, values in call.context.items()}
    return replace(call, resource=there(call.resource), context=context)


def calls(role: str) -> list[Call]:
    regional = [
        moved(call)
        for call in CALLS[role]
        if call.action.partition(":")[0] not in _GRANTED_AT_HOME
        and "parameter/spindown/" not in call.resource
    ]
    described = [ours("ssm", f"parameter/spindown/lab/outpost/{one}") for one in ("plain", "rich")]
    return [*regional, *(Call("ssm:GetParameters", one) for one in described)]


def is_allowed(statements: Sequence[Statement], call: Call) -> bool:
    return any(statement.allows(call) for statement in statements)


@pytest.mark.parametrize("role", POLICIES)
def test_what_is_called_there_is_granted_there(outpost: Assembly, role: str) -> None:
    statements = read_statements(outpost, POLICIES[role])

    assert [str(call) for call in calls(role) if not is_allowed(statements, call)] == []


@pytest.mark.parametrize("role", POLICIES)
def test_each_statement_is_for_a_call(outpost: Assembly, role: str) -> None:
    statements = read_statements(outpost, POLICIES[role])

    for left_out in statements:
        rest = [one for one in statements if one is not left_out]
        assert [call for call in calls(role) if not is_allowed(rest, call)], left_out.sid


@pytest.mark.parametrize("role", POLICIES)
def test_what_must_not_be_done_at_home_must_not_be_done_there(outpost: Assembly, role: str) -> None:
    statements = read_statements(outpost, POLICIES[role])

    assert [str(call) for call in MUST_NOT[role] if is_allowed(statements, moved(call))] == []
