"""What AWS is asked and paid besides instances: calls of the functions and of the workers.

Counted before the ports of a simulation, call by call. A tick while nothing happens comes once a
minute on AWS and more seldom here: those that are missing are put in as the first one was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from research.compare.grid import Results, Seed, grid, verdict
from spindown.domain.control_cost import TICK
from spindown.domain.list_price import PRICES, Usage
from spindown.domain.offer import HOURS_PER_MONTH
from spindown.domain.policy import Policy
from spindown.memory import PortCall
from spindown.simulator import Run, SimResult, SimScenario

TEXT = """Calls of AWS's interfaces by functions and workers at the promise of 10 minutes, for 1,000
items, and what they cost at list price, without any free allowance: requests of SQS, S3, DynamoDB
and Lambda, an invocation taken as 0.3 s of 512 MB and a query as 12 KB, which are estimates. EC2's
calls are free. A month is that of such traffic. What a deployment costs besides while nothing
happens, alarms for instance, is in [costs](costs.md). The first seed.
"""

#: Of the scaler, GB.
_MEMORY = 0.5
#: A consistent query of the ledger, in units of 4 KB, as in ``domain.control_cost``.
_QUERY_UNITS = 3
#: A transaction counts each of its writes twice.
_TRANSACTED = 2
#: EC2 tells of its shutting down and of its end.
_EVENTS_AN_INSTANCE = 2
_MINUTE = 60.0
#: Of the functions, where 4,000 jobs a day come.
_DOLLARS_A_MONTH = 1.0
_SHARE_OF_BILL = 0.005
#: An hour's idle ticks without the first, which learn, and the next hour's refresh of the offers.
_IDLE_FROM, _IDLE_TO = 120.0, 3540.0


#: Functions and workers.
_WHO = ("control", "work")
#: Units of what is paid for.
Units = Mapping[Usage, float]


_TABLE: Mapping[str, Units] = {
    "get": {Usage.TABLE_READ: 1},
    "find_machine": {Usage.TABLE_READ: 1},
    "query": {Usage.TABLE_READ: _QUERY_UNITS},
    "query_each": {Usage.TABLE_READ: _QUERY_UNITS},
    "write": {Usage.TABLE_WRITE: 1},
}


def _table(call: PortCall, _answer: object) -> Units | None:
    if call.method == "transact":
        return {Usage.TABLE_WRITE: _TRANSACTED * len(call.args[0])}
    return _TABLE.get(call.method)


def _objects(call: PortCall, _answer: object) -> Units | None:
    if call.method in {"get", "get_file"}:
        return {Usage.OBJECT_READ: 1.0}
    # S3 asks for a list what it asks for a write, and nothing for a delete.
    if call.method in {"put", "put_file", "list", "versions"}:
        return {Usage.OBJECT_WRITE: 1.0}
    return _NOTHING if call.method == "delete" else None


def _queue(call: PortCall, _answer: object) -> Units | None:
    paid = {"send", "receive", "extend", "delete", "backlog"}
    return {Usage.QUEUE_REQUEST: 1.0} if call.method in paid else None


def _polls(call: PortCall, answer: object) -> Units | None:
    # A long poll is one request, whether it finds a message at once or after a while.
    is_request = call.method == "wait" or (call.method == "receive" and answer is not None)
    return {Usage.QUEUE_REQUEST: 1.0} if is_request else None


def _compute(call: PortCall, _answer: object) -> Units | None:
    return _NOTHING if call.method in _FREE else None


_NOTHING: Units = {}
#: Calls that cost nothing.
_FREE = frozenset({"launch", "instances", "instance", "terminate", "reclaimed"})
_USED: Mapping[str, Callable[[PortCall, object], Units | None]] = {
    "table": _table,
    "objects": _objects,
    "queue": _queue,
    "polls": _polls,
    "compute": _compute,
}


class Count:
    """Counts calls and what is paid for; an interceptor of ``Run``."""

    def __init__(self) -> None:
        """Begin at nothing."""
        #: Who -> calls, and USD.
        self.calls = dict.fromkeys(_WHO, 0.0)
        self.dollars = dict.fromkeys(_WHO, 0.0)

    def __call__(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        """Let a call through; count it if it is one of AWS's."""
        answer = proceed()
        who, _, port = call.port.partition(" ")
        used = _USED[port](call, answer)
        if used is not None:
            self.add(who, 1.0, used)
        return answer

    def add(self, who: str, calls: float, used: Units) -> None:
        """Count so many calls that use up so much together."""
        self.calls[who] += calls
        self.dollars[who] += sum(PRICES[usage].each * units for usage, units in used.items())


