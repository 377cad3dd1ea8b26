"""Everything that people must hear of is heard: by an alarm, or from a function itself."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import spindown.control.alert
from spindown.contract.name import DEPLOYMENT_ALARMS, WORKLOAD_ALARMS
from spindown.contract.row import SpendRow
from spindown.contract.settings import NAMESPACE
from spindown.control.alert.cost_rise import judge
from spindown.control.market import refresh
from spindown.domain.cost_rise_cause import Cause
from spindown.domain.policy import Policy
from spindown.error import AccessDenied
from spindown.memory import PortCall
from tests.control import WORKLOAD, ControlWorld
from tests.infra.observability.assembly import alarm_metrics, all_of

#: What must be heard -> the alarm that says so even when our functions are silent.
BY_ALARM = {
    "an item costs more than it used to": "lab--ocr--cost",
    "a worker idles longer than expected": "lab--ocr--idle",
    "the dead-letter queue is not empty": "lab--ocr--dead-letters",
    "a message waits longer than promised": "lab--ocr--oldest-message",
    "a message is older than 7 days": "lab--ocr--message-of-a-week",
    "nothing ticks": "lab--ocr--tick-missing",
    "80 % of the budget is used": "lab--budget-80",
    "all of the budget is used": "lab--budget-100",
    "the control plane costs over 5 % of the spend": "lab--control-share",
    "the catalogue is not refreshed": "lab--catalogue-missing",
    "notices of EC2 are not answered": "lab--interruption-errors",
    "people could not be told": "lab--untold",
}

#: What must be heard -> the alert by which a function tells it, in its own words.
BY_FUNCTION = {
    "launches fail for lack of capacity": "capacity",
    "launches fail for a full quota": "quota",
    "launches fail because of the account": "account",
    "the account may not have a type": "types-refused",
    "launches fail with an unknown code": "unknown-refusal",
    "the breaker is open": "breaker",
    "the live policy is invalid": "policy-invalid",
    "work waits longer than promised": "late",
    "no offer may be taken": "no-offer",
    "a job is past its deadline": "deadline-missed",
    "a job will be late": "deadline-at-risk",
    "what is deployed cannot read messages": "newer-messages",
    "rows cannot be read": "bad-rows",
    "workers write rows without end": "rows-flooded",
    "the queue is gone": "queue-missing",
    "the ledger is gone": "ledger-missing",
    "most workers look dead": "terminations-held-back",
    "EC2 does not end an instance": "unended",
    "a baked image is of no use": "image",
    "an item costs more than allowed": "item-cost",
    "machines are idle for most of a day": "idle-share",
    "dollars are spent and no item is done": "dollars-without-items",
    "jobs have lost their messages": "lost-jobs",
    "jobs of no batch have failed": "failed-jobs",
    "an item became dear": "cost-",
}

#: The alarm that rings for the scaler (infra/control), which somebody finds in the console.
WAKE_UP = "lab--ocr--backlog"
RUNBOOK = Path(__file__).parents[3] / "docs" / "runbook.md"


@pytest.mark.parametrize("what", BY_ALARM)
def test_an_alarm_says_it(what: str, resources: Mapping[str, Any]) -> None:
    names = {one["AlarmName"] for one in all_of(resources, "AWS::CloudWatch::Alarm")}

    assert BY_ALARM[what] in names


def test_there_is_no_other_alarm(resources: Mapping[str, Any]) -> None:
    names = {one["AlarmName"] for one in all_of(resources, "AWS::CloudWatch::Alarm")}

    assert {name for name in names if not name.startswith("lab--embed--")} == {*BY_ALARM.values()}


def test_doctor_looks_for_alarms_that_are_made(resources: Mapping[str, Any]) -> None:
    made = {one["AlarmName"] for one in all_of(resources, "AWS::CloudWatch::Alarm")}
    wanted = {f"lab--{name}" for name in DEPLOYMENT_ALARMS}
    wanted |= {f"lab--ocr--{name}" for name in WORKLOAD_ALARMS}

    assert wanted - made == {WAKE_UP}
    assert {*BY_ALARM.values()} - wanted == {"lab--budget-80", "lab--budget-100"}


def test_own_metrics_that_alarms_read_are_emitted(
    resources: Mapping[str, Any],
) -> None:
    read = {
        (name, dimensions)
        for alarm in all_of(resources, "AWS::CloudWatch::Alarm")
        for namespace, name, dimensions in alarm_metrics(alarm)
        if namespace == NAMESPACE
    }

    emitted = {(d.name, frozenset(d.dimensions)) for d in _live_through_all().metrics.data}

    assert read
    assert read <= emitted


def _live_through_all() -> ControlWorld:
    """Return a world in which all that alarms ring at has come to pass."""
    world = ControlWorld(policy=replace(Policy(), idle_timeout=timedelta(minutes=1)), budget=9.0)
    refresh(world.ports)
    for ago, dollars in [(0, 9.0), (7, 1.0), (14, 1.0)]:
        day = SpendRow(dollars=dollars, items=9, busy_seconds=60.0)
        world.put_day(world.now - timedelta(days=ago), day)
    judge(world.ports)
    world.launched()
    world.run(10)
    assert 1 in world.metrics.values("IdleBeyondExpectation")
    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')

    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port == "topic":
            raise AccessDenied("sns:Publish")
        return proceed()

    world.interfere = refuse
    world.run(10)
    assert world.metric("Untold") == 1
    return world


def test_functions_tell_the_rest_and_nothing_else() -> None:
    assert _alerts() == {*BY_FUNCTION.values()}


@pytest.mark.parametrize("name", [*BY_ALARM.values(), *BY_FUNCTION.values(), WAKE_UP])
def test_the_runbook_says_what_to_do_about_each(name: str) -> None:
    said = re.sub(r"^lab--(ocr--)?", "", name).rstrip("-")
    # What lists the alarms says when they ring; what comes after it, what to do.
    todo = RUNBOOK.read_text(encoding="utf-8").partition("## Nothing launches")[2]

    assert re.search(rf"`{said}[`-]|`{said}-\.\.\.`", todo)


def test_each_cause_of_a_dear_item_is_told() -> None:
    assert {cause.value for cause in Cause} == {
        "price",
        "boot",
        "idle",
        "redo",
        "throughput",
        "sparse queue",
        "overkill",
    }


def _alerts() -> set[str]:
    """Return the names that the code gives to alerts; of joined ones their beginning."""
    found = set()
    for path in Path(spindown.control.alert.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        strings = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Alert":
                (name,) = (word.value for word in node.keywords if word.arg == "name")
                match name:
                    case ast.Constant(value=str(text)):
                        found.add(text)
                    case ast.Name(id=variable) | ast.BinOp(left=ast.Name(id=variable)):
                        found.add(str(strings[variable]))
    return found
