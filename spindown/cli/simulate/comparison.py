"""The comparison of the alternatives: the figures that the terminal, JSON and the page share."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from spindown.cli.history.gather import Gathered
from spindown.cli.simulate.alternative import AlternativeResult, Role
from spindown.domain.offer import HOURS_PER_MONTH, extra_price_per_hour
from spindown.reason_text import say_count
from spindown.simulator import SimResult, SimScenario
from spindown.simulator.scenario import DAY, value_at

_HOUR = 3600.0
#: Fields of a result that are too long, or said elsewhere, for a line of JSON.
_LEFT_OUT = {"samples", "scenario", "seed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One way to do the work, as a line of a table."""

    name: str
    title: str
    role: Role
    dollars: float
    #: USD of 730 hours at this rate.
    dollars_a_month: float
    #: Infinite: no item was done.
    dollars_per_1000_items: float
    #: Dollars over ours; None: one of both left work undone, so that it compares nothing.
    times_ours: float | None
    #: Seconds from a job's arrival to its first claim; both 0 if no job was ever claimed.
    wait_p50: float
    wait_p95: float
    launches: int
    interruptions: int
    #: Share of the dollars that went to boots, idle time and work done again; None: it cost none.
    overhead: float | None
    unfinished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All results; the first one is this policy."""

    gathered: Gathered
    outcomes: tuple[AlternativeResult, ...]
    #: What the work alone costs, without a boot or an idle second, at the lowest price of all.
    work_alone: float

    @property
    def ours(self) -> SimResult:
        """Return the result of the policy that was asked about."""
        return self.outcomes[0].result

    @property
    def ratio(self) -> float | None:
        """Return our dollars over the work's alone; None: it was left undone, or none came."""
        if not self.outcomes[0].is_whole or self.work_alone <= 0.0:
            return None
        return self.ours.dollars / self.work_alone

    @property
    def rows(self) -> list[ComparisonRow]:
        """Return ours and every baseline, the frontier left out."""
        return [
            _row(one, self) for one in self.outcomes if one.alternative.role is not Role.FRONTIER
        ]

    @property
    def frontier(self) -> list[ComparisonRow]:
        """Return the same policy under other promises."""
        return [_row(one, self) for one in self.outcomes if one.alternative.role is Role.FRONTIER]


def at_their_speed(comparison: Comparison) -> tuple[list[tuple[str, float]], list[str]]:
    """Compare each baseline with the cheapest of our promises that is not slower.

    Returns:
        (name, dollars of the baseline over ours) of the baselines that we can match in speed, and
        the names of the others. Those that left work undone are in neither.
    """
    mine = [
        row
        for row in (*comparison.rows, *comparison.frontier)
        if row.role is not Role.BASELINE and not row.unfinished
    ]
    factors, faster = [], []
    for row in comparison.rows:
        if row.role is not Role.BASELINE or row.unfinished or not mine:
            continue
        as_fast = [one.dollars for one in mine if one.wait_p95 <= row.wait_p95 and one.dollars]
        if as_fast:
            factors.append((row.name, row.dollars / min(as_fast)))
        else:
            faster.append(row.name)
    return factors, faster


def say_obstacle(comparison: Comparison) -> str:
    """Say what stops this policy from doing all the work; "": unknown."""
    policy, scenario = comparison.outcomes[0].alternative.policy, comparison.gathered.scenario
    if policy.max_workers < 1:
        return "Nothing is launched with max_workers = 0."
    ceiling = policy.max_price_per_hour - extra_price_per_hour(scenario.root_volume_gib)
    since = _too_dear_since(scenario, ceiling)
    if since is None:
        is_cut_off = comparison.ours.seconds >= scenario.length + scenario.overtime
        days = say_count(f"{scenario.overtime / DAY:g}", "day")
        return f"The simulation ends {days} after the traffic." if is_cut_off else ""
    when = f" from {scenario.start + timedelta(seconds=since):%d %b %H:%M} on" if since else ""
    most = f"${policy.max_price_per_hour:,.2f}"
    return f"Nothing on sale costs max_price_per_hour = {most} or less{when}."