def counted(
    scenario: SimScenario, policy: Policy, seed: int
) -> tuple[SimResult, Mapping[str, float]]:
    """Run ours; return what it came to, and calls and USD of functions and of workers."""
    count = Count()
    result = Run(scenario, policy, seed, interceptor=count).run()
    ticks = max(result.seconds // _MINUTE, result.ticks)
    calls, dollars = idle_tick(scenario, policy)
    count.calls["control"] += calls * (ticks - result.ticks)
    count.dollars["control"] += dollars * (ticks - result.ticks)
    events = _EVENTS_AN_INSTANCE * result.launches + result.interruptions
    invoked = {
        Usage.LAMBDA_REQUEST: 1.0,
        Usage.LAMBDA_GIB_SECOND: TICK.seconds * _MEMORY,
        Usage.LOG_GIB: TICK.used[Usage.LOG_GIB],
    }
    count.add("control", 0.0, {usage: units * (ticks + events) for usage, units in invoked.items()})
    count.add("control", 0.0, {Usage.SCHEDULE: ticks})
    return result, {
        **{f"{who}_calls": calls for who, calls in count.calls.items()},
        **{f"{who}_dollars": dollars for who, dollars in count.dollars.items()},
        "months": scenario.length / 3600.0 / HOURS_PER_MONTH,
    }


def idle_tick(scenario: SimScenario, policy: Policy) -> tuple[float, float]:
    """Return calls and USD of one tick while nothing happens."""
    count = Count()
    quiet = replace(scenario, arrivals=())
    run = Run(quiet, policy, 1, quiet=timedelta(minutes=1), interceptor=count)
    while run.agenda.seconds < _IDLE_FROM:
        run.step()
    before, ticks = Count(), run.record.counts["tick"]
    before.calls, before.dollars = dict(count.calls), dict(count.dollars)
    while run.agenda.seconds < _IDLE_TO:
        run.step()
    ticks = run.record.counts["tick"] - ticks
    calls, dollars = (
        (now["control"] - then["control"]) / ticks
        for now, then in ((count.calls, before.calls), (count.dollars, before.dollars))
    )
    return calls, dollars


def call_table(results: Results) -> str:
    """Return calls and their cost by scenario; none of scenarios that were not counted."""
    head = ["scenario", "functions: calls, $", "workers: calls, $", "functions, $ a month"]
    head += ["functions, % of EC2's bill", "workers, % of EC2's bill"]
    rows = []
    for name, seed in _known(results):
        calls, ours = seed["calls"], seed["ours 10 min"]
        thousands = ours["items"] / 1000.0
        cells = [
            f"{calls[f'{who}_calls'] / thousands:,.0f}, {calls[f'{who}_dollars'] / thousands:.3g}"
            for who in _WHO
        ]
        shares = [f"{100.0 * calls[f'{who}_dollars'] / ours['dollars']:.2f}" for who in _WHO]
        rows.append([name, *cells, f"{calls['control_dollars'] / calls['months']:.2f}", *shares])
    return grid(head, rows)


def call_targets(results: Results) -> list[str]:
    """Return the targets of the control plane's bill, as lines of a table."""
    lines = []
    for name, seed in _known(results):
        if name != "S5":
            continue
        month = seed["calls"]["control_dollars"] / seed["calls"]["months"]
        share = seed["calls"]["control_dollars"] / seed["ours 10 min"]["dollars"]
        what, holds = f"{name}: what the functions' calls cost", verdict(month <= _DOLLARS_A_MONTH)
        lines.append(f"| {what} a month | $1 or less | ${month:.2f} | {holds} |")
        holds = verdict(share <= _SHARE_OF_BILL)
        lines.append(f"| {what}, of EC2's bill | 0.5 % or less | {100 * share:.2f} % | {holds} |")
    return lines


def _known(results: Results) -> Sequence[tuple[str, Seed]]:
    return [(name, seeds["1"]) for name, seeds in results.items() if "calls" in seeds.get("1", {})]
