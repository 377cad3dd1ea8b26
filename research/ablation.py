"""Measure what a mechanism of the product earns: the same scenarios with it and without it.

``python -m research.ablation QUESTION --data DIR [--seeds 3]``. A mechanism is switched off by
putting another function in its place, so this runs only on a commit that still has it under that
name: ``docs/adr/0048-what-did-not-pay.md`` says which, and how.
"""

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from research.compare.case import CASES, deadline_policy, patient_policy
from research.compare.claim.call import counted
from research.compare.source import Part
from research.compare.world.trouble import NINE_ZONES, long_job
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.memory import MemoryTable
from spindown.simulator import Arrival, SimResult, SimScenario, simulate

_HOUR = 3600.0

#: A module, a name in it, and what makes its stand-in from what it is.
Switch = tuple[str, str, Callable[[Any], Any]]


class _PlainRow(dict[str, Any]):
    """A row that is decoded each time that it is read."""

    def follow(self, _earlier: object, _changed: object) -> None:
        """Remember nothing."""


def _to_spot_never(movers: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def kept(tick: Any, forecast: Any, kind: CapacityType) -> list[Any]:
        return [] if kind is CapacityType.SPOT else movers(tick, forecast, kind)

    return kept


def _to_spot_from_on_demand(movers: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def kept(tick: Any, forecast: Any, kind: CapacityType) -> list[Any]:
        found = movers(tick, forecast, kind)
        if kind is CapacityType.ON_DEMAND:
            return found
        return [m for m in found if m.worker.capacity_type is CapacityType.ON_DEMAND]

    return kept


def _charge_every(span: timedelta) -> Callable[[Any], Callable[[Any], None]]:
    """Return a charge by each worker's own row, if its last one is so long ago."""

    def make(_before: Any) -> Callable[[Any], None]:
        whole: Any = importlib.import_module("spindown.app.reconcile.charge")
        spend: Any = importlib.import_module("spindown.app.spend")

        def charge_fleet(tick: Any) -> None:
            apart = []
            for worker in list(tick.workers.values()):
                if worker.state is WorkerState.ENDED:
                    continue
                whole._learn_boot(tick, worker)
                if tick.now < (worker.accrued_until or worker.launched_at) + span:
                    continue
                launch = tick.launch_of(worker)
                due = spend.charge(worker, launch, until=tick.now, ledger=tick.ledger)
                apart.append((spend.mark_charged(worker, due.until, tick.ledger), due))
                if launch is not None and due.released_usd:
                    left = launch.reserved_usd - due.released_usd
                    tick.launches[launch.launch_id] = replace(launch, reserved_usd=left)
            tick.tally.charged += apart
            for first in range(0, len(apart), 25):
                tick.journal.note_bundle(whole._bundle(apart[first : first + 25]))
            whole._note_vram(tick)
            whole._stamp_ends(tick)

        return charge_fleet

    return make


_WEIGH = "spindown.app.reconcile.launch.weigh"
_RELIEVE = "spindown.app.reconcile.launch.relieve"
_TERMS = "spindown.domain.ranking.terms"

_PUT_DOWN: Switch = (_WEIGH, "mark_put_down", lambda _: lambda waiting, _dates: tuple(waiting))
_ROOM: Switch = (_WEIGH, "room", lambda _: lambda _present, **_terms: math.inf)
_PIPELINE = "spindown.app.reconcile.pipeline"

SWITCHES: Mapping[str, Sequence[Switch]] = {
    "as shipped": (),
    "without put_down": (_PUT_DOWN,),
    "without room": (_ROOM,),
    "without both": (_PUT_DOWN, _ROOM),
    "no move to spot": ((_RELIEVE, "_movers", _to_spot_never),),
    "no move from spot to spot": ((_RELIEVE, "_movers", _to_spot_from_on_demand),),
    "each worker, every tick": (
        ("spindown.app.reconcile.charge", "_may_charge_together", lambda _: lambda _tick: False),
    ),
    "each worker, every 5 min": ((_PIPELINE, "charge_fleet", _charge_every(timedelta(minutes=5))),),
    "without margin": (
        ("spindown.app.reconcile.track", "next_margin", lambda _: lambda *_, **__: timedelta(0)),
    ),
    "without trial": ((_TERMS, "is_worth_a_trial", lambda _: lambda *_: False),),
    "without KeptRow": (("spindown.simulator.port.table", "KeptRow", lambda _: _PlainRow),),
    "without SimTable": (("spindown.simulator.world", "SimTable", lambda _: MemoryTable),),
}


@contextmanager
def switched(name: str) -> Iterator[None]:
    """Put the stand-ins in place, and what was there back at the end."""
    before = []
    for module_name, attribute, make in SWITCHES[name]:
        try:
            module = importlib.import_module(module_name)
            was = getattr(module, attribute)
        except (ImportError, AttributeError) as exc:
            raise SystemExit(f"{exc}: run this on the commit that its decision names") from exc
        before.append((module, attribute, was))
        setattr(module, attribute, make(was))
    try:
        yield
    finally:
        for module, attribute, was in before:
            setattr(module, attribute, was)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario under one policy."""

    title: str
    build: Callable[[int, Path], SimScenario]
    policy: Policy
    deadline_hours: float | None = None


def _case(name: str) -> Callable[[int, Path], SimScenario]:
    return lambda seed, data: CASES[name].build(seed, data, Part.REPORT)


def _patient(name: str, minutes: float) -> Row:
    return Row(
        title=f"{name}, {minutes:.0f} min", build=_case(name), policy=patient_policy(minutes)
    )


def _as_deployed(name: str, **changes: Any) -> Row:
    """Return a row under the defaults, but for what is given and the price of a V100."""
    policy = replace(Policy(max_workers=200, max_price_per_hour=5.0), **changes)
    told = ", ".join(f"{key} {value}" for key, value in changes.items())
    title = f"{name}, defaults" + (f", {told}" if told else "")
    return Row(title=title, build=_case(name), policy=policy)


def _starts() -> list[Row]:
    return [
        *(_patient(name, 10.0) for name in ("S6", "S7")),
        *(_as_deployed(name) for name in ("S6", "S7", "S8")),
        *(_patient(name, 3.0) for name in ("S6", "S7", "S11", "S8")),
        _as_deployed("S7", max_workers=4),
        _as_deployed("S9"),
        _as_deployed("S2", max_workers=4),
        _as_deployed("S2", max_dollars_per_hour=1.0),
        *(_patient(name, 10.0) for name in ("S8", "S11", "S9", "S2")),
        _hot_zone(1.0),
        _hot_zone(0.0),
    ]


def _hot_zone(notice_missing: float) -> Row:
    """Return two hours of work an hour in one zone whose machines live 2.3 hours, two days."""

    def build(seed: int, data: Path) -> SimScenario:
        plain = CASES["S9"].build(seed, data, Part.REPORT)
        listing = next(x for x in plain.listings if x.instance_type.name == "g4dn.xlarge")
        name, zone = next(iter(listing.zones.items()))
        hot = replace(zone, spot=((0.0, 0.2),), reclaims_per_hour=1.0 / 2.3)
        return replace(
            plain,
            name="hot zone",
            arrivals=tuple(
                Arrival(at=30.0 + hour * _HOUR, items=720, item_seconds=10.0)
                for hour in range(24 * 2)
            ),
            listings=(replace(listing, zones={name: hot}),),
            length=2 * 24 * _HOUR,
            notice_missing=notice_missing,
        )

    said = "unsaid" if notice_missing else "said"
    return Row(title=f"hot zone, reclaims {said}", build=build, policy=Policy(max_workers=6))


def _deadlines() -> list[Row]:
    rows = []
    for hours in (52.0, 56.0, 60.0, 72.0):
        for where, regions in (("9 zones", tuple(NINE_ZONES)), ("us-east-1", ("us-east-1",))):
            rows.append(_long(hours, where, regions))
    for within in (10.0, 14.0):
        for where, regions in (("9 zones", tuple(NINE_ZONES)), ("us-east-1", ("us-east-1",))):
            rows.append(_several(within, where, regions))
    return rows


def _long(hours: float, where: str, regions: Sequence[str]) -> Row:
    return Row(
        title=f"48 h in {hours:.0f}, {where}",
        build=lambda seed, data: long_job(hours, regions)(seed, data, Part.REPORT),
        policy=deadline_policy(timedelta(hours=hours)),
        deadline_hours=hours,
    )


def _several(within: float, where: str, regions: Sequence[str]) -> Row:
    """Return twelve jobs of eight hours, one every four hours or so, each with its own deadline."""

    def build(seed: int, data: Path) -> SimScenario:
        plain = long_job(72.0, regions)(seed, data, Part.REPORT)
        random = Random(f"{seed}/several")
        (job,) = plain.arrivals
        at = sorted(random.uniform(30.0, 48.0 * _HOUR) for _ in range(12))
        return replace(
            plain, arrivals=tuple(replace(job, at=each, items=job.items // 6) for each in at)
        )

    deadline = timedelta(hours=within)
    return Row(
        title=f"12 jobs of 8 h in {within:.0f} each, {where}",
        build=build,
        policy=replace(deadline_policy(deadline), max_workers=12, max_lifetime=timedelta(hours=72)),
        deadline_hours=within,
    )


def _learning() -> list[Row]:
    return [
        *(_patient(name, 10.0) for name in ("S2", "S3 6c71a0", "S7", "S8", "S9")),
        *(_patient(name, 60.0) for name in ("S2", "S9")),
    ]


#: Question -> rows, and the names of what is switched.
QUESTIONS: Mapping[str, tuple[Callable[[], list[Row]], Sequence[str]]] = {
    "starts": (_starts, ("without put_down", "without room", "without both")),
    "deadlines": (_deadlines, ("no move to spot", "no move from spot to spot")),
    "learning": (_learning, ("without margin", "without trial")),
    "charges": (
        lambda: [_patient("S5", 10.0), _patient("S1", 10.0)],
        ("each worker, every tick", "each worker, every 5 min"),
    ),
    "rows": (
        lambda: [_patient(name, 10.0) for name in ("S1", "S2", "S4", "S5", "S8", "S9")],
        ("without KeptRow", "without SimTable"),
    ),
}


def measure(question: str, row: Row, switch: str, seed: int, data: Path) -> dict[str, Any]:
    """Run one row with one seed, something switched off; return its figures."""
    scenario = row.build(seed, data)
    calls: Mapping[str, float] = {}
    with switched(switch):
        begun = process_time()
        if question == "charges":
            result, calls = counted(scenario, row.policy, seed)
        else:
            result = simulate(scenario, row.policy, seed)
        seconds = process_time() - begun
    months = calls.get("months", 1.0)
    return {
        "row": row.title,
        "switch": switch,
        "seed": seed,
        "dollars": result.dollars,
        "accounted": result.accounted_dollars,
        "p95_min": result.wait.p95 / 60.0,
        "p99_stay_hours": result.sojourn.p99 / _HOUR,
        "late": _late(result, row),
        "lost": result.jobs - result.jobs_done,
        "launches": result.launches,
        "on_demand": result.on_demand_dollars,
        "cpu_seconds": seconds,
        "digest": result.digest[:12],
        **{f"{name}_a_month": value / months for name, value in calls.items() if name != "months"},
    }


def _late(result: SimResult, row: Row) -> float:
    """Return 1 if the slowest job missed its deadline, by its own clock."""
    if row.deadline_hours is None:
        return 0.0
    return float(result.sojourn.most > row.deadline_hours * _HOUR)


def main() -> int:
    """Measure, and print one line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", default="", help="only rows whose title has this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows, switches = QUESTIONS[options.question]
    found = []
    for row in rows():
        if options.rows not in row.title:
            continue
        for seed in range(1, options.seeds + 1):
            for switch in ("as shipped", *switches):
                told = measure(options.question, row, switch, seed, options.data)
                found.append(told)
                print(json.dumps(told), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
