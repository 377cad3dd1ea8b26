"""What could work and is held back: the ledger's breakers, and the budget of the month."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.aws.dynamodb import PARTITION, SORT
from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.row import BreakerRow, BudgetRow
from spindown.contract.settings import RegionSettings
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, LedgerMissing
from spindown.ledger import Ledger, account_key
from spindown.memory import PortCall, intercept
from spindown.operate.doctor.finding import Severity
from spindown.port import Key, Write
from tests.builders import NOW, account_refused, minutes
from tests.control import LAUNCH_VERSION, ControlWorld, with_policy
from tests.unit.operate.examined import TEMPLATE, Examined, a_config

OPEN = BreakerRow(silent=3, reason=account_refused(), open_until=NOW + minutes(40))


def put_breaker(world: Examined, row: BreakerRow, region: str = "") -> None:
    key = Ledger(world.table, "classify").key(rows.breaker_sort_key(region))
    world.table.write(Write(key=key, set=encode(row)))


def spend(world: Examined, usd: float) -> None:
    key = account_key(rows.budget_sort_key(NOW))
    world.table.write(Write(key=key, set=encode(BudgetRow(dollars=usd / 2, committed=usd))))


def test_an_open_breaker_is_a_warning_with_reason_and_command() -> None:
    world = Examined()
    put_breaker(world, OPEN)

    found = world.finding("breaker")

    assert found.what == "breaker of classify in us-west-2"
    assert found.severity is Severity.WARNING
    assert found.found == f"open until {NOW + minutes(40):%H:%M} UTC: Refused: no grant"
    assert "--table-name demo--ledger" in found.remedy
    # It could launch: who asks by the exit code is not told otherwise.
    assert world.report().can_launch


def test_another_region_s_breaker_is_named_with_its_own_key() -> None:
    world = Examined()
    settings, _ = world.settings.workload("classify")
    there = RegionSettings(subnets={"eu-west-1a": "subnet-e"}, templates={"x86_64": TEMPLATE})
    home = settings.regions
    world.settings.deploy(replace(settings, regions={**home, "eu-west-1": there}))
    put_breaker(world, OPEN, "eu-west-1")

    found = world.finding("breaker")

    assert found.what == "breaker of classify in eu-west-1"
    assert '"breaker#eu-west-1"' in found.remedy
    # The ledger is at home.
    assert "--region us-west-2 " in found.remedy


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(replace(OPEN, open_until=NOW), id="its wait is over"),
        pytest.param(BreakerRow(silent=2), id="two of three"),
        pytest.param(None, id="none was ever counted"),
    ],
)
def test_a_closed_breaker_is_well(row: BreakerRow | None) -> None:
    world = Examined()
    if row is not None:
        put_breaker(world, row)

    found = world.finding("breaker")

    assert (found.what, found.found, found.severity) == ("breakers", "closed", Severity.GOOD)


def test_the_command_that_it_prints_lets_one_launch_try_at_once() -> None:
    examined = Examined()
    put_breaker(examined, OPEN)
    words = shlex.split(examined.finding("breaker").remedy.partition("after: ")[2])
    key = json.loads(words[words.index("--key") + 1])
    values = json.loads(words[words.index("--expression-attribute-values") + 1])
    assert words[words.index("--update-expression") + 1] == "SET open_until = :now"

    world: ControlWorld = with_policy(max_workers=9)
    open_until = world.now + timedelta(hours=1)
    world.put(
        rows.BREAKER,
        silent=3,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=open_until,
    )
    world.send(900)
    assert world.tick().outcome is Outcome.BLOCKED
    told = Key(partition=key[PARTITION]["S"], sort=key[SORT]["S"])
    world.table.write(Write(key=told, set={"open_until": values[":now"]["S"]}))

    tried = world.tick(minutes(1))

    assert [len(request.instances) for request in tried.requests] == [1]


def test_a_ledger_that_is_gone_blocks() -> None:
    world = Examined()

    def gone(call: PortCall, proceed: Callable[[], Any]) -> Any:
        del call, proceed
        raise LedgerMissing("there is no table demo--ledger")

    world.table = intercept(world.table, "table", gone)

    assert world.finding("ledger").severity is Severity.BLOCKED


@pytest.mark.parametrize(
    ("committed", "severity"),
    [
        pytest.param(40.0, Severity.GOOD, id="room"),
        pytest.param(100.0, Severity.WARNING, id="used up"),
        pytest.param(99.999, Severity.WARNING, id="less than a launch sets aside"),
        pytest.param(130.0, Severity.WARNING, id="lowered since"),
    ],
)
def test_a_budget_without_room_for_a_launch_is_a_warning(
    committed: float, severity: Severity
) -> None:
    world = Examined(budget_per_month=100.0)
    spend(world, committed)

    found = world.finding("budget")

    assert found.severity is severity
    assert found.found.startswith(f"{committed:.2f} of 100 USD ")
    assert ("budget_per_month" in found.remedy) is (severity is Severity.WARNING)


@pytest.mark.parametrize("is_deployed", [True, False])
def test_a_budget_below_any_launch_blocks_before_the_deploy_too(*, is_deployed: bool) -> None:
    def examined(budget: float) -> Examined:
        config = a_config()
        config["deployment"]["budget_per_month"] = budget
        return Examined(config=config, budget_per_month=budget, is_deployed=is_deployed)

    enough = examined(100.0).report().findings
    assert not [f for f in enough if f.what == "budget for classify"]

    found = examined(0.001).finding("budget for classify")

    assert found.severity is Severity.BLOCKED
    assert "budget_per_month" in found.remedy


@pytest.mark.parametrize("budget", [None, 100.0], ids=["no-budget", "a-budget"])
def test_an_unreadable_month_stops_launches_until_fixed(
    budget: float | None,
) -> None:
    examined, world = Examined(budget_per_month=budget), ControlWorld(budget=budget)
    busy = world.launched()
    world.claim(busy.instance_id)
    world.run(3, beats=True)
    key = account_key(rows.budget_sort_key(world.now))
    before = world.table.get(key) or {}
    world.table.write(Write(key=key, set={"committed": "much"}))
    world.send(900)
    stopped = world.tick()
    examined.table = world.table

    found = examined.finding("budget")

    assert stopped.summary.why == Reason(ReasonCode.MONTH_UNREADABLE, {"row": key.sort})
    assert found.severity is Severity.BLOCKED
    assert key.sort in found.found
    values = json.loads(_word_after("--expression-attribute-values", found.remedy))
    assert json.loads(_word_after("--key", found.remedy))[SORT]["S"] == key.sort
    told = _word_after("--update-expression", found.remedy)
    assert told == "SET dollars = :spent, committed = :committed"
    fixed = {
        "dollars": float(values[":spent"]["N"]),
        "committed": float(values[":committed"]["N"]),
    }
    assert fixed == pytest.approx({name: before[name] for name in fixed}, abs=0.006)
    world.table.write(Write(key=key, set=fixed))
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED
    assert examined.report().can_launch


def _word_after(option: str, remedy: str) -> str:
    words = shlex.split(remedy.partition(": ")[2])
    return words[words.index(option) + 1]


def test_says_nothing_without_a_budget_or_before_the_deploy() -> None:
    assert not [f for f in Examined().report().findings if f.what.startswith("budget")]
    planned = Examined(is_deployed=False).report().findings
    assert not [f for f in planned if f.what.startswith(("budget", "breaker", "ledger"))]


def test_a_ledger_that_may_not_be_read_is_a_warning() -> None:
    world = Examined()
    world.table = intercept(world.table, "table", _refuse)

    found = world.finding("ledger demo--ledger")

    assert found.severity is Severity.WARNING
    assert "dynamodb:PartiQLSelect" in found.remedy


def test_the_ledger_is_read_once_per_workload_and_per_month() -> None:
    world, asked = Examined(budget_per_month=100.0), list[str]()

    def count(call: PortCall, proceed: Callable[[], Any]) -> Any:
        asked.append(call.method)
        return proceed()

    world.table = intercept(world.table, "table", count)

    world.report()

    # The breakers and the boots; the lock and the month.
    assert sorted(asked) == ["get", "get", "query", "query"]


def test_a_damaged_lock_is_told() -> None:
    world = Examined()
    key = Ledger(world.table, "classify").key(rows.LOCK)
    world.table.write(Write(key=key, set={"until": "never", "holder": "x", "fence": 3}))

    (finding,) = [each for each in world.report().findings if each.what.startswith("lock of")]

    assert finding.severity is Severity.WARNING


def _refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
    raise AccessDenied(call.method)


def test_jobs_without_a_message_are_told_with_the_command() -> None:
    world = Examined()
    assert world.severity("jobs of classify") is Severity.GOOD

    world.lost["classify"] = 32

    finding = world.finding("jobs of classify")
    assert finding.severity is Severity.WARNING
    assert "32" in finding.found
    assert finding.remedy == "`spindown redrive classify --lost`"


def test_queues_that_nobody_may_read_are_no_sign_of_lost_jobs() -> None:
    world = Examined(lost={"classify": AccessDenied("sqs:GetQueueAttributes")})

    finding = world.finding("jobs of classify")

    assert finding.severity is Severity.WARNING
    assert finding.found == "sqs:GetQueueAttributes"


def put_boots(world: Examined, **seconds: tuple[float, ...]) -> None:
    for phase, samples in seconds.items():
        key = Ledger(world.table, "classify").key(f"{rows.BOOT_PHASE}{phase.replace('_', '-')}")
        world.table.write(Write(key=key, set=encode({"samples": samples})))


@pytest.mark.parametrize(
    ("mode", "install", "severity"),
    [
        ("bootstrap", 120.0, Severity.WARNING),
        ("bootstrap", 20.0, Severity.GOOD),
        ("bake", 120.0, Severity.GOOD),
    ],
)
def test_boots_that_install_long_are_told_what_baking_spares(
    mode: str, install: float, severity: Severity
) -> None:
    world = Examined(config=a_config(image={"mode": mode}))
    put_boots(world, image=(30.0,), install=(install,), first_poll=(4.0,))

    found = world.finding("boots")

    assert (found.what, found.severity) == ("boots of classify", severity)
    assert f"install {install:.0f} s" in found.found
    assert bool(found.remedy) is (severity is Severity.WARNING)
    if found.remedy:
        assert "$" in found.remedy