def _too_dear_since(scenario: SimScenario, ceiling: float) -> float | None:
    """Return the second from which on everything costs more than a ceiling; None: never."""
    zones = [zone for each in scenario.listings for zone in each.zones.values()]
    moves = {0.0} | {at for zone in zones for at, _ in zone.spot if 0.0 < at <= scenario.length}
    always = min((x.on_demand for x in scenario.listings if x.on_demand), default=math.inf)
    since = None
    for at in sorted(moves, reverse=True):
        prices = [price for zone in zones if (price := value_at(zone.spot, at)) is not None]
        if min([always, *prices]) <= ceiling:
            break
        since = at
    return since


def compare(gathered: Gathered, outcomes: Sequence[AlternativeResult]) -> Comparison:
    """Return the comparison; the first of ``outcomes`` is this policy."""
    return Comparison(
        gathered=gathered,
        outcomes=tuple(outcomes),
        work_alone=_work_alone(gathered.scenario),
    )


def _work_alone(scenario: SimScenario) -> float:
    """Return the USD of all work at the lowest price that any offer ever has.

    Worked: 10 hours of work on a T4, at the least 0.20 USD an hour with its disk and address: 2
    USD; on a GPU three times as fast at 0.45: 1.50. Infinite if nothing is ever on sale.
    """
    extra = extra_price_per_hour(scenario.root_volume_gib)
    least = math.inf
    for listing in scenario.listings:
        spot = [
            price
            for zone in listing.zones.values()
            for at, price in zone.spot
            if at <= scenario.length
        ]
        on_demand = [] if listing.on_demand is None else [listing.on_demand]
        hour = min([*spot, *on_demand], default=math.inf) + extra
        least = min(least, hour / scenario.throughput(listing))
    return scenario.work_seconds / _HOUR * least


def _row(outcome: AlternativeResult, comparison: Comparison) -> ComparisonRow:
    result, length = outcome.result, comparison.gathered.traffic.length
    is_whole = outcome.is_whole and comparison.outcomes[0].is_whole
    return ComparisonRow(
        name=outcome.alternative.name,
        title=outcome.alternative.title,
        role=outcome.alternative.role,
        dollars=result.dollars,
        dollars_a_month=result.dollars / max(length / _HOUR, 1.0) * HOURS_PER_MONTH,
        dollars_per_1000_items=result.dollars_per_item * 1000,
        times_ours=result.dollars / comparison.ours.dollars if is_whole else None,
        wait_p50=result.wait.p50,
        wait_p95=result.wait.p95,
        launches=result.launches,
        interruptions=result.interruptions,
        overhead=1.0 - result.bill["work"] / result.dollars if result.dollars > 0.0 else None,
        unfinished=result.jobs - result.jobs_done,
    )


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison for programs."""
    gathered = comparison.gathered
    return {
        "workload": gathered.subject.workload,
        "policy": gathered.subject.source,
        "arrivals": gathered.traffic.source,
        "prices": gathered.prices.source,
        "start": gathered.traffic.start.isoformat(),
        "seconds": gathered.traffic.length,
        "seed": gathered.seed,
        "assumed": list(gathered.notes),
        "work_alone_dollars": comparison.work_alone
        if math.isfinite(comparison.work_alone)
        else None,
        "over_work_alone": comparison.ratio,
        "results": list(_results(comparison)),
    }


def _results(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for outcome in comparison.outcomes:
        result = asdict(outcome.result)
        if not outcome.result.has_started:
            result["wait"] = dict.fromkeys(result["wait"])
        if not outcome.result.jobs_done:
            result["sojourn"] = dict.fromkeys(result["sojourn"])
        yield {
            "name": outcome.alternative.name,
            "title": outcome.alternative.title,
            "role": outcome.alternative.role.value,
            # JSON has no infinity.
            "dollars_per_item": outcome.result.dollars_per_item
            if outcome.result.items_done
            else None,
            **{key: value for key, value in result.items() if key not in _LEFT_OUT},
        }
